// The memory of one capture in one caching pool, in parts of its own (parts.ts). A graph's addresses are fixed, so no
// memory goes back before the graph is closed, and blocks that are freed after the capture are not handed out again.
// Captures of a group have the group's memory instead (group-arena.ts).
//
// During the capture a freed block is used again if the captured work that used it comes before. The rules are those
// of the pool, over the clocks of the capture.

import type { Admission } from '../../../heap/free-run.js'
import { keyOfSlot } from '../../../heap/key.js'
import { type RecordTable, State } from '../../../heap/records.js'
import type { SegregatedFit } from '../../../heap/segregated-fit.js'
import type { Capture } from '../../../order/capture.js'
import type { Holding } from '../../../order/holding.js'
import type { Stream } from '../../../order/stream.js'
import type { BlockCache } from '../block-cache.js'
import type { Use } from '../central/deferred.js'
import { FULL_CLASS } from '../stream-caches.js'
import { type IdleBlocks, Parts } from './parts.js'

/** A block that was freed while captured work uses it, and the other uses that it waits for. */
interface Kept {
  readonly record: number
  readonly uses: readonly Use[]
}

/** The calls that an arena makes on its pool's central heap. */
export interface ArenaSource extends IdleBlocks {
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
  /** the live blocks of this arena */
  protected readonly owned = new Set<number>()
  private readonly parts: Parts
  private readonly kept: Kept[] = []
  private readonly later: Use[] = []
  /** the uses that must complete before the memory goes back; null while the graph may be launched */
  protected uses: readonly Use[] | null = null

  constructor(
    readonly capture: Capture,
    protected readonly records: RecordTable,
    private readonly caches: BlockCache,
    private readonly source: ArenaSource,
  ) {
    this.parts = new Parts(records, source)
    capture.holdings.add(this)
  }

  /** A block for a captured stream, as `CentralHeap.allocate` returns it; 0 if the pool has no memory for it. */
  allocate(units: number, alignUnits: number, slot: number): number {
    const record = this.take(units, alignUnits, slot, this.admissionFor(slot))
    if (record === 0) return 0
    this.owned.add(record)
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
    return this.owned.has(record)
  }

  /** Frees a block of this arena on a stream of its capture. A block with `uses` elsewhere is not used again. */
  freeCaptured(record: number, slot: number, uses: readonly Use[]): void {
    if (uses.length > 0) this.free(record, uses)
    else this.freeAfter(record, keyOfSlot(slot), this.capture.marked[slot] + 1)
  }

  /** Frees a block of this arena outside of its capture. */
  free(record: number, uses: readonly Use[]): void {
    this.owned.delete(record)
    this.later.push(...uses)
    this.parts.spend(record)
    if (this.uses !== null) this.giveBackIdle([...this.uses, ...this.later])
  }

  /** A live block of this arena was freed, and stays for another graph. */
  noteUses(_uses: readonly Use[]): void {}

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
    return this.uses !== null && this.parts.empty
  }

  /** Units that are not in use, and which the pool does not have either. */
  get keptUnits(): number {
    return this.kept.reduce((sum, { record }) => sum + this.records.unitsOf(record), this.parts.idleUnits)
  }

  /** The heap inside a block of the pool; undefined for one that is kept whole. */
  heapIn(record: number): SegregatedFit | undefined {
    return this.parts.heapIn(record)
  }

  check(): void {
    this.parts.check()
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

  /** A taken block, outside all bins; 0 without memory. */
  protected take(units: number, alignUnits: number, slot: number, admission: Admission): number {
    return this.parts.take(units, alignUnits, keyOfSlot(slot), 0, admission)
  }

  /** Frees a block that the capture may use again after `stamp` of `key`. */
  protected freeAfter(record: number, key: number, stamp: number): void {
    this.owned.delete(record)
    this.parts.free(record, key, stamp)
  }

  private giveBackIdle(uses: readonly Use[]): void {
    for (const record of this.parts.takeEmpty()) this.source.takeBack(record, uses)
  }
}
