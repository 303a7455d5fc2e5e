// Memory as reserved addresses with physical granules mapped into them. Addresses cost no memory, so each heap has
// one range several times as large as the device. Memory moves to the addresses where a block needs it. A granule
// moves when it holds no block, and the host has seen its last use complete. The second condition is there because
// unmapping ignores the work of streams.
//
// The file is long because mapping, moving and giving back change the same tables.

import { assert } from '../../base/assert.js'
import { CudaError } from '../../base/errors.js'
import { CU_MEM_HANDLE_TYPE_NONE } from '../../driver/constants.js'
import type { Context } from '../../driver/context.js'
import { type Admission, type FreeRun, HOLES_ONLY } from '../../heap/free-run.js'
import { State } from '../../heap/records.js'
import type { SegregatedFit } from '../../heap/segregated-fit.js'
import { MAX_UNITS, UNIT_BYTES } from '../../heap/size-classes.js'
import type { Clocks } from '../../order/clocks.js'
import type { PoolAccess } from '../access.js'
import {
  type Backing,
  type GrowthLimits,
  type Heaps,
  isOutOfMemory,
  MOST_ALIGNMENT_BYTES,
  mostReservedBytes,
} from './backing.js'
import type { GranuleLastUses } from './granule-last-uses.js'
import { IdleGranules, type Reservation } from './idle-granules.js'
import { MappedAccess } from './mapped-access.js'
import { RemapBudget } from './remap-budget.js'

/** Beyond the remap budget, new memory is taken up to this multiple of the peak in use. */
const MOST_OVER_USE = 1.25
/**
 * Other threads may change the heap during a driver call. If they take the place, the next attempt uses the same
 * memory. The last attempt uses holes only: no other thread can take those.
 */
const MOST_ATTEMPTS = 4
/** Addresses of each range, as a multiple of the device's memory. */
const RESERVATION_FACTOR = 4

export class VirtualBacking implements Backing {
  readonly mostPieces = 0
  readonly kind = 'virtual'
  readonly bases: number[]
  reservedBytes = 0
  peakReservedBytes = 0
  /** granules that moved to other addresses */
  recycledGranules = 0
  private readonly remapBudget: RemapBudget
  private readonly idle: IdleGranules
  /** peak bytes in use, as seen by growths beyond the remap budget */
  private peakUsedBytes = 0
  private readonly context: Context
  private readonly access: MappedAccess
  readonly limitBytes: number
  /** bytes of a granule */
  readonly stepBytes: number
  private readonly granuleUnits: number
  private readonly reservations: readonly Reservation[]
  /** handles of memory that is mapped nowhere */
  private readonly spare: number[] = []
  /** granules mapped by a growth that failed midway */
  private stranded: { reservation: Reservation; granule: number }[] = []

  constructor(
    clocks: Clocks,
    private readonly heaps: Heaps,
    private readonly limits: GrowthLimits,
    /** keeps the time that passes from deciding anything */
    deterministic: boolean,
  ) {
    this.context = clocks.context
    const { context } = this
    this.access = new MappedAccess(context, (device, flags) => this.applyAccess(device, flags))
    const driver = context.activate()
    this.stepBytes = driver.cuMemGetAllocationGranularity(context.device)
    this.granuleUnits = this.stepBytes / UNIT_BYTES
    this.idle = new IdleGranules(this.granuleUnits)
    const deviceBytes = driver.cuDeviceTotalMem(context.device)
    this.limitBytes = mostReservedBytes(limits, this.stepBytes, deviceBytes)
    this.remapBudget = new RemapBudget(() => (deterministic ? 0 : driver.clockSeconds))
    const granules = granulesOfRange(deviceBytes, this.stepBytes)
    const small = this.reserve(heaps.small, heaps.usesOf(0, granules, this.granuleUnits))
    try {
      this.reservations = [small, this.reserve(heaps.large, heaps.usesOf(1, granules, this.granuleUnits))]
    } catch (error) {
      context.discard(() => driver.cuMemAddressFree(small.base, small.bytes))
      throw error
    }
    this.bases = this.reservations.map(reservation => reservation.base)
    this.reservations.forEach((reservation, range) => {
      reservation.heap.addRange(range, 0, granules * this.granuleUnits, 'absent')
    })
  }

