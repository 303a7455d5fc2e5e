import { slotOfKey } from '../../heap/key.js'
import { type RecordTable, State } from '../../heap/records.js'
import { UNIT_BYTES } from '../../heap/size-classes.js'
import type { Clocks } from '../../order/clocks.js'
import type { PoolStats } from '../pool.js'
import type { CentralHeap } from './central-heap.js'
import type { StreamCaches } from './stream-caches.js'

const STATE_NAMES = {
  [State.unused]: 'unused',
  [State.absent]: 'absent',
  [State.free]: 'free',
  [State.cached]: 'cached',
  [State.deferred]: 'pending',
  [State.live]: 'live',
  [State.shared]: 'live',
  [State.captured]: 'captured',
} as const

/** One block of a pool, live, cached or free. */
export interface SnapshotBlock {
  /** its address */
  readonly ptr: number
  /** its size */
  readonly bytes: number
  /**
   * `absent`: address space without memory; `pending`: freed but still used on another stream; `captured`: kept for a
   * graph
   */
  readonly state: (typeof STATE_NAMES)[State]
  /** bytes that the user asked for; null unless the block is live */
  readonly requestedBytes: number | null
  /** the handle of a live or cached block's stream, or of the stream that a free block waits for; null for none */
  readonly stream: number | null
}

/** The state of a pool as plain JSON; `version` changes with the shape. */
export interface PoolSnapshot {
  /** version of this format */
  readonly version: 1
  /** where the memory comes from */
  readonly backing: string
  /** the counters of the pool */
  readonly stats: PoolStats
  /** the exact size of the largest free block */
  readonly largestFreeBytes: number
  /** each range of addresses, with its blocks in their order */
  readonly ranges: readonly { readonly base: number; readonly blocks: readonly SnapshotBlock[] }[]
}

/** The parts of a pool that a snapshot shows. */
interface SnapshotSource {
  readonly records: RecordTable
  readonly caches: StreamCaches
  readonly central: CentralHeap
  readonly clocks: Clocks
  stats(): PoolStats
}

export function snapshotOf(pool: SnapshotSource): PoolSnapshot {
  const { records } = pool
  const streamOf = (slot: number) => pool.clocks.streams[slot]?.handle ?? null
  let largestFreeBytes = 0
  const blocksOf = (first: number, base: number, captured: boolean): SnapshotBlock[] => {
    const blocks: SnapshotBlock[] = []
    for (let record = first; record !== 0; record = records.nextOf(record)) {
      const state = pool.caches.state(record)
      const inside = state === State.captured ? pool.central.arenas.heapIn(record) : undefined
      if (inside !== undefined) {
        for (const [, start] of inside.firstRecords) blocks.push(...blocksOf(start, base, true))
        continue
      }
      const key = pool.caches.key(record)
      const bytes = records.unitsOf(record) * UNIT_BYTES
      if (state === State.free && !captured) largestFreeBytes = Math.max(largestFreeBytes, bytes)
      blocks.push({
        ptr: base + records.offsetOf(record) * UNIT_BYTES,
        bytes,
        state: state === State.free && captured ? 'captured' : STATE_NAMES[state],
        requestedBytes: pool.caches.isLive(record) ? pool.caches.blockOf(record).requestedBytes : null,
        stream: key === 0 || state === State.absent ? null : streamOf(slotOfKey(key)),
      })
    }
    return blocks
  }
  const ranges = [pool.central.small, pool.central.large].flatMap(heap =>
    [...heap.firstRecords].map(([range, first]) => {
      const base = pool.central.backing.bases[range]
      return { base, blocks: blocksOf(first, base, false) }
    }),
  )
  return { version: 1, backing: pool.central.backing.kind, stats: pool.stats(), largestFreeBytes, ranges }
}
