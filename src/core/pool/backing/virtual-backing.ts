// Memory as pieces that are mapped at addresses which the pool has reserved. Pieces never move. A free block that is
// too long for any place is put together of several: the pieces under them are mapped once more, one behind another,
// in a view (views.ts). docs/internals/decisions.md#0019-pieces-and-views has the reasons.
//
// All memory has one address in the home range, and the heap for large blocks knows there what is free. The heap for
// small blocks has a range of the same addresses, which is a hole except for its slabs.
//
// The file is long because growing, stitching and giving back take memory out of the same heap.

import { isDriverError } from '../../base/thrown.js'
import { CU_MEM_ACCESS_FLAGS_PROT_NONE } from '../../driver/constants.js'
import type { Context } from '../../driver/context.js'
import { blocksOf } from '../../heap/cross-key.js'
import { type Admission, type FreeRun, HOLES_ONLY } from '../../heap/free-run.js'
import { joinParts } from '../../heap/lent-parts.js'
import { State } from '../../heap/records.js'
import type { Extent, SegregatedFit } from '../../heap/segregated-fit.js'
import { MAX_UNITS, UNIT_BYTES } from '../../heap/size-classes.js'
import type { Clocks } from '../../order/clocks.js'
import { growthStep, policy } from '../policy.js'
import {
  type Backing,
  FIRST_VIEW_RANGE,
  type GrowthLimits,
  type Heaps,
  HOME_RANGE,
  isOutOfMemory,
  type MappedUses,
  mostReservedBytes,
  SMALL_RANGE,
  SMALL_UNITS,
} from './backing.js'
import { MappedAccess } from './mapped-access.js'
import { checkPieces } from './pieces/check-pieces.js'
import { FreeEnds } from './pieces/free-ends.js'
import { HomeRange } from './pieces/home-range.js'
import { findIdlePiece } from './pieces/idle-piece.js'
import { leastPieceUnits, type Piece } from './pieces/piece.js'
import type { SpareHandles } from './pieces/spare-handles.js'
import { planStitch, type StitchPlan } from './pieces/stitch-plan.js'
import { type Part, partsIn, placeIn, type Stretch, stretchOf, unitsOf } from './pieces/stretch.js'
import { ViewAddresses } from './pieces/view-addresses.js'
import { type View, Views } from './pieces/views.js'
import { type PoolSegment, SegmentWatch } from './segment-watch.js'
import { SideRanges } from './side-ranges.js'

/** Addresses of the home range, as a multiple of the device's memory. */
const RESERVATION_FACTOR = 4
/** Admits the free blocks that depend on no work. */
const SETTLED: Admission = Float64Array.of(Infinity)

/** Free memory that was taken out of the heap, and how it was before. */
interface Taken {
  readonly record: number
  readonly extents: readonly Extent[]
}

export class VirtualBacking implements Backing {
  readonly mostPieces = 0
  readonly kind = 'virtual'
  /** whether a sleep or a wake copies the memory now */
  isCopied: () => boolean = () => false
  readonly bases: number[]
  maxPoolBytes: number
  /** bytes of a granule, the least piece */
  readonly granuleBytes: number
  /** blocks that were put together of several places, each in a view of its own */
  stitched = 0
  readonly watch = new SegmentWatch()
  private readonly context: Context
  private readonly granuleUnits: number
  private readonly heap: SegregatedFit
  private readonly uses: MappedUses
  readonly access: MappedAccess
  private readonly home: HomeRange
  private readonly views: Views
  private readonly freeEnds: FreeEnds
  /** memory of the pool that lies elsewhere */
  readonly sides: SideRanges
  /** the most that the pool could reserve on the device when the device was asked last */
  private mostOfDevice = Infinity
  /** the reserved bytes then */
  private askedAtBytes = 0

