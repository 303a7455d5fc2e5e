// The memory of one capture in one caching pool. The pool gives it whole blocks that depend on no work, and each of
// them gets a heap of its own inside. A graph's addresses are fixed, so no memory goes back before the graph is
// closed, and blocks that are freed after the capture are not handed out again.
//
// During the capture a freed block is used again if the captured work that used it comes before. The rules are those
// of the pool, over the clocks of the capture.

import { findAdmitted, startIn } from '../../../heap/cross-key.js'
import type { Admission } from '../../../heap/free-run.js'
import { keyOfSlot } from '../../../heap/key.js'
import { type RecordTable, State } from '../../../heap/records.js'
import { SegregatedFit } from '../../../heap/segregated-fit.js'
import type { Capture } from '../../../order/capture.js'
import type { Holding } from '../../../order/holding.js'
import type { Stream } from '../../../order/stream.js'
import type { BlockCache } from '../block-cache.js'
import type { Use } from '../central/deferred.js'
import { FULL_CLASS } from '../stream-caches.js'

/** A capture that needs memory takes as much as it already has, within these bounds: 2 and 32 MiB. */
const LEAST_UNITS = 2 ** 13
const MOST_UNITS = 2 ** 17

interface Part {
  /** the pool's block */
  readonly record: number
  readonly heap: SegregatedFit
  /** freed blocks of the heap that are not used again while the graph lives, and their units */
  readonly spent: number[]
  spentUnits: number
}

/** A block that was freed while captured work uses it, and the other uses that it waits for. */
interface Kept {
  readonly record: number
  readonly uses: readonly Use[]
}

/** The calls that an arena makes on its pool's central heap. */
export interface ArenaSource {
  /** takes a block that depends on no work; 0 if the pool cannot provide one */
  takeIdle(units: number): number
  /** takes such a block back, or a kept one, to be used again after all of `uses` */
  takeBack(record: number, uses: readonly Use[]): void
  /** work that is in `stream` now uses a live block */
  announceUse(record: number, stream: Stream): void
  /** whether the pool sleeps */
  readonly asleep: boolean
}

export class CaptureArena implements Holding {
  lost = false
  /** live blocks of the pool, or of another graph, that captured work uses; once freed they are kept */
  readonly borrowed = new Set<number>()
  private readonly parts: Part[] = []
  /** by record of a live block */
  private readonly partOf = new Map<number, Part>()
  private readonly kept: Kept[] = []
  private readonly later: Use[] = []
  private units = 0
  /** the uses that must complete before the memory goes back; null while the graph may be launched */
  private uses: readonly Use[] | null = null

  constructor(
    readonly capture: Capture,
    private readonly records: RecordTable,
    private readonly caches: BlockCache,
    private readonly source: ArenaSource,
  ) {
    capture.holdings.add(this)
  }

  /** A block for a captured stream, as `CentralHeap.allocate` returns it; 0 if the pool has no memory for it. */
  allocate(units: number, alignUnits: number, slot: number): number {
    const admission = this.admissionFor(slot)
    let record = 0
    for (const part of this.parts) {
      record = this.take(part, units, alignUnits, slot, admission)
      if (record !== 0) break
    }
    if (record === 0) {
      const part = this.addPart(units + alignUnits - 1)
      if (part === null) return 0
      record = this.take(part, units, alignUnits, slot, admission)
    }
    this.records.setKey(record, keyOfSlot(slot))
    this.records.setSizeClass(record, FULL_CLASS)
    this.caches.includeSlot(slot)
    this.caches.handOut(slot, record)
    return record
  }

  get asleep(): boolean {
    return this.source.asleep
  }

  /** Whether a live block is of this arena. */
  owns(record: number): boolean {
    return this.partOf.has(record)
  }

  /** Frees a block of this arena on a stream of its capture. A block with `uses` elsewhere is not used again. */
  freeCaptured(record: number, slot: number, uses: readonly Use[]): void {
    if (uses.length > 0) this.free(record, uses)
    else this.partWith(record).heap.free(record, keyOfSlot(slot), this.capture.marked[slot] + 1)
  }

  /** Frees a block of this arena outside of its capture. */
  free(record: number, uses: readonly Use[]): void {
    this.later.push(...uses)
    const part = this.partWith(record)
    this.records.setState(record, State.captured)
    this.records.setKey(record, 0)
    part.spent.push(record)
    part.spentUnits += this.records.unitsOf(record)
    if (this.uses !== null) this.giveBackIdle([...this.uses, ...this.later])
  }

  /** Keeps a freed block of another owner. It goes back once the graph is closed and `uses` have completed. */
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

  /** Whether all memory was given back. */
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

  /** By key: the latest stamp that comes before everything that a captured stream does from now on. */
  private admissionFor(slot: number): Admission {
    const { known, stride, slotLimit } = this.capture
    const row = slot * stride
    const admission = new Float64Array(slotLimit + 1)
    admission.set(known.subarray(row, row + slotLimit), keyOfSlot(0))
    admission[0] = Infinity
    admission[keyOfSlot(slot)] = Infinity
    return admission
  }

  private take(part: Part, units: number, alignUnits: number, slot: number, admission: Admission): number {
    const { heap } = part
    let record = heap.allocate(units, alignUnits, keyOfSlot(slot))
    if (record === 0) {
      const block = findAdmitted(heap, units, alignUnits, admission)
      if (block === 0) return 0
      record = heap.carve(block, startIn(heap, block, alignUnits), units)
    }
    if (this.records.isSpent(record)) record = heap.rehouse(record)
    this.partOf.set(record, part)
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
    const part = { record, heap, spent: [], spentUnits: 0 }
    this.parts.push(part)
    return part
  }

  /** The part of a live block that is about to be freed. */
  private partWith(record: number): Part {
    const part = this.partOf.get(record)!
    this.partOf.delete(record)
    return part
  }

  private giveBackIdle(uses: readonly Use[]): void {
    const isIdle = ({ heap, spentUnits }: Part) => heap.freeUnits + spentUnits === heap.totalUnits
    for (const part of this.parts.filter(isIdle)) {
      const { heap, record } = part
      for (const spent of part.spent) heap.free(spent, 0, 0)
      for (let key = 1; key < heap.keyLimit; key++) heap.settle(key, Infinity)
      heap.removeRange([...heap.firstRecords][0][1])
      this.parts.splice(this.parts.indexOf(part), 1)
      this.source.takeBack(record, uses)
    }
  }
}
