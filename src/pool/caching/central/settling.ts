// When freed blocks stop depending on work: marks on the streams, the driver's answers, and the blocks that both set
// free.

import type { Clocks } from '../../../order/clocks.js'
import type { BlockCache } from '../block-cache.js'
import type { Deferred } from './deferred.js'
import type { FreeMemory } from './free-memory.js'

export class Settling {
  constructor(
    private readonly memory: FreeMemory,
    private readonly deferred: Deferred,
    private readonly caches: Pick<BlockCache, 'slotLimit'>,
    private readonly clocks: Clocks,
    /** by stream slot: the latest stamp that the host has seen complete */
    private readonly seen: Float64Array,
    private readonly deterministic: boolean,
  ) {}

  /**
   * Places a mark on each stream that has frees which no mark covers yet. `isAsked` if a request needs completed work.
   */
  placeMarks(isAsked: boolean): void {
    const { clocks } = this
    const { awaited } = this.memory
    this.memory.noteMarks(isAsked)
    if (this.deterministic) return
    for (let slot = 0; slot < this.caches.slotLimit; slot++) {
      if (awaited[slot] > clocks.marked[slot] && clocks.isOpen(slot)) clocks.mark(slot)
    }
  }

  /** The slots of streams that blocks wait for. */
  awaitedSlots(): number[] {
    return Array.from({ length: this.caches.slotLimit }, (_, slot) => slot).filter(
      slot => this.memory.awaited[slot] > this.seen[slot],
    )
  }

  /** Whether blocks wait for work of other streams. A stream may use at once what it freed itself. */
  mayHelp(slot: number): boolean {
    const { awaited } = this.memory
    for (let other = 0; other < this.caches.slotLimit; other++) {
      if (other !== slot && awaited[other] > this.seen[other]) return true
    }
    return !this.deferred.empty
  }

  /** Asks the driver which work has completed and settles the blocks that waited for it; returns their number. */
  settle(): number {
    this.ask() // about all streams before any block is settled: an answer may tell of other streams, too
    return this.settleKnown()
  }

  /** Asks how far the streams have come that blocks wait for; false if the pool learns nothing new. */
  ask(): boolean {
    const { clocks, seen } = this
    const { awaited } = this.memory
    this.placeMarks(true)
    let learnt = false
    const end = this.deterministic ? 0 : this.caches.slotLimit
    for (let slot = 0; slot < end; slot++) if (awaited[slot] > seen[slot] && clocks.poll(slot)) learnt = true
    return this.deferred.pollPeers(false) || learnt
  }

  /** Settles the blocks that waited for work known to have completed, without the driver; returns their number. */
  settleKnown(): number {
    let settled = 0
    for (let slot = 0; slot < this.caches.slotLimit; slot++) settled += this.memory.settle(slot)
    if (this.deferred.empty) return settled
    for (const block of this.deferred.takeSettled()) {
      this.memory.giveToHeap(block.record, block.slot, block.stamp)
      settled++
    }
    return settled
  }
}
