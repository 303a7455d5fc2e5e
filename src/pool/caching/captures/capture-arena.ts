// The memory of one capture in one caching pool: blocks without any dependency that the pool gives it whole, each with a heap
// of its own inside. Addresses in a graph are fixed, so nothing of it goes back before the graph is closed; what is freed
// after the capture is not handed out again.
//
// While the capture lasts, freed memory is used again where the captured work that used it comes before: the algebra of the
// pool, over the clocks of the capture.

import { findAdmitted, startIn } from '../../../heap/cross-key.js'
import type { Admission } from '../../../heap/free-run.js'
import { keyOfSlot } from '../../../heap/key.js'
import { type RecordTable, State } from '../../../heap/records.js'
import { SegregatedFit } from '../../../heap/segregated-fit.js'
import type { Capture } from '../../../order/capture.js'
import { MOST_STREAMS } from '../../../order/clocks.js'
import type { Holding } from '../../../order/graph-memory.js'
import type { Stream } from '../../../order/stream.js'
import type { BlockCache } from '../block-cache.js'
import type { Use } from '../deferred.js'
import { FULL_CLASS } from '../stream-caches.js'

/** The key of blocks that are not used again as long as the graph lives. */
const NEVER = MOST_STREAMS + 1
/** A capture takes at least so much from its pool at a time, and as much as it has already, up to the most: 2 to 32 MiB. */
const LEAST_UNITS = 2 ** 13
const MOST_UNITS = 2 ** 17

interface Part {
  /** the pool's block */
  readonly record: number
  readonly heap: SegregatedFit
}

/** A block that was freed while captured work uses it, and what else it waits for. */
interface Kept {
  readonly record: number
  readonly uses: readonly Use[]
}

/** What an arena asks of the central heap behind its pool. */
export interface ArenaSource {
  /** a block without any dependency, taken; 0 when there is none to be had */
  takeIdle(units: number): number
  /** takes such a block back, or any that was kept, to be used again after all of `uses` */
  takeBack(record: number, uses: readonly Use[]): void
  /** a live block is used by work that is in `stream` now */
  announceUse(record: number, stream: Stream): void
}

export class CaptureArena implements Holding {
  lost = false
  /** live blocks of the pool, or of another graph, that captured work uses: they are kept once freed */
  readonly borrowed = new Set<number>()
  private readonly parts: Part[] = []
  /** by record of a block that is live */
  private readonly heapOf = new Map<number, SegregatedFit>()
  private readonly kept: Kept[] = []
  private readonly later: Use[] = []
  private readonly admission: Admission = new Float64Array(MOST_STREAMS + 1)
  private units = 0
  /** what must complete before the memory goes back; null while the graph may be launched */
  private uses: readonly Use[] | null = null

  constructor(
    readonly capture: Capture,
    private readonly records: RecordTable,
    private readonly caches: BlockCache,
    private readonly source: ArenaSource,
  ) {
    capture.holdings.add(this)
  }

  /** A block for a captured stream, as `CentralHeap.allocate` gives it; 0 when the pool has no memory for it. */
  allocate(units: number, alignUnits: number, slot: number): number {
    this.look(slot)
    let record = 0
    for (const part of this.parts) {
      record = this.take(part.heap, units, alignUnits, slot)
      if (record !== 0) break
    }
    if (record === 0) {
      const part = this.addPart(units + alignUnits - 1)
      if (part === null) return 0
      record = this.take(part.heap, units, alignUnits, slot)
    }
    this.records.setKey(record, keyOfSlot(slot))
    this.records.setSizeClass(record, FULL_CLASS)
    this.caches.meet(slot)
    this.caches.handOut(slot, record)
    return record
  }

  /** Whether a live block is of this arena. */
  owns(record: number): boolean {
    return this.heapOf.has(record)
  }

  /** A block of this arena is freed on a stream of its capture; with `uses` elsewhere it is not used again. */
  freeCaptured(record: number, slot: number, uses: readonly Use[]): void {
    if (uses.length > 0) this.free(record, uses)
    else this.giveToHeap(record, keyOfSlot(slot), this.capture.marked[slot] + 1)
  }

  /** A block of this arena is freed where work runs that is not captured. */
  free(record: number, uses: readonly Use[]): void {
    this.later.push(...uses)
    this.giveToHeap(record, NEVER, 1)
    if (this.uses !== null) this.giveBackIdle([...this.uses, ...this.later])
  }

  /** A block that is not of this arena was freed: it goes back once the graph was closed and `uses` have completed. */
  keep(record: number, uses: readonly Use[]): void {
    this.borrowed.delete(record)
    this.records.setState(record, State.captured)
    this.kept.push({ record, uses })
  }

  release(streams: readonly Stream[]): void {
    if (this.lost) return
    this.uses = streams.map(stream => {
      const [slot, stamp] = stream.covering
      return { clocks: stream.clocks, slot, stamp }
    })
    for (const record of this.borrowed) for (const stream of streams) this.source.announceUse(record, stream)
    this.borrowed.clear()
    this.giveBackIdle([...this.uses, ...this.later])
    for (const { record, uses } of this.kept.splice(0)) this.source.takeBack(record, [...uses, ...this.uses])
  }

  /** True when nothing is left to give back. */
  get empty(): boolean {
    return this.uses !== null && this.parts.length === 0
  }

  /** The heap inside a block of the pool; undefined for one that is kept whole. */
  heapIn(record: number): SegregatedFit | undefined {
    return this.parts.find(part => part.record === record)?.heap
  }

  check(): void {
    for (const { heap } of this.parts) heap.check()
  }

  private look(slot: number): void {
    const { admission } = this
    const row = slot * MOST_STREAMS
    for (let other = 0; other < MOST_STREAMS; other++) admission[keyOfSlot(other)] = this.capture.known[row + other]
    admission[0] = Infinity
    admission[keyOfSlot(slot)] = Infinity
  }

  private take(heap: SegregatedFit, units: number, alignUnits: number, slot: number): number {
    let record = heap.allocate(units, alignUnits, keyOfSlot(slot))
    if (record === 0) {
      const block = findAdmitted(heap, units, alignUnits, this.admission)
      if (block === 0) return 0
      record = heap.carve(block, startIn(heap, block, alignUnits), units)
    }
    if (this.records.isSpent(record)) record = heap.rehouse(record)
    this.heapOf.set(record, heap)
    return record
  }

  private addPart(units: number): Part | null {
    const wanted = Math.max(units, LEAST_UNITS, Math.min(MOST_UNITS, this.units))
    let record = this.source.takeIdle(wanted)
    if (record === 0 && wanted > units) record = this.source.takeIdle(units)
    if (record === 0) return null
    const { records } = this
    const size = records.unitsOf(record)
    records.setState(record, State.captured)
    const heap = new SegregatedFit(records)
    heap.addRange(records.rangeOf(record), records.offsetOf(record), size, 'free')
    this.units += size
    const part = { record, heap }
    this.parts.push(part)
    return part
  }

  private giveToHeap(record: number, key: number, stamp: number): void {
    this.heapOf.get(record)!.free(record, key, stamp)
    this.heapOf.delete(record)
  }

  private giveBackIdle(uses: readonly Use[]): void {
    for (const part of this.parts.filter(({ heap }) => heap.freeUnits === heap.totalUnits)) {
      const { heap, record } = part
      for (let key = 1; key < heap.keyLimit; key++) heap.settle(key, Infinity)
      heap.removeRange([...heap.firstRecords][0][1])
      this.parts.splice(this.parts.indexOf(part), 1)
      this.source.takeBack(record, uses)
    }
  }
}
