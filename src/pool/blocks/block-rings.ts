// The free blocks of a block pool, and the work that they wait for. Free blocks are in rings: one for each stream
// slot, and one for settled blocks, which wait for no work. The newest block of a ring is taken first, since its
// memory is likeliest to be in the GPU's cache; the oldest is settled first. A ring is a doubly linked list, so that
// both ends cost the same. A sentinel block at its bottom makes an empty ring no special case. A taken block stays on
// top of its ring until another block is taken. A free before that moves nothing.
//
// The tag of a block has a generation that grows with each use, so that a stale handle never matches. A block without
// a generation left continues as another object.
//
// V8 can cut a call short where a function or the next round of a loop begins. Stores that belong together therefore
// have no call or loop between them, so that each block is live, free or deferred afterwards.

import { assert } from '../../base/assert.js'
import { FixedBlock, type FixedBlockOwner, Ring, State } from './fixed-block.js'

// Const enums compile to numbers, which keeps hot methods small enough for inlining.
export const enum Tag {
  stateMask = 7,
  generation = 8,
  /** free blocks with smaller tags have a generation left; the tag after this is negative as an int32 */
  spent = 2 ** 31 - 8,
}
const NO_BLOCK = -1

export class BlockRings {
  /** all blocks; those never handed out are settled, and are taken last, in the order of their numbers */
  total = 0
  /** how often blocks were taken and given back */
  allocations = 0
  frees = 0
  /** bytes of live blocks beyond the requested ones */
  slackBytes = 0
  private peak = 0
  /** by number: the blocks that were ever handed out */
  private readonly blocks: FixedBlock[] = []
  /** settled blocks that were handed out before, and their number */
  private readonly settledRing: Ring
  private inSettledRing = 0
  /** blocks that were freed and are in no ring */
  deferred = 0
  /** by stream slot */
  private readonly rings: Ring[] = []

  /** No blocks yet. */
  constructor(private readonly pool: FixedBlockOwner) {
    this.settledRing = this.newRing()
  }

  /** Stream slots that have rings are below this. */
  get slotLimit(): number {
    return this.rings.length
  }

  ringOf(slot: number): Ring {
    while (slot >= this.rings.length) this.rings.push(this.newRing())
    return this.rings[slot]
  }

  private newRing(): Ring {
    const { pool } = this
    return new Ring(new FixedBlock(pool, NO_BLOCK, Tag.spent), pool.defaultStream)
  }

  /** The block of a number, once it was handed out. */
  blockOf(record: number): FixedBlock {
    return this.blocks[record]
  }

  /** Free blocks that wait for no work. */
  get settled(): number {
    return this.inSettledRing + this.total - this.blocks.length
  }

  /**
   * Takes the newest block of a ring, as `offer` left it, with its new tag; `slack` of its bytes were not requested.
   */
  take(block: FixedBlock, tag: number, slack: number): void {
    block.tag = tag
    this.allocations++
    if (slack === 0) return
    block.slack = slack
    this.slackBytes += slack
  }

  /** Makes the newest block of a ring ready to be taken: its own, or a settled one. False when it has none. */
  offer(ring: Ring): boolean {
    ring.dropTaken()
    const { newest } = ring
    if (newest === ring.bottom) return this.offerSettled(ring)
    if (newest.tag >= Tag.spent) {
      const next = new FixedBlock(this.pool, newest.record, State.free)
      next.ring = ring
      next.stamp = newest.stamp
      next.older = newest.older
      next.older.newer = next
      ring.newest = this.blocks[next.record] = next
    }
    return true
  }

  /** Frees a live block: its own ring may have it at once, other streams when `stamp` has passed. */
  put(block: FixedBlock, stamp: number): void {
    const ring = block.ring!
    if (ring.newest !== block) ring.push(block)
    this.notePeak()
    if (block.slack !== 0) {
      this.slackBytes -= block.slack
      block.slack = 0
    }
    block.tag = (block.tag - State.live) | 0
    block.stamp = stamp
    this.frees++
  }

  /** `put` into another ring than its own. */
  putInto(ring: Ring, block: FixedBlock, stamp: number): void {
    this.leaveRing(block)
    ring.dropTaken()
    this.notePeak()
    this.slackBytes -= block.slack
    block.slack = 0
    block.tag = (block.tag - State.live) | 0
    block.stamp = stamp
    block.ring = ring
    block.older = ring.newest
    block.older.newer = block
    ring.newest = block
    if (ring === this.settledRing) this.inSettledRing++
    this.frees++
  }

  /** Frees a live block that waits for no work. */
  putSettled(block: FixedBlock): void {
    this.putInto(this.settledRing, block, 0)
  }

  /** Other streams use a live block: it must be freed by `defer`. */
  share(block: FixedBlock): void {
    block.tag |= State.shared
  }

  /** Frees a live block that no stream may have until `putDeferred`. */
  defer(block: FixedBlock): void {
    this.leaveRing(block)
    this.notePeak()
    this.slackBytes -= block.slack
    block.slack = 0
    block.tag = (block.tag & ~Tag.stateMask) | State.shared
    this.deferred++
    this.frees++
  }