  grow(heap: SegregatedFit, units: number, alignUnits: number, admission: Admission, mostBytes: number): number {
    const { isShared } = this.heaps
    for (let attempt = 0; attempt < MOST_ATTEMPTS; attempt++) {
      const places = attempt === MOST_ATTEMPTS - 1 ? HOLES_ONLY : admission
      const run = this.runFor(heap, units, alignUnits, places)
      if (run === null) return 0
      const reservation = this.reservations[run.range]
      if (!this.gather(this.uncommitted(reservation, run).length, reservation, run, mostBytes)) return 0
      // Recycling has changed the heap, and may have made a better place.
      const place = this.placeFor(heap, units, alignUnits, places)
      const granules = place === null ? [] : this.uncommitted(reservation, place)
      if (place !== null && granules.length <= this.spare.length) {
        try {
          this.map(reservation, granules)
        } catch (error) {
          if (isOutOfMemory(error)) return 0
          throw error
        }
        if (!isShared || isSame(place, this.placeFor(heap, units, alignUnits, places))) {
          for (const granule of granules) reservation.committed[granule] = 1
          const record = heap.takeRun(place, this.granuleUnits)
          // Another thread may repair the heap during a driver call, and then leaves a claimed block alone.
          heap.records.claim(record)
          return record
        }
        for (const granule of granules) this.stranded.push({ reservation, granule })
      }
      assert(isShared, 'recycling leaves room where there was room')
    }
    return 0
  }

  runFor(heap: SegregatedFit, units: number, alignUnits: number, admission: Admission): FreeRun | null {
    return heap.findRun(units + alignUnits - 1, admission, this.granuleUnits)
  }

  couldGrow(
    heap: SegregatedFit,
    units: number,
    alignUnits: number,
    admission: Admission,
    settled: Admission,
    newBytes: number,
  ): boolean {
    const run = this.runFor(heap, units, alignUnits, admission)
    if (run === null) return false
    const missing = this.uncommitted(this.reservations[run.range], run).length
    const more = Math.floor(newBytes / this.stepBytes) + this.spare.length + this.stranded.length
    return more >= missing || more + this.idle.countAfter(this.reservations, run, settled) >= missing
  }

  trim(keepBytes: number): void {
    this.unmapStranded()
    while (this.reservedBytes > keepBytes) {
      if (this.spare.length === 0) {
        const granules = Math.ceil((this.reservedBytes - keepBytes) / this.stepBytes)
        if (this.recycle(granules, null, null) === 0) return
      }
      this.releaseSpare()
    }
  }

  changeAccess(peer: Context, access: PoolAccess): void {
    this.access.change(peer, access)
  }

  reachableFrom(context: Context): boolean {
    return this.access.reaches(context)
  }

  get peers(): readonly Context[] {
    return this.access.peers
  }

  rangeAt(ptr: number): number {
    return this.reservations.findIndex(({ base, bytes }) => ptr >= base && ptr < base + bytes)
  }

  close(): void {
    const driver = this.context.activate()
    for (const reservation of this.reservations) {
      const { base, bytes, handles } = reservation
      if (bytes === 0) continue
      for (const [granule, handle] of handles.entries()) {
        if (handle === 0) continue
        const unmap = () => driver.cuMemUnmap(base + granule * this.stepBytes, this.stepBytes)
        if (handle > 0) unmap()
        else unlessRefused(unmap) // an unmapping was cut short here, and may have succeeded
        handles[granule] = 0
        this.spare[this.spare.length] = Math.abs(handle)
      }
      driver.cuMemAddressFree(base, bytes)
      reservation.bytes = 0
    }
    while (this.spare.length > 0) this.releaseSpare()
  }

  check(): void {
    let mapped = 0
    this.reservations.forEach(({ heap, handles, committed }, range) => {
      for (const [granule, handle] of handles.entries()) {
        if (handle !== 0) mapped++
        assert(handle !== 0 || committed[granule] === 0, 'a committed granule is mapped')
      }
      const { records } = heap
      for (let record = heap.firstRecords.get(range); record !== 0; record = records.nextOf(record)) {
        const absent = records.state(record) === State.absent
        const first = Math.floor(records.offsetOf(record) / this.granuleUnits)
        const last = Math.ceil((records.offsetOf(record) + records.unitsOf(record)) / this.granuleUnits)
        const story = absent ? 'a hole lies on granules without memory' : 'blocks lie on granules with memory'
        const sum = committed.subarray(first, last).reduce((total, one) => total + one, 0)
        assert(sum === (absent ? 0 : last - first), story)
      }
    })
    assert((mapped + this.spare.length) * this.stepBytes === this.reservedBytes, 'reserved bytes are the granules held')
  }

