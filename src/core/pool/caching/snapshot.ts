import { slotOfKey } from '../../heap/key.js'
import { blockOfPart } from '../../heap/lent-parts.js'
import { type RecordTable, State } from '../../heap/records.js'
import { UNIT_BYTES } from '../../heap/size-classes.js'
import type { Clocks } from '../../order/clocks.js'
import { SMALL_RANGE } from '../backing/backing.js'
import type { PoolStats } from '../pool.js'
import type { CentralHeap } from './central/central-heap.js'
import type { StreamCaches } from './stream-caches.js'

const STATE_NAMES = {
  [State.unused]: 'unused',
  [State.absent]: 'absent',
  [State.free]: 'free',
  [State.cached]: 'cached', // of a live record; a lent record is a part
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
   * graph; `part`: memory of a block that is listed in another range, where it has its address
   */
  readonly state: (typeof STATE_NAMES)[State] | 'part'
  /** bytes that the user asked for; null unless the block is live */
  readonly requestedBytes: number | null
  /** the handle of a live or cached block's stream, or of the stream that a free block waits for; null for none */
  readonly stream: number | null
}

/** The state of a pool as plain JSON; `version` changes with the shape. */
export interface PoolSnapshot {
  /** version of this format */
  readonly version: 2
  /** where the memory comes from */
  readonly backing: string
  /** the counters of the pool */
  readonly stats: PoolStats
  /** the exact size of the largest free block */
  readonly largestFreeBytes: number
  /** each range of addresses, with its blocks in their order; of views only the live blocks */
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
  const { records, central } = pool
  const { small, large, backing } = central
  const { hasSlabs } = central.memory
  const inViews = new Set<number>()
  const streamOf = (slot: number) => pool.clocks.streams[slot]?.handle ?? null
  let largestFreeBytes = 0
  const blockOf = (record: number, base: number, captured: boolean): SnapshotBlock => {
    const state = pool.caches.state(record)
    const key = pool.caches.key(record)
    const bytes = records.unitsOf(record) * UNIT_BYTES
    if (state === State.free && !captured) largestFreeBytes = Math.max(largestFreeBytes, bytes)
    return {
      ptr: base + records.offsetOf(record) * UNIT_BYTES,
      bytes,
      state: state === State.free && captured ? 'captured' : STATE_NAMES[state],
      requestedBytes: pool.caches.isLive(record) ? pool.caches.blockOf(record).requestedBytes : null,
      stream: key === 0 || state === State.absent ? null : streamOf(slotOfKey(key)),
    }
  }
  const blocksOf = (first: number, base: number, captured: boolean): SnapshotBlock[] => {
    const blocks: SnapshotBlock[] = []
    for (let record = first; record !== 0; record = records.nextOf(record)) {
      const start = records.offsetOf(record)
      if (records.state(record) === State.lent) {
        const block = blockOfPart(records, record)
        if (block === 0) {
          const inside = small.recordAt(SMALL_RANGE, start)
          blocks.push(...smallBlocks(inside, start, start + records.unitsOf(record), base))
          continue
        }
        inViews.add(block)
        const bytes = records.unitsOf(record) * UNIT_BYTES
        blocks.push({ ptr: base + start * UNIT_BYTES, bytes, state: 'part', requestedBytes: null, stream: null })
        continue
      }
      blocks.push(...blocksIn(record, base, captured))
    }
    return blocks
  }
  /** The block of a record, or those in the memory of a graph. */
  const blocksIn = (record: number, base: number, captured: boolean): SnapshotBlock[] => {
    const inside = records.state(record) === State.captured ? central.arenas.heapIn(record) : undefined
    if (inside === undefined) return [blockOf(record, base, captured)]
    return [...inside.firstRecords].flatMap(([, first]) => blocksOf(first, base, true))
  }
  /** Small blocks that begin in a slab; a free one may go on in the next slab. */
  const smallBlocks = (first: number, start: number, end: number, base: number): SnapshotBlock[] => {
    const blocks: SnapshotBlock[] = []
    for (let record = first; record !== 0 && records.offsetOf(record) < end; record = records.nextOf(record)) {
      if (records.offsetOf(record) >= start) blocks.push(blockOf(record, base, false))
    }
    return blocks
  }
  const ranges = (hasSlabs ? [large] : [small, large]).flatMap(heap =>
    [...heap.firstRecords].map(([range, first]) => {
      const base = backing.bases[range]
      return { base, blocks: blocksOf(first, base, false) }
    }),
  )
  for (const block of inViews) {
    const base = backing.bases[records.rangeOf(block)]
    ranges.push({ base, blocks: blocksIn(block, base, false) })
  }
  return { version: 2, backing: backing.kind, stats: pool.stats(), largestFreeBytes, ranges }
}