  /**
   * Settles a deferred block. `settle` has the same stores: a call of a common function could be cut short between
   * them.
   */
  putDeferred(record: number): void {
    const block = this.blockOf(record)
    const { settledRing } = this
    block.tag &= ~Tag.stateMask
    this.deferred--
    block.stamp = 0
    block.ring = settledRing
    block.older = settledRing.newest
    block.older.newer = block
    settledRing.newest = block
    this.inSettledRing++
  }

  /** The blocks that were freed and are in no ring. */
  deferredBlocks(): FixedBlock[] {
    return this.blocks.filter(block => (block.tag & Tag.stateMask) === State.shared)
  }

  /** Settles the blocks of a slot with stamps up to `stamp`. Returns how many. */
  settle(slot: number, stamp: number): number {
    const ring = this.ringOf(slot)
    const { bottom } = ring
    const { settledRing } = this
    ring.dropTaken()
    let settled = 0
    for (; ring.newest !== bottom; settled++) {
      const oldest = bottom.newer
      if (oldest.stamp > stamp) break
      if (oldest === ring.newest) ring.newest = bottom
      else {
        bottom.newer = oldest.newer
        oldest.newer.older = bottom
      }
      oldest.stamp = 0
      oldest.ring = settledRing
      oldest.older = settledRing.newest
      oldest.older.newer = oldest
      settledRing.newest = oldest
      this.inSettledRing++
    }
    return settled
  }

  /** The latest stamp that a free block of a slot waits for; 0 for none. */
  newestStamp(slot: number): number {
    const ring = this.ringOf(slot)
    ring.dropTaken()
    return ring.newest === ring.bottom ? 0 : ring.newest.stamp
  }

  get live(): number {
    return this.allocations - this.frees
  }

  get peakLive(): number {
    return Math.max(this.peak, this.live)
  }

  /** Forgets every block; all handles are stale. */
  clear(): void {
    this.notePeak()
    for (const ring of [this.settledRing, ...this.rings]) ring.newest = ring.bottom
    for (const block of this.blocks) block.tag = State.free
    this.blocks.length = 0
    this.total = this.inSettledRing = this.deferred = this.slackBytes = 0
    this.frees = this.allocations
  }

  /** Asserts that rings and blocks agree; walks them all. */
  check(): void {
    const free = new Set<FixedBlock>()
    for (const ring of this.rings) for (const block of this.entries(ring)) free.add(block)
    const settled = [...this.entries(this.settledRing)]
    for (const block of settled) free.add(block)
    const counts = { live: 0, deferred: this.deferredBlocks().length, slack: 0 }
    for (const [record, block] of this.blocks.entries()) {
      const state = block.tag & Tag.stateMask
      assert(block.record === record, 'a block knows its number')
      assert((state === State.free) === free.delete(block), 'every free block is in one ring')
      if ((state & State.live) !== 0) counts.live++
      else assert(block.slack === 0, 'only live blocks have slack')
      counts.slack += block.slack
    }
    assert(free.size === 0 && this.blocks.length <= this.total, 'a block has one object')
    assert(counts.live === this.live, 'live blocks add up to the counters')
    assert(counts.deferred === this.deferred, 'deferred blocks add up to the counter')
    assert(settled.length === this.inSettledRing, 'settled blocks add up to the counter')
    assert(counts.slack === this.slackBytes, 'slack adds up to the counter')
  }

  /** The free blocks of a ring, from the newest on. */
  private *entries(ring: Ring): Generator<FixedBlock> {
    const { bottom, newest } = ring
    const isTaken = (newest.tag & State.live) !== 0
    assert(!isTaken || newest.ring === ring, 'a block that was taken leaves its ring before it comes to another')
    let newer = bottom
    for (let block = isTaken ? newest.older : newest; block !== bottom; block = block.older) {
      const { stamp } = block
      assert(block.ring === ring, 'a block knows its ring')
      assert(ring === this.settledRing ? stamp === 0 : stamp > 0, 'a block has a stamp when it depends on something')
      assert(newer === bottom || block.newer === newer, 'neighbours in a ring know each other')
      assert(newer === bottom || stamp <= newer.stamp, 'older blocks have earlier stamps')
      newer = block
      yield block
    }
    assert(newer === bottom || bottom.newer === newer, 'a ring knows its oldest block')
  }

  /** Puts a settled block into an empty ring. */
  private offerSettled(ring: Ring): boolean {
    const { settledRing, blocks } = this
    const settled = settledRing.newest
    const isFresh = settled === settledRing.bottom
    if (isFresh && blocks.length === this.total) return false
    const record = isFresh ? blocks.length : settled.record
    const isNew = isFresh || settled.tag >= Tag.spent
    const block = isNew ? new FixedBlock(this.pool, record, State.free) : settled
    if (!isFresh) {
      settledRing.newest = settled.older
      this.inSettledRing--
    }
    blocks[record] = block
    block.ring = ring
    block.stamp = 1 // the earliest stamp
    block.older = ring.bottom
    block.older.newer = block
    ring.newest = block
    return true
  }

  /** Takes a live block out of its ring. */
  private leaveRing(block: FixedBlock): void {
    const ring = block.ring!
    if (ring.newest === block) ring.dropTaken()
  }

  /** Notes the peak. Called before a free: live blocks grow by allocations only. */
  private notePeak(): void {
    const { live } = this
    if (live > this.peak) this.peak = live
  }
}