  constructor(
    clocks: Clocks,
    heaps: Heaps,
    private readonly limits: GrowthLimits,
    /** keeps what other programs take of the device from deciding anything */
    private readonly deterministic: boolean,
  ) {
    const { context } = clocks
    this.context = context
    this.heap = heaps.large
    this.freeEnds = new FreeEnds(heaps.large, HOME_RANGE, heaps.isShared)
    this.access = new MappedAccess(context, (device, flags) => this.applyAccess(device, flags))
    const driver = context.activate()
    this.granuleBytes = driver.cuMemGetAllocationGranularity(context.device)
    this.granuleUnits = this.granuleBytes / UNIT_BYTES
    const deviceBytes = driver.cuDeviceTotalMem(context.device)
    this.maxPoolBytes = mostReservedBytes(limits.maxPoolBytes, this.granuleBytes, deviceBytes)
    const granules = granulesOfRange(deviceBytes, this.granuleBytes)
    const units = granules * this.granuleUnits
    this.uses = heaps.mappedUses(granules, this.granuleUnits)
    const addresses = new ViewAddresses(context, units * UNIT_BYTES, this.granuleBytes)
    this.views = new Views(context, this.access, this.uses.views, addresses, this.watch)
    heaps.small.addRange(SMALL_RANGE, 0, units, 'absent')
    heaps.large.addRange(HOME_RANGE, 0, units, 'absent')
    this.home = new HomeRange(context, this.access, units * UNIT_BYTES, this.granuleBytes, this.watch)
    this.bases = [this.home.base, this.home.base]
    const { access, bases, home, views, watch } = this
    const asked = { newBytes: () => this.newBytes(Infinity), isCopied: () => this.isCopied() }
    this.sides = new SideRanges(context, this.granuleBytes, { access, bases, home, views, watch, ...asked })
    this.askDevice()
  }

  get reservedBytes(): number {
    return this.home.reservedBytes + this.home.besideBytes
  }

  get baseChanges(): number {
    return this.stitched
  }

  get peakReservedBytes(): number {
    return this.home.peakReservedBytes
  }

  set peakReservedBytes(bytes: number) {
    this.home.peakReservedBytes = bytes
  }

  grow(
    heap: SegregatedFit,
    units: number,
    alignUnits: number,
    admission: Admission,
    mostBytes: number,
    leastBytes = 0,
  ): number {
    // The driver is not called between the search and the take: then other threads may change the heap.
    const leftBytes = this.newBytes(Infinity)
    const newBytes = Math.min(leftBytes, mostBytes - this.reservedBytes)
    if (newBytes < this.granuleBytes) return 0
    const run = this.placeFor(heap, units, alignUnits, admission)
    if (run === null || run.absentUnits * UNIT_BYTES > newBytes) return 0
    const longer = this.lengthened(run, Math.min(leastBytes, this.roomBytes, leftBytes))
    const taken = this.takeRun(longer)
    // The device may have less than the pool knows, and still enough for the block.
    if (this.createUnder(taken) === null) {
      return longer === run ? 0 : this.grow(heap, units, alignUnits, admission, mostBytes)
    }
    const record = heap.keep(taken.record, run.start, units)
    const used = taken.extents.find(({ absent, key }) => !absent && key !== 0)
    heap.records.setDependency(record, used?.key ?? 0, used?.stamp ?? 0)
    return record
  }

  get growthStepBytes(): number {
    // Memory above the release threshold would go back at once.
    const { reservedBytes } = this
    const roomBytes = Math.min(this.roomBytes, this.limits.releaseThresholdBytes - reservedBytes)
    return growthStep(roomBytes, reservedBytes)
  }

  takeInView(units: number, alignUnits: number, admission: Admission): number {
    if (this.views.mappings === 0) return 0
    this.findFreeEnds(admission)
    const stretch = this.views.shortestStretch(units + alignUnits - 1)
    return stretch === null ? 0 : this.take(stretch.view, stretch, units, alignUnits)
  }

  stitch(units: number, alignUnits: number, admission: Admission, mostBytes: number): number {
    const plan = this.planWithRoom(units, alignUnits, admission, mostBytes)
    if (plan === null || this.growsAsWell(plan, units, alignUnits, admission)) return 0
    const start = placeOf(plan, units, alignUnits)
    const taken = this.takeParts(plan.pieces, start, units)
    try {
      const end = unitsOf(plan.pieces)
      const created = this.addPart(taken, Math.max(start - end, 0), start + units - end)
      if (created === null) return this.giveBack(taken)
      const pieces = [...plan.pieces, ...created]
      const view = this.views.map(pieces)
      this.bases[FIRST_VIEW_RANGE + view.number] = view.base
      this.stitched++
      return this.join(view, taken, start, units)
    } catch (error) {
      this.giveBack(taken)
      if (isOutOfMemory(error)) return 0
      throw error
    }
  }

  get isCrowded(): boolean {
    return this.views.isCrowded(this.home.pieces.length)
  }

  stitchedBlocks(units: number, alignUnits: number, admission: Admission, mostBytes: number): readonly number[] {
    const newBytes = this.newBytes(mostBytes)
    const plan = this.plan(units + alignUnits - 1, this.findFreeEnds(admission), newBytes)
    if (plan === null) return []
    const start = placeOf(plan, units, alignUnits)
    return partsIn(plan.pieces, start, units).flatMap(part => blocksOf(this.heap, this.runOf(part)))
  }

