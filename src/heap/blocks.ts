// Blocks of one size: which of them is free, and what a free one depends on. It knows numbers only, never memory. Free
// blocks hang in rings, one for each key, and one, of key 0, for those that depend on nothing. The newest block of a ring
// is taken first, because its memory is the likeliest to be in the GPU's cache, and the oldest is settled first. A ring is
// linked both ways, so that either costs the same whatever its length, and closed by a record of its own, so that an empty
// one is hardly a special case.
//
// A record describes one block. Its tag has a generation that grows with each use, so that a handle, a record with its
// tag, never matches another use. A block whose record has no generation left goes on in another record.

import { assert } from '../base/assert.js'

// Const enums for the reason given in records.ts. A record has eight int32 words; words 4 and 5, 6 and 7 are float64s.
const enum Word {
  /** generation × 8 + state */
  tag = 0,
  /** the next older block of the ring; of the record that closes it, the newest block */
  older = 1,
  /** the next newer block, of all but the newest; of the record that closes a ring, the oldest block, if there is any */
  newer = 2,
  /** number of the block */
  block = 3,
}
const enum Double {
  /** what must have passed before blocks of another key may have it */
  stamp = 2,
  /** bytes of a partial block beyond what the user asked for */
  slack = 3,
}
/** Bits; a handle has the tag that its block was taken with, and so never `shared`. */
const enum State {
  free = 0,
  /** used by others than its key; alone: freed, but in no ring yet */
  shared = 1,
  live = 2,
  /** with slack */
  partial = 4,
}

const STATE_MASK = 7
const GENERATION = 8
const RECORD_BYTES = 32
const MOST_RECORDS = 2 ** 27
const NO_BLOCK = -1
/** The ring of blocks that depend on nothing. */
const SETTLED = 0

export class Blocks {
  /** blocks there are */
  total = 0
  /** free blocks that depend on nothing */
  settled = 0
  /** how often blocks were taken and given back */
  allocations = 0
  frees = 0
  /** bytes that live blocks have beyond what was asked for */
  slackBytes = 0
  /** the tag of the block taken last, for its handle */
  lastTag = 0
  private peak = 0
  private words: Int32Array
  private doubles: Float64Array
  /** records in use; those below `keys` close the rings */
  private used: number

  /** No blocks yet; a key is from 1 to `keys` - 1. */
  constructor(private readonly keys: number) {
    this.used = keys
    const buffer = new ArrayBuffer(keys * RECORD_BYTES)
    this.words = new Int32Array(buffer)
    this.doubles = new Float64Array(buffer)
    for (let key = 0; key < keys; key++) this.words.set([0, key, 0, NO_BLOCK], key << 3)
  }

  /** More blocks, which depend on nothing; the first of them is taken first. */
  add(count: number): void {
    this.extend(count)
    for (let index = count - 1; index >= 0; index--) {
      const record = this.used + index
      this.words[(record << 3) | Word.block] = this.total + index
      this.insert(record, SETTLED, 0)
    }
    this.used += count
    this.total += count
  }

  /** Takes a block that is free for `key`; its tag is `lastTag`. 0 when there is none. */
  take(key: number): number {
    const { words } = this
    let ring = key
    let record = words[(ring << 3) | Word.older]
    if (record === ring) {
      ring = SETTLED
      record = words[Word.older]
      if (record === SETTLED) return 0
      this.settled--
    }
    words[(ring << 3) | Word.older] = words[(record << 3) | Word.older]
    this.allocations++
    const tag = ((words[record << 3] | STATE_MASK) + (1 + State.live)) | 0
    if (tag < 0) return this.rehouse(record)
    words[record << 3] = tag
    this.lastTag = tag
    return record
  }

  /** The user has not asked for `slack` bytes of the block that was just taken, which changes `lastTag`. */
  setSlack(record: number, slack: number): void {
    this.words[record << 3] |= State.partial
    this.lastTag |= State.partial
    this.doubles[(record << 2) | Double.slack] = slack
    this.slackBytes += slack
  }

  /**
   * Gives a block back: `key` may have it at once, the others when `stamp` has passed; with key 0 and stamp 0, any. False,
   * with nothing changed, when it is not live under this tag, or shared.
   */
  put(record: number, tag: number, key: number, stamp: number): boolean {
    if (this.words[record << 3] !== tag) return false
    if ((tag & State.partial) !== 0) this.slackBytes -= this.slackOf(record)
    this.words[record << 3] = tag & ~STATE_MASK
    this.countFree()
    this.insert(record, key, stamp)
    return true
  }

  /** Another than its own key uses a live block: to be given back by `defer`. */
  share(record: number): void {
    this.words[record << 3] |= State.shared
  }

  isShared(record: number): boolean {
    return (this.words[record << 3] & State.shared) !== 0
  }

  /** Takes a live block back that nobody may have until `putDeferred`. */
  defer(record: number): void {
    this.slackBytes -= this.slackOf(record)
    this.words[record << 3] = (this.words[record << 3] & ~STATE_MASK) | State.shared
    this.countFree()
  }

  putDeferred(record: number): void {
    this.words[record << 3] &= ~STATE_MASK
    this.insert(record, SETTLED, 0)
  }

