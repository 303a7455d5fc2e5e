// Where a block goes in a stack: behind the one before. It knows numbers only, never memory. Each block that was taken
// has an entry, counted from 1, which says how far it reaches, so that the state of the stack is the number of its last
// entry, and dropping entries is one assignment however many they are. Counts and sums follow from the entries instead of
// being kept at each allocation. What an alignment skips has an entry of its own, which is vacant, never anybody's.
//
// Entries are used again. The tag of an entry grows with each use, and is odd until its block is freed by itself, so that
// a handle, which is an entry and an odd tag, never matches another block.

import { assert } from '../base/assert.js'
import { UNIT_BYTES } from './size-classes.js'

/** Where in an entry an int32 lies; const enums for the reason given in records.ts. */
const enum Word {
  tag = 0,
  /** the first unit behind the block */
  end = 1,
  /** bytes of the block's units beyond what was asked for */
  slack = 2,
}
const enum Stride {
  shift = 2,
  words = 4,
}

const FIRST_CAPACITY = 1024
const MOST_ENTRIES = 2 ** 27
/** Tag of an entry whose tags are used up: even, and the tag that would follow is negative, too. */
const SPENT = -(2 ** 31)

export class Bump {
  /** the entry of the last block, 0 for none, and the first unit behind it */
  last = 0
  top: number
  private words = new Int32Array(FIRST_CAPACITY * Stride.words)
  private capacity = FIRST_CAPACITY
  /** entries up to the last that are freed or vacant, and what they cover and waste */
  private freed = 0
  private freedUnits = 0
  private freedSlack = 0
  /** blocks that were taken and dropped since, less the vacant entries there are */
  private dropped = 0
  private peakUnits = 0
  /** the slack of the entries up to `summed`; each is added when a sum is first asked for */
  private summed = 0
  private slackSum = 0

  /** A stack of the units from `start` to `limit`, which may rise later. */
  constructor(
    private readonly start: number,
    public limit: number,
  ) {
    this.top = start
    this.words[Word.end] = start
  }

  /**
   * Takes `units`, of which the user has not asked for `slack` bytes, as entry `last`. Returns the tag for the handle;
   * 0, with nothing changed, when they do not fit, or when `allocateAligned` has to look.
   */
  allocate(units: number, slack: number): number {
    const { words, top } = this
    const entry = (this.last + 1) | 0
    if (units > this.limit - top || entry === this.capacity) return 0
    const base = entry << Stride.shift
    const tag = ((words[base] | 1) + 2) | 0
    if (tag < 0) return 0
    const end = (top + units) | 0
    words[base] = tag
    words[base | Word.end] = end
    words[base | Word.slack] = slack
    this.last = entry
    this.top = end
    return tag
  }

  /** `allocate` at a multiple of `alignUnits`, whatever entry comes next; 0 only when the units do not fit. */
  allocateAligned(units: number, slack: number, alignUnits: number): number {
    const start = this.nextStart(alignUnits)
    if (units > this.limit - start) return 0
    if (start > this.top) this.pushVacant(start)
    for (;;) {
      if (this.last + 1 === this.capacity) this.extend()
      const tag = this.allocate(units, slack)
      if (tag !== 0) return tag
      this.pushVacant(this.top)
    }
  }

  /** Where a block aligned to `alignUnits` would begin. */
  nextStart(alignUnits: number): number {
    return Math.ceil(this.top / alignUnits) * alignUnits
  }

  /** The block of a live entry is no longer used; its units stay taken until the stack is dropped below it. */
  free(entry: number): void {
    this.notePeak()
    this.words[entry << Stride.shift] &= ~1
    this.countFreed(entry, 1)
  }

  /** Drops every entry above `entry`. Constant time, but for entries that were freed by themselves or summed up. */
  dropTo(entry: number): void {
    this.notePeak()
    for (let above = this.last; above > entry && this.freed > 0; above--) {
      if (!this.isTaken(above)) this.countFreed(above, -1)
    }
    if (entry === 0) this.summed = this.slackSum = 0
    for (; this.summed > entry; this.summed--) this.slackSum -= this.slackOf(this.summed)
    this.dropped += this.last - entry
    this.last = entry
    this.top = this.endOf(entry)
  }