  private reserve(heap: SegregatedFit, uses: GranuleLastUses): Reservation {
    const granules = uses.keys.length
    const bytes = granules * this.stepBytes
    const alignment = Math.max(this.stepBytes, MOST_ALIGNMENT_BYTES)
    const base = this.context.activate().cuMemAddressReserve(bytes, alignment)
    return {
      heap,
      base,
      bytes,
      handles: new Float64Array(granules),
      committed: new Uint8Array(granules),
      uses,
    }
  }

  /** The granules of a run without committed memory. */
  private uncommitted(reservation: Reservation, run: FreeRun): number[] {
    const granules: number[] = []
    const end = Math.ceil((run.start + run.units) / this.granuleUnits)
    for (let granule = Math.floor(run.start / this.granuleUnits); granule < end; granule++) {
      if (reservation.committed[granule] === 0) granules.push(granule)
    }
    return granules
  }

  /** Makes `count` granules spare, from idle ones first and then new ones; returns false if it cannot. */
  private gather(count: number, target: Reservation, run: FreeRun, mostBytes: number): boolean {
    this.unmapStranded()
    if (
      this.spare.length < count &&
      this.remapBudget.tooMany(this.reservedBytes / this.stepBytes) &&
      this.mayExceedUse(count)
    )
      this.createSpare(count, mostBytes)
    if (this.spare.length < count) {
      const moved = this.recycle(count - this.spare.length, target, run)
      this.recycledGranules += moved
      this.remapBudget.note(moved)
    }
    return this.createSpare(count, mostBytes)
  }

  /** Whether reserved memory stays near the peak in use if `count` granules become spare. */
  private mayExceedUse(count: number): boolean {
    const freeUnits = this.reservations.reduce((sum, { heap }) => sum + heap.freeUnits, 0)
    const neededBytes = (count - this.spare.length) * this.stepBytes
    this.peakUsedBytes = Math.max(this.peakUsedBytes, this.reservedBytes - freeUnits * UNIT_BYTES + neededBytes)
    return this.reservedBytes + neededBytes <= this.peakUsedBytes * MOST_OVER_USE
  }

  /** Creates granules until `count` are spare; returns false if the limit or the device does not allow that. */
  private createSpare(count: number, mostBytes: number): boolean {
    const driver = this.context.activate()
    const before = this.spare.length
    if (before >= count) return true
    const missingBytes = (count - before) * this.stepBytes
    const { leaveFreeBytes } = this.limits
    if (this.reservedBytes + missingBytes > Math.min(mostBytes, this.limitBytes)) return false
    if (leaveFreeBytes > 0 && driver.cuMemGetInfo().freeBytes - missingBytes < leaveFreeBytes) return false
    while (this.spare.length < count) {
      try {
        const handle = driver.cuMemCreate(this.stepBytes, this.context.device, CU_MEM_HANDLE_TYPE_NONE)
        this.spare[this.spare.length] = handle
      } catch (error) {
        // Too few granules are of no use here, and others may need the memory.
        while (this.spare.length > before) this.releaseSpare()
        if (isOutOfMemory(error)) return false
        throw error
      }
      this.reservedBytes += this.stepBytes
      if (this.reservedBytes > this.peakReservedBytes) this.peakReservedBytes = this.reservedBytes
    }
    return true
  }

  private map(reservation: Reservation, granules: readonly number[]): void {
    const driver = this.context.activate()
    const mapped: number[] = []
    try {
      for (const granule of granules) {
        const handle = this.spare[this.spare.length - 1]
        driver.cuMemMap(reservation.base + granule * this.stepBytes, this.stepBytes, handle)
        reservation.handles[granule] = handle
        this.spare.length--
        mapped.push(granule)
      }
      for (const [first, count] of runsOf(granules)) {
        const ptr = reservation.base + first * this.stepBytes
        driver.cuMemSetAccess(ptr, count * this.stepBytes, this.access.devices)
      }
    } catch (error) {
      for (const granule of mapped) this.stranded.push({ reservation, granule })
      throw error
    }
  }