  couldGrow(
    heap: SegregatedFit,
    units: number,
    alignUnits: number,
    admission: Admission,
    _settled: Admission,
    newBytes: number,
  ): boolean {
    // A small block needs a slab.
    const roomUnits = Math.max(units + alignUnits - 1, SMALL_UNITS)
    const run = this.heap.findRun(roomUnits, admission, this.granuleUnits)
    if (run !== null && run.absentUnits * UNIT_BYTES <= newBytes) return true
    if (heap !== this.heap) return false
    const freeUnits = this.findFreeEnds(admission)
    return this.views.shortestStretch(roomUnits) !== null || this.plan(roomUnits, freeUnits, newBytes) !== null
  }

  trim(keepBytes: number): void {
    if (this.isCopied()) return // cuMemUnmap would not wait for the copies
    this.home.releaseUnused()
    this.releaseIdle(() => this.reservedBytes > keepBytes)
  }

  /**
   * Gives all memory back to the device, or to `spares`, and keeps the addresses of blocks. No work may use it. Can be
   * repeated after a refusal.
   */
  suspend(spares: SpareHandles | null): void {
    this.views.suspend()
    this.sides.suspend()
    this.home.suspend(spares)
  }

  /** bytes that `createAgain` takes from the device */
  get suspendedBytes(): number {
    return this.home.suspendedBytes + this.sides.suspendedBytes
  }

  /** While suspended: forgets the pieces that no block lies on. */
  forgetIdle(): void {
    this.releaseIdle(() => true)
  }

  /**
   * After `suspend`: takes memory of `spares`, or of the device, mapped nowhere yet but for `sides`. Throws the
   * driver's error; the pool has no more memory then.
   */
  createAgain(spares: SpareHandles | null): void {
    this.home.createAgain(spares)
    try {
      this.sides.growAgain(spares)
    } catch (error) {
      this.suspendAgain(spares)
      throw error
    }
  }

  /** Undoes half a wake. What the driver does not take back goes with the next `suspend`. */
  private suspendAgain(spares: SpareHandles | null): void {
    try {
      this.suspend(spares)
    } catch (error) {
      if (!isDriverError(error)) throw error
    }
  }

  /** Maps the memory at its addresses, and tells after each step which addresses can be used. */
  *mapAgain(): Generator<{ readonly ptr: number; readonly bytes: number }> {
    yield* this.sides.mapped()
    yield* this.home.mapAgain()
    yield* this.views.mapAgain()
  }

  private releaseIdle(goesOn: () => boolean): void {
    while (goesOn()) {
      this.findFreeEnds(SETTLED)
      const idle = findIdlePiece(this.home.pieces, this.heap, this.uses.granules, this.granuleUnits, piece =>
        this.views.of(piece).every(view => this.views.isIdle(view)),
      )
      if (idle === null) return
      this.release(idle.piece, idle.record)
    }
  }

  segments(): PoolSegment[] {
    const homes = this.home.pieces.map(piece => ({ ptr: this.home.addressOf(piece), bytes: piece.bytes }))
    const views = [...this.views].filter(view => view.isReady).map(({ base, bytes }) => ({ ptr: base, bytes }))
    return [...homes, ...views, ...this.sides.segments()]
  }

  rangesAt(ptr: number): readonly number[] {
    if (this.home.contains(ptr)) return [SMALL_RANGE, HOME_RANGE]
    const number = this.sides.numberAt(ptr)
    if (number !== null) return [number]
    const view = this.views.at(ptr)
    return view === null ? [] : [FIRST_VIEW_RANGE + view.number]
  }

  close(): void {
    this.views.close()
    this.sides.close()
    this.home.close()
  }

  check(): void {
    checkPieces(this.home, this.views, this.heap, this.uses.views)
    this.sides.check()
  }

  /** A plan for a new view, which needs no other view to be unmapped any more; null for none. */
  private planWithRoom(units: number, alignUnits: number, admission: Admission, mostBytes: number): StitchPlan | null {
    const newBytes = this.newBytes(mostBytes)
    for (const isLast of [false, true]) {
      const plan = this.plan(units + alignUnits - 1, this.findFreeEnds(admission), newBytes)
      const mappings = plan === null ? 0 : plan.pieces.length + Math.ceil(plan.newUnits / this.granuleUnits)
      if (plan === null || this.views.hasRoom(this.home.pieces.length, mappings)) return plan
      if (isLast || this.isCopied()) break
      this.findFreeEnds(SETTLED)
      this.views.makeRoom(this.home.pieces.length, mappings) // other threads may change the heap meanwhile
    }
    return null
  }

