// Statistics and lists of a shared pool, over all of its threads. Nothing stops them meanwhile: each block is counted
// as it is found.

import { NO_THREAD, Phase, phaseOf, workerOf } from '../../heap/owner-word.js'
import { Double, Word } from '../../heap/records.js'
import { UNIT_BYTES } from '../../heap/size-classes.js'
import type { Clocks } from '../../order/clocks.js'
import { MOST_WORKERS } from '../../threads/thread-registry.js'
import type { LiveBlock } from '../caching/reserving-pool.js'
import type { PoolStats } from '../pool.js'
import { COUNT_LINE, Figure, type SharedState } from './shared-state.js'

/** Counters of a thread. */
export const enum Count {
  allocations,
  misses,
  /** of the memory of graph groups: live buffers and their bytes; the pool server counts */
  groupBuffers,
  groupBytes,
}

/** One thread that uses a pool, or that ended without closing it there. */
export interface PoolThread {
  /** the pool's number of this thread, for `reclaim` */
  readonly thread: number
  /** the number that `worker_threads` gave it; -1 for the pool server */
  readonly threadId: number
  /** false once the thread has ended */
  readonly alive: boolean
  /** buffers that it holds */
  readonly liveBuffers: number
  /** bytes of the blocks that it holds */
  readonly liveBytes: number
}

/** A live buffer of a shared pool, as `live()` lists it for people. */
export interface SharedLiveBlock extends LiveBlock {
  /** the pool's number of the thread that holds it; 0 while it is on its way between threads */
  readonly thread: number
}

const NOTHING = { liveBlocks: 0, liveUnits: 0, requestedBytes: 0, cachedUnits: 0 }

export class SharedReport {
  /** the most units that any call of `stats` found live, since the shared peak is noted elsewhere */
  private peakUnits = 0

  constructor(
    private readonly state: SharedState,
    private readonly clocks: Clocks,
  ) {}

  /** For a thread that has closed the pool there is no memory. */
  stats(isOpen: boolean): PoolStats {
    const { caches, memory, figures } = this.state
    const { liveBlocks, liveUnits, requestedBytes, cachedUnits } = isOpen ? this.sums() : NOTHING
    const allocations = this.sum(Count.allocations)
    this.peakUnits = Math.max(this.peakUnits, caches.peakUnits, liveUnits)
    return {
      liveBytes: liveUnits * UNIT_BYTES,
      peakLiveBytes: this.peakUnits * UNIT_BYTES,
      requestedBytes,
      reservedBytes: isOpen ? figures[Figure.reservedBytes] : 0,
      peakReservedBytes: figures[Figure.peakReservedBytes],
      cachedBytes: cachedUnits * UNIT_BYTES,
      pendingBytes: isOpen ? memory.pendingUnits * UNIT_BYTES + figures[Figure.deferredBytes] : 0,
      largestFreeBytes: isOpen ? memory.largestFreeUnits * UNIT_BYTES : 0,
      maxPoolBytes: figures[Figure.maxPoolBytes],
      liveBuffers: liveBlocks,
      allocations,
      frees: Math.max(0, allocations - liveBlocks), // a thread counts a buffer just after it has it
      cacheMisses: this.sum(Count.misses),
      growths: figures[Figure.growths],
      insertedWaits: figures[Figure.insertedWaits],
    }
  }

  /** What all threads hold, in graph groups too. */
  private sums(): typeof NOTHING {
    const { liveBlocks, liveUnits, requestedBytes, cachedUnits } = this.state.caches.sums()
    const bytes = this.sum(Count.groupBytes)
    return {
      liveBlocks: liveBlocks + this.sum(Count.groupBuffers),
      liveUnits: liveUnits + bytes / UNIT_BYTES,
      requestedBytes: requestedBytes + bytes,
      cachedUnits,
    }
  }

  private sum(count: Count): number {
    return this.state.counts.reduce((all, one, index) => (index % COUNT_LINE === count ? all + one : all), 0)
  }

  live(): SharedLiveBlock[] {
    const { records, registry, bases, labels } = this.state
    const { words, doubles } = records
    const blocks: SharedLiveBlock[] = []
    for (const record of records.taken()) {
      const base = record << 4
      const ownerWord = words[base | Word.owner]
      if (phaseOf(ownerWord) !== Phase.live) continue
      const worker = workerOf(ownerWord)
      blocks.push({
        ptr: bases[words[base | Word.range]] + words[base | Word.offset] * UNIT_BYTES,
        byteLength: doubles[(record << 3) | Double.requested],
        blockBytes: words[base | Word.units] * UNIT_BYTES,
        stream: this.handleOf(words[base | Word.key] - 1),
        label: labels.get(record, words[base] & ~1),
        thread: worker === NO_THREAD ? NO_THREAD : registry.nameOf(worker),
      })
    }
    return blocks
  }

  private handleOf(slot: number): number | null {
    return this.clocks.isOpen(slot) ? this.clocks.handles[slot] : null
  }

  threads(): PoolThread[] {
    const { registry, threadIds, figures, counts } = this.state
    const live = this.live()
    const threads: PoolThread[] = []
    for (let thread = 1; thread <= MOST_WORKERS; thread++) {
      const alive = registry.isAlive(thread) && !registry.hasDied(thread)
      if (!alive && !registry.isDead(thread)) continue
      const name = registry.nameOf(thread)
      const held = live.filter(block => block.thread === name)
      const line = thread * COUNT_LINE
      threads.push({
        thread: name,
        threadId: thread === figures[Figure.server] ? -1 : threadIds[thread],
        alive,
        liveBuffers: held.length + counts[line + Count.groupBuffers],
        liveBytes: held.reduce((sum, block) => sum + block.blockBytes, counts[line + Count.groupBytes]),
      })
    }
    return threads
  }
}