  /** Sets one device's access to all memory that blocks can lie on. */
  private applyAccess(device: number, flags: number): void {
    const driver = this.context.activate()
    for (const { base, committed } of this.reservations) {
      const granules = Array.from(committed.keys()).filter(granule => committed[granule] === 1)
      for (const [first, count] of runsOf(granules)) {
        driver.cuMemSetAccess(base + first * this.stepBytes, count * this.stepBytes, [device], flags)
      }
    }
  }

  /** Unmaps the granules of failed growths. */
  private unmapStranded(): void {
    for (let left = this.stranded.at(-1); left !== undefined; left = this.stranded.at(-1)) {
      this.unmap(left.reservation, left.granule, 1)
      this.stranded.pop()
    }
  }

  /** Unmaps up to `count` idle granules outside of `run`, which become spare; returns how many. */
  private recycle(count: number, target: Reservation | null, run: FreeRun | null): number {
    let recycled = 0
    for (const reservation of this.reservations) {
      const avoid = reservation === target ? run : null
      while (recycled < count) {
        const idle = this.idle.find(reservation, count - recycled, avoid)
        if (idle === null) break
        // Taken out of the heap first, so that no other thread can allocate from it while the driver unmaps it.
        reservation.heap.decommit(idle.record, idle.granule * this.granuleUnits, idle.count * this.granuleUnits)
        reservation.committed.fill(0, idle.granule, idle.granule + idle.count)
        try {
          this.unmap(reservation, idle.granule, idle.count)
        } catch (error) {
          for (let index = 0; index < idle.count; index++)
            this.stranded.push({ reservation, granule: idle.granule + index })
          throw error
        }
        recycled += idle.count
      }
    }
    return recycled
  }

  private unmap(reservation: Reservation, granule: number, count: number): void {
    const { base, handles, uses } = reservation
    const driver = this.context.activate()
    const negate = () => {
      for (let index = granule; index < granule + count; index++) handles[index] = -handles[index]
    }
    negate()
    try {
      driver.cuMemUnmap(base + granule * this.stepBytes, count * this.stepBytes)
    } catch (error) {
      negate()
      throw error
    }
    const { spare } = this
    for (let index = granule; index < granule + count; index++) {
      spare[spare.length] = -handles[index]
      handles[index] = 0
      uses.keys[index] = 0
    }
  }

  private releaseSpare(): void {
    this.context.activate().cuMemRelease(this.spare[this.spare.length - 1])
    this.spare.length-- // not by pop(): this function can be cut short at a call
    this.reservedBytes -= this.stepBytes
  }

  /** The place of a block: the part of its run from a multiple of `alignUnits` on. */
  private placeFor(heap: SegregatedFit, units: number, alignUnits: number, admission: Admission): FreeRun | null {
    const run = this.runFor(heap, units, alignUnits, admission)
    return run === null || alignUnits === 1 ? run : this.aligned(heap, run, units, alignUnits)
  }

  /** The part of a run that starts at a multiple of `alignUnits`. */
  private aligned(heap: SegregatedFit, run: FreeRun, units: number, alignUnits: number): FreeRun {
    const start = Math.ceil(run.start / alignUnits) * alignUnits
    const { records } = heap
    let record = run.record
    while (records.offsetOf(record) + records.unitsOf(record) <= start) record = records.nextOf(record)
    return { ...run, start, units, record }
  }
}

/** How many granules of addresses each of the two ranges has. */
export function granulesOfRange(deviceBytes: number, stepBytes: number): number {
  const wanted = deviceBytes * RESERVATION_FACTOR
  return Math.max(1, Math.floor(Math.min(wanted, MAX_UNITS * UNIT_BYTES) / stepBytes))
}

/** Runs of consecutive numbers in a rising list, as pairs of first and count. */
function* runsOf(granules: readonly number[]): Generator<[first: number, count: number]> {
  for (let index = 0; index < granules.length; ) {
    let count = 1
    while (granules[index + count] === granules[index] + count) count++
    yield [granules[index], count]
    index += count
  }
}

function isSame(run: FreeRun, other: FreeRun | null): boolean {
  return other !== null && run.record === other.record && run.start === other.start && run.range === other.range
}

function unlessRefused(work: () => void): void {
  try {
    work()
  } catch (error) {
    if (!(error instanceof CudaError)) throw error
  }
}