  isLive(entry: number, tag: number): boolean {
    return entry <= this.last && this.words[entry << Stride.shift] === tag
  }

  /** Names the use of an entry, freed or not: two answers are equal if neither it nor anything below was dropped in between. */
  identity(entry: number): number {
    return this.words[entry << Stride.shift] | 1
  }

  startOf(entry: number): number {
    return this.endOf(entry - 1)
  }

  requestedBytesOf(entry: number): number {
    return (this.endOf(entry) - this.startOf(entry)) * UNIT_BYTES - this.slackOf(entry)
  }

  get liveUnits(): number {
    return this.top - this.start - this.freedUnits
  }

  get peakLiveUnits(): number {
    this.notePeak()
    return this.peakUnits
  }

  /** Bytes asked for by live blocks. */
  get requestedBytes(): number {
    while (this.summed < this.last) this.slackSum += this.slackOf(++this.summed)
    return this.liveUnits * UNIT_BYTES - (this.slackSum - this.freedSlack)
  }

  get liveBlocks(): number {
    return this.last - this.freed
  }

  /** Blocks ever taken. */
  get allocations(): number {
    return this.dropped + this.last
  }

  /** Walks all entries and asserts that they tile the stack and add up to the counters. */
  check(): void {
    let [freed, freedUnits, freedSlack, slack] = [0, 0, 0, 0]
    for (let entry = 1; entry <= this.last; entry++) {
      const units = this.endOf(entry) - this.startOf(entry)
      assert(units >= 0, 'a block ends behind the one before')
      if (entry <= this.summed) slack += this.slackOf(entry)
      if (this.isTaken(entry)) {
        assert(this.requestedBytesOf(entry) > (units - 1) * UNIT_BYTES, 'a block has no unit too many')
        continue
      }
      freed++
      freedUnits += units
      freedSlack += this.slackOf(entry)
    }
    assert(this.endOf(0) === this.start && this.endOf(this.last) === this.top, 'the stack is from its start to its top')
    assert(this.top <= this.limit, 'the stack stays below its limit')
    assert(freed === this.freed, 'freed entries add up to the counter')
    assert(freedUnits === this.freedUnits, 'the units of freed entries add up to the counter')
    assert(freedSlack === this.freedSlack, 'the slack of freed entries adds up to the counter')
    assert(this.summed <= this.last && slack === this.slackSum, 'slack adds up to the sum')
  }

  /** An entry that nobody has, up to unit `end`; one whose tags are spent is passed over like that. */
  private pushVacant(end: number): void {
    if (this.last + 1 === this.capacity) this.extend()
    const entry = ++this.last
    const base = entry << Stride.shift
    const tag = ((this.words[base] | 1) + 2) | 0
    this.words[base] = tag < 0 ? SPENT : tag & ~1
    this.words[base | Word.end] = end
    this.words[base | Word.slack] = 0
    this.top = end
    this.dropped--
    this.countFreed(entry, 1)
  }

  private isTaken(entry: number): boolean {
    return (this.words[entry << Stride.shift] & 1) === 1
  }

  private countFreed(entry: number, sign: 1 | -1): void {
    this.freed += sign
    this.freedUnits += sign * (this.endOf(entry) - this.startOf(entry))
    this.freedSlack += sign * this.slackOf(entry)
  }

  /** What is live grows by allocations only, so that a peak can be noted just before it ends. */
  private notePeak(): void {
    if (this.liveUnits > this.peakUnits) this.peakUnits = this.liveUnits
  }

  private endOf(entry: number): number {
    return this.words[(entry << Stride.shift) | Word.end]
  }

  private slackOf(entry: number): number {
    return this.words[(entry << Stride.shift) | Word.slack]
  }

  private extend(): void {
    assert(this.capacity < MOST_ENTRIES, 'a stack has fewer than 2^27 blocks')
    const words = new Int32Array(this.words.length * 2)
    words.set(this.words)
    this.words = words
    this.capacity *= 2
  }
}
