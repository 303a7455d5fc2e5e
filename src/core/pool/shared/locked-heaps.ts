// The heaps of a shared pool, as a thread uses them under the lock when its own cache has no block, or no room.

import { Word } from '../../heap/records.js'
import { classOf, UNIT_BYTES } from '../../heap/size-classes.js'
import type { Clocks } from '../../order/clocks.js'
import { SMALL_CLASSES } from '../backing/backing.js'
import { CrossStreamReuse } from '../caching/central/cross-stream.js'
import type { PoolConfig } from '../caching/options.js'
import type { SharedState } from './shared-state.js'
import type { ThreadCache } from './thread-cache.js'

export class LockedHeaps {
  private readonly crossStream: CrossStreamReuse
  /** the pool server is woken when less is free */
  private readonly readyBytes: number

  constructor(
    private readonly state: SharedState,
    private readonly cache: ThreadCache,
    clocks: Clocks,
    config: PoolConfig,
  ) {
    const { records, caches, seen } = state
    this.crossStream = new CrossStreamReuse({ records, caches, clocks, seen, config }, () => {})
    this.readyBytes = config.readyBytes
  }

  /** The record of a block that is this thread's and live, and that the stream of `slot` may use; 0 for none. */
  take(units: number, alignUnits: number, slot: number): number {
    const { state } = this
    this.cache.mend()
    state.acquire()
    const wasReady = this.isReady
    let record: number
    try {
      record = this.takeLocked(units, alignUnits, slot)
    } catch (error) {
      state.releaseBroken()
      throw error
    }
    state.release()
    if (wasReady && !this.isReady) state.channel.doorbell.ring()
    return record
  }

  private get isReady(): boolean {
    return this.readyBytes === 0 || this.state.memory.large.freeUnits * UNIT_BYTES >= this.readyBytes
  }

  private takeLocked(units: number, alignUnits: number, slot: number): number {
    const { state, crossStream, cache } = this
    const { memory, caches } = state
    const { words } = state.records
    const heap = memory.heapFor(units)
    cache.dropLost()
    cache.emptyQueue()
    if (!state.hasRecords) return 0
    let record = heap.allocate(units, alignUnits, slot + 1)
    // The pool server would take a hundred times as long for this.
    if (record === 0 && heap === memory.small && cache.breakLarger(units, slot, SMALL_CLASSES)) {
      record = heap.allocate(units, alignUnits, slot + 1)
    }
    if (record === 0) {
      record = crossStream.takeFree({ heap, units, alignUnits, slot })
    }
    if (record === 0) return 0
    caches.handOut(slot, record)
    words[(record << 4) | Word.key] = slot + 1
    words[(record << 4) | Word.sizeClass] = classOf(words[(record << 4) | Word.units])
    return state.handOver(record, state.thread)
  }

  /** Frees a block of this thread, which other work may use after stamp `stamp` of a stream slot. */
  giveBack(record: number, slot: number, stamp: number): void {
    const { state } = this
    state.locked(() => {
      this.cache.dropLost()
      state.caches.handBack(record)
      state.memory.giveToHeap(record, slot, stamp)
    })
    if (state.memory.wantsMarks) state.channel.doorbell.ring() // to place marks
  }
}
