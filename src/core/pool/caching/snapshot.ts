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
  const walk = new Walk(pool)
  const ranges = walk.ranges()
  const { largestFreeBytes } = walk
  return { version: 2, backing: pool.central.backing.kind, stats: pool.stats(), largestFreeBytes, ranges }
}

/** One walk through the blocks of a pool. */
class Walk {
  /** of the blocks so far, apart from those inside the memory of graphs */
  largestFreeBytes = 0
  /** the blocks in views, of which parts were found */
  private readonly inViews = new Set<number>()

  constructor(private readonly pool: SnapshotSource) {}

  ranges(): PoolSnapshot['ranges'] {
    const { backing, small, large, memory } = this.pool.central
    const ranges: { base: number; blocks: SnapshotBlock[] }[] = []
    for (const heap of memory.hasSlabs ? [large] : [small, large]) {
      for (const [range, first] of heap.firstRecords) {
        const base = backing.bases[range]
        ranges.push({ base, blocks: this.chain(first, base, false) })
      }
    }
    for (const [range, first] of this.pool.central.arenas.groups.ranges()) {
      const base = backing.bases[range]
      ranges.push({ base, blocks: this.chain(first, base, true) })
    }
    for (const block of this.inViews) {
      const base = backing.bases[this.pool.records.rangeOf(block)]
      ranges.push({ base, blocks: this.within(block, base, false) })
    }
    return ranges
  }

  /** The blocks of a range, or of the memory of a graph, from the first one on. */
  private chain(first: number, base: number, captured: boolean): SnapshotBlock[] {
    const { records } = this.pool
    const blocks: SnapshotBlock[] = []
    for (let record = first; record !== 0; record = records.nextOf(record)) {
      const isLent = records.state(record) === State.lent
      blocks.push(...(isLent ? this.lent(record, base) : this.within(record, base, captured)))
    }
    return blocks
  }

  /** A part of a block in a view; of a slab the small blocks that begin in it. */
  private lent(record: number, base: number): SnapshotBlock[] {
    const { records, central } = this.pool
    const block = blockOfPart(records, record)
    const start = records.offsetOf(record)
    const units = records.unitsOf(record)
    if (block !== 0) {
      this.inViews.add(block)
      const place = { ptr: base + start * UNIT_BYTES, bytes: units * UNIT_BYTES }
      return [{ ...place, state: 'part', requestedBytes: null, stream: null }]
    }
    const blocks: SnapshotBlock[] = []
    let inside = central.small.recordAt(SMALL_RANGE, start) // a free block may begin before the slab
    for (; inside !== 0 && records.offsetOf(inside) < start + units; inside = records.nextOf(inside)) {
      if (records.offsetOf(inside) >= start) blocks.push(this.block(inside, base, false))
    }
    return blocks
  }

  /** The block of a record, or those in the memory of a graph. */
  private within(record: number, base: number, captured: boolean): SnapshotBlock[] {
    const { records, central } = this.pool
    const inside = records.state(record) === State.captured ? central.arenas.heapIn(record) : undefined
    if (inside === undefined) return [this.block(record, base, captured)]
    return [...inside.firstRecords].flatMap(([, first]) => this.chain(first, base, true))
  }

  private block(record: number, base: number, captured: boolean): SnapshotBlock {
    const { records, caches, clocks } = this.pool
    const state = caches.state(record)
    const key = caches.key(record)
    const bytes = records.unitsOf(record) * UNIT_BYTES
    if (state === State.free && !captured) this.largestFreeBytes = Math.max(this.largestFreeBytes, bytes)
    return {
      ptr: base + records.offsetOf(record) * UNIT_BYTES,
      bytes,
      state: state === State.free && captured ? 'captured' : STATE_NAMES[state],
      requestedBytes: caches.isLive(record) ? caches.blockOf(record).requestedBytes : null,
      stream: key === 0 || state === State.absent ? null : (clocks.streams[slotOfKey(key)]?.handle ?? null),
    }
  }
}