  /**
   * After `findFreeEnds`, which has found `freeUnits`: a plan for a new view of this length, whether or not there is
   * room for the view; null for none.
   */
  private plan(units: number, freeUnits: number, newBytes: number): StitchPlan | null {
    const mostNewUnits = this.granulesIn(newBytes)
    if (freeUnits + mostNewUnits < units) return null
    return planStitch(this.home.pieces, units, mostNewUnits)
  }

  /** Whether new memory right behind the only end of a plan makes a view needless. */
  private growsAsWell(plan: StitchPlan, units: number, alignUnits: number, admission: Admission): boolean {
    if (plan.newUnits === 0 || plan.pieces.length > 1) return false
    const run = this.runFor(this.heap, units, alignUnits, admission)
    return run !== null && run.absentUnits < plan.newUnits + this.granuleUnits
  }

  private findFreeEnds(admission: Admission): number {
    return this.freeEnds.find(this.home.pieces, admission)
  }

  /** Takes a block that lies in a view. */
  private take(view: View, stretch: Stretch, units: number, alignUnits: number): number {
    const start = placeIn(stretch, view.pieces, units, alignUnits)
    return this.join(view, this.takeParts(view.pieces, start, units), start, units)
  }

  /** Takes the free memory under `units` from `start`, where `pieces` lie one behind another. */
  private takeParts(pieces: readonly Piece[], start: number, units: number): Taken[] {
    // From the highest address down: a block keeps its record where its lower part stays.
    const order = partsIn(pieces, start, units).map((part, index) => ({ part, index }))
    const taken: Taken[] = []
    for (const { part, index } of order.sort((a, b) => b.part.start - a.part.start)) {
      taken[index] = this.takeRun(this.runOf(part))
    }
    return taken
  }

  private runOf({ start, units, near }: Part): FreeRun {
    const { records } = this.heap
    let record = near
    while (records.offsetOf(record) + records.unitsOf(record) <= start) record = records.nextOf(record)
    return { range: HOME_RANGE, start, units, absentUnits: 0, record }
  }

  /** Takes a run out of the heap. Other threads do not touch it then, also if they repair the heap. */
  private takeRun(run: FreeRun): Taken {
    const extents = this.heap.extentsOf(run, this.granuleUnits)
    const record = this.heap.takeRun(run, this.granuleUnits)
    this.heap.records.claim(record)
    return { record, extents }
  }

  /** Makes one block of the parts that were taken for it. */
  private join(view: View, taken: readonly Taken[], start: number, units: number): number {
    const parts = taken.map(({ record }) => record)
    const block = joinParts(this.heap.records, parts, { range: FIRST_VIEW_RANGE + view.number, start, units })
    this.views.noteBlock(view)
    return block
  }

  /** Bytes of new memory that the pool may take. */
  private newBytes(mostBytes: number): number {
    const { leaveFreeBytes } = this.limits
    this.home.tryReleaseUnused() // their bytes are reserved
    const most = Math.min(mostBytes, this.maxPoolBytes) - this.reservedBytes
    if (leaveFreeBytes === 0) return most
    return Math.min(most, this.context.activate().cuMemGetInfo().freeBytes - leaveFreeBytes)
  }

  /** Bytes that limits and device leave. */
  private get roomBytes(): number {
    return Math.max(0, Math.min(this.maxPoolBytes, this.mostOfDevice) - this.reservedBytes)
  }

  /** Asks what the device has left. It takes some 10 us, and 8 ms on some hosts. */
  private askDevice(): void {
    if (this.deterministic) return
    try {
      const { freeBytes } = this.context.activate().cuMemGetInfo()
      this.mostOfDevice = this.reservedBytes + freeBytes - this.limits.leaveFreeBytes
      this.askedAtBytes = this.reservedBytes
    } catch (error) {
      if (!isDriverError(error)) throw error // the last answer counts
    }
  }

  /** Whole granules, in units. */
  private granulesIn(bytes: number): number {
    return Math.max(0, Math.floor(bytes / this.granuleBytes)) * this.granuleUnits
  }

