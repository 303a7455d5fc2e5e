// The uses of a pool's memory, from its counters and from the blocks of a snapshot. `top` and the live page draw them.

import type { PoolSnapshot, SnapshotBlock } from '../core/pool/caching/snapshot.js'
import type { ServedStats } from './process-stats.js'

/** The uses of memory that a snapshot tells apart. */
export type Use = 'live' | 'cached' | 'pending' | 'free'

/**
 * What a block is used for; null for addresses without memory, and for memory that is listed elsewhere. A free block
 * with a stream waits for work of that stream, so it is pending.
 */
export function useOf({ state, stream }: Pick<SnapshotBlock, 'state' | 'stream'>): Use | null {
  if (state === 'captured') return 'live'
  if (state === 'unused') return 'free'
  if (state === 'free') return stream === null ? 'free' : 'pending'
  return state === 'live' || state === 'cached' || state === 'pending' ? state : null
}

/** The parts of the reserved bytes of a pool. */
export interface MemoryParts {
  readonly requested: number
  /** handed out beyond the requested bytes */
  readonly rounding: number
  readonly cached: number
  readonly pending: number
  readonly free: number
}

export function partsOf({ stats }: Pick<ServedStats, 'stats'>): MemoryParts {
  const { requestedBytes, liveBytes, cachedBytes, reservedBytes } = stats
  const freed = Math.max(0, reservedBytes - liveBytes - cachedBytes)
  const pending = Math.min(stats.pendingBytes, freed)
  const rounding = Math.max(0, liveBytes - requestedBytes)
  return { requested: requestedBytes, rounding, cached: cachedBytes, pending, free: freed - pending }
}

/** Bytes of the blocks of a stream. */
export interface StreamBytes {
  /** the number of the stream */
  readonly stream: number
  readonly live: number
  readonly cached: number
  readonly pending: number
}

/** Numbers the streams of a process 0, 1, 2… as they are seen, since handles are hard to tell apart. */
export class StreamNumbers {
  private readonly numbers = new Map<number, number>()

  /** The bytes of each stream of a pool, by their numbers. */
  bytesIn({ ranges }: PoolSnapshot): StreamBytes[] {
    const sums = new Map<number, { live: number; cached: number; pending: number }>()
    for (const block of ranges.flatMap(({ blocks }) => blocks)) {
      const use = useOf(block)
      if (block.stream === null || use === null || use === 'free') continue
      const sum = sums.get(block.stream) ?? { live: 0, cached: 0, pending: 0 }
      sum[use] += block.bytes
      sums.set(block.stream, sum)
    }
    const byHandle = [...sums].sort(([a], [b]) => a - b)
    const rows = byHandle.map(([handle, sum]) => ({ stream: this.numberOf(handle), ...sum }))
    return rows.sort((a, b) => a.stream - b.stream)
  }

  private numberOf(handle: number): number {
    const number = this.numbers.get(handle) ?? this.numbers.size
    this.numbers.set(handle, number)
    return number
  }
}