  /** Blocks of `key` with stamps up to `stamp` depend on nothing any more. Returns how many. */
  settle(key: number, stamp: number): number {
    const { words, doubles } = this
    const ring = key << 3
    let settled = 0
    for (; words[ring | Word.older] !== key; settled++) {
      const oldest = words[ring | Word.newer]
      if (doubles[(oldest << 2) | Double.stamp] > stamp) break
      const newer = oldest === words[ring | Word.older] ? key : words[(oldest << 3) | Word.newer]
      words[ring | Word.newer] = newer
      words[(newer << 3) | Word.older] = key
      this.insert(oldest, SETTLED, 0)
    }
    return settled
  }

  /** The latest stamp that a free block of `key` waits for, 0 for none. */
  newestStamp(key: number): number {
    const newest = this.words[(key << 3) | Word.older]
    return newest === key ? 0 : this.doubles[(newest << 2) | Double.stamp]
  }

  isLive(record: number, tag: number): boolean {
    return (this.words[record << 3] & ~State.shared) === tag
  }

  /** The number of the block, from 0. */
  blockOf(record: number): number {
    return this.words[(record << 3) | Word.block]
  }

  /** Of a live block, or one that was just freed. */
  slackOf(record: number): number {
    return (this.words[record << 3] & State.partial) === 0 ? 0 : this.doubles[(record << 2) | Double.slack]
  }

  get live(): number {
    return this.allocations - this.frees
  }

  get peakLive(): number {
    return Math.max(this.peak, this.live)
  }

  /** Forgets every block; all handles are stale. */
  clear(): void {
    this.words.fill(0)
    this.total = this.settled = this.slackBytes = 0
    this.frees = this.allocations
  }

  /** Walks rings and records and asserts that they tell one story. */
  check(): void {
    const ringOf = new Map<number, number>()
    for (let key = 0; key < this.keys; key++) for (const record of this.ring(key)) ringOf.set(record, key)
    const blocks = new Set<number>()
    const counts = { live: 0, settled: 0, slack: 0 }
    for (let record = this.keys; record < this.used; record++) {
      const block = this.blockOf(record)
      const state = this.words[record << 3] & STATE_MASK
      assert((state === State.free && block !== NO_BLOCK) === ringOf.has(record), 'every free block is in one ring')
      if (block === NO_BLOCK) continue
      assert(block >= 0 && block < this.total && !blocks.has(block), 'a block has one record')
      blocks.add(block)
      if (ringOf.get(record) === SETTLED) counts.settled++
      if ((state & State.live) !== 0) counts.live++
      counts.slack += this.slackOf(record)
    }
    assert(blocks.size === this.total, 'every block has a record')
    assert(counts.live === this.live, 'live blocks add up to the counters')
    assert(counts.settled === this.settled, 'settled blocks add up to the counter')
    assert(counts.slack === this.slackBytes, 'slack adds up to the counter')
  }

  private *ring(key: number): Generator<number> {
    const { words, doubles } = this
    let newer = key
    for (let record = words[(key << 3) | Word.older]; record !== key; record = words[(record << 3) | Word.older]) {
      const stamp = doubles[(record << 2) | Double.stamp]
      assert(key === SETTLED ? stamp === 0 : stamp > 0, 'a block has a stamp when it depends on something')
      assert(newer === key || words[(record << 3) | Word.newer] === newer, 'neighbours in a ring know each other')
      assert(newer === key || stamp <= doubles[(newer << 2) | Double.stamp], 'older blocks have earlier stamps')
      newer = record
      yield record
    }
    assert(newer === key || words[(key << 3) | Word.newer] === newer, 'a ring knows its oldest block')
  }

  /** A free block becomes the newest of a ring. */
  private insert(record: number, key: number, stamp: number): void {
    const { words } = this
    const newest = words[(key << 3) | Word.older]
    words[(record << 3) | Word.older] = newest
    words[(newest << 3) | Word.newer] = record
    words[(key << 3) | Word.older] = record
    this.doubles[(record << 2) | Double.stamp] = stamp
    if (key === SETTLED) this.settled++
  }

  /** What is live grows by allocations only, so that a peak can be noted just before it ends. */
  private countFree(): void {
    const { live } = this
    if (live > this.peak) this.peak = live
    this.frees++
  }

  /** A block that was just taken goes on in a fresh record, because the generations of its own are spent. */
  private rehouse(record: number): number {
    this.extend(1)
    const fresh = this.used++
    this.words[(fresh << 3) | Word.block] = this.blockOf(record)
    this.words[(record << 3) | Word.block] = NO_BLOCK
    this.lastTag = GENERATION + State.live
    this.words[fresh << 3] = this.lastTag
    return fresh
  }

  /** Makes room for `count` more records. */
  private extend(count: number): void {
    const needed = this.used + count
    assert(needed <= MOST_RECORDS, 'a pool has fewer than 2^27 blocks')
    if (needed * RECORD_BYTES <= this.words.byteLength) return
    const buffer = new ArrayBuffer(Math.max(needed, Math.min(2 * this.used, MOST_RECORDS)) * RECORD_BYTES)
    const words = new Int32Array(buffer)
    words.set(this.words)
    this.words = words
    this.doubles = new Float64Array(buffer)
  }
}