  /** A run that takes in `leastBytes` of new memory where possible: to grow seldom is cheaper. */
  private lengthened(run: FreeRun, leastBytes: number): FreeRun {
    const wanted = leastBytes - run.absentUnits * UNIT_BYTES
    const { records } = this.heap
    let last = run.record
    while (records.offsetOf(last) + records.unitsOf(last) < run.start + run.units) last = records.nextOf(last)
    if (wanted <= 0 || records.state(last) !== State.absent) return run
    const end = Math.ceil((run.start + run.units) / this.granuleUnits) * this.granuleUnits
    const most = records.offsetOf(last) + records.unitsOf(last)
    return { ...run, units: Math.min(most, end + this.granulesIn(wanted)) - run.start }
  }

  /**
   * Adds new memory from the unit `start` of it to `end`, if there is any. Returns the new pieces, or null if there is
   * no memory.
   */
  private addPart(taken: Taken[], start: number, end: number): readonly Piece[] | null {
    if (end <= 0) return []
    const run = this.heap.findRun(end, HOLES_ONLY, this.granuleUnits)
    if (run === null) return null
    const part = this.takeRun(run)
    const created = this.createUnder(part)
    if (created === null) return null
    const place = { start: run.start + start, units: end - start }
    const record = this.heap.keep(part.record, place.start, place.units)
    taken.push({ record, extents: [{ ...place, absent: false, key: 0, stamp: 0 }] })
    return created
  }

  /** Undoes `takeParts`; returns 0, for no block. */
  private giveBack(taken: readonly Taken[]): 0 {
    for (const { record, extents } of taken) this.heap.giveBackRun(record, extents)
    return 0
  }

  /** Creates pieces behind the holes of a run that was taken. If there is no memory, gives the run back: null. */
  private createUnder({ record, extents }: Taken): readonly Piece[] | null {
    const holes = extents.filter(extent => extent.absent)
    const bytes = holes.reduce((sum, { units }) => sum + units, 0) * UNIT_BYTES
    // Other programs may have taken memory. The sizes of steps and pieces hardly change within a step of the room.
    const changed = Math.abs(this.reservedBytes + bytes - this.askedAtBytes)
    if (changed >= this.roomBytes * policy.stepOfRoom) this.askDevice()
    try {
      return this.home.create(holes, leastPieceUnits(this.roomBytes, this.reservedBytes + bytes, this.granuleUnits))
    } catch (error) {
      this.heap.giveBackRun(record, extents)
      if (!isOutOfMemory(error)) throw error
      this.askDevice()
      return null
    }
  }

  /** Releases a piece that lies in the free block `record`, and first the views that it is in. */
  private release(piece: Piece, record: number): void {
    // Taken out of the heap first, so that no other thread can allocate from it while the driver unmaps it.
    this.heap.decommit(record, piece.start, piece.units)
    try {
      for (const view of this.views.of(piece)) this.views.unmap(view)
    } catch (error) {
      this.heap.commit(piece.start, piece.units, 0, 0)
      throw error
    }
    this.home.release(piece)
  }

  /** Sets one device's access to all memory that blocks can lie on. */
  private applyAccess(device: number, flags: number): void {
    if (flags !== CU_MEM_ACCESS_FLAGS_PROT_NONE) {
      this.findFreeEnds(SETTLED)
      this.views.unmapIdle() // access costs as much as a mapping
    }
    this.home.applyAccess(device, flags)
    this.views.applyAccess(device, flags)
    this.sides.applyAccess(device, flags)
  }

  private runFor(heap: SegregatedFit, units: number, alignUnits: number, admission: Admission): FreeRun | null {
    return heap.findRun(units + alignUnits - 1, admission, this.granuleUnits)
  }

  /** The place of a block: the part of its run from a multiple of `alignUnits` on. */
  private placeFor(heap: SegregatedFit, units: number, alignUnits: number, admission: Admission): FreeRun | null {
    const run = this.runFor(heap, units, alignUnits, admission)
    if (run === null || alignUnits === 1) return run
    const start = Math.ceil(run.start / alignUnits) * alignUnits
    const { records } = heap
    let record = run.record
    while (records.offsetOf(record) + records.unitsOf(record) <= start) record = records.nextOf(record)
    return { ...run, start, units, record }
  }
}

/** The start of a block in the pieces of a plan and the new memory behind them. */
function placeOf({ pieces, newUnits }: StitchPlan, units: number, alignUnits: number): number {
  const stretch = stretchOf(pieces)
  return placeIn({ ...stretch, units: stretch.units + newUnits }, pieces, units, alignUnits)
}

/** How many granules of addresses the home range has. */
export function granulesOfRange(deviceBytes: number, granuleBytes: number): number {
  const wanted = deviceBytes * RESERVATION_FACTOR
  return Math.max(1, Math.floor(Math.min(wanted, MAX_UNITS * UNIT_BYTES) / granuleBytes))
}
