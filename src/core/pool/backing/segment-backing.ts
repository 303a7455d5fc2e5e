// Memory in segments, each one allocation of its source (segment-source.ts). Segments of the least size serve small
// blocks; larger ones have the requested size. A segment is given back when all of it is free and no work uses it.

import { assert } from '../../base/assert.js'
import type { Context } from '../../driver/context.js'
import { type Admission, isAdmitted } from '../../heap/free-run.js'
import { State } from '../../heap/records.js'
import type { SegregatedFit } from '../../heap/segregated-fit.js'
import { UNIT_BYTES } from '../../heap/size-classes.js'
import { relaxed } from '../../order/relaxed.js'
import { growthStep } from '../policy.js'
import {
  type Backing,
  type GrowthLimits,
  type Heaps,
  isOutOfMemory,
  MOST_ALIGNMENT_BYTES,
  mostReservedBytes,
} from './backing.js'
import type { MemoryAccess } from './memory-access.js'
import type { SegmentSource } from './segment-source.js'
import { type PoolSegment, SegmentWatch } from './segment-watch.js'

interface Segment {
  readonly ptr: number
  readonly bytes: number
  readonly heap: SegregatedFit
}

export class SegmentBacking implements Backing {
  readonly kind: SegmentSource['kind']
  readonly granuleBytes: number
  readonly isCrowded = false
  /** the address of unit 0, by range; NaN for a range without a segment, which is reused */
  readonly bases: number[] = []
  baseChanges = 0
  reservedBytes = 0
  peakReservedBytes = 0
  readonly watch = new SegmentWatch()
  readonly access: MemoryAccess
  private readonly held: (Segment | null)[] = []
  maxPoolBytes: number

  constructor(
    private readonly context: Context,
    readonly source: SegmentSource,
    private readonly heaps: Heaps,
    private readonly limits: GrowthLimits,
  ) {
    this.kind = source.kind
    this.granuleBytes = source.granuleBytes
    this.access = source.access
    this.maxPoolBytes = mostReservedBytes(limits.maxPoolBytes, source.leastBytes, source.totalBytes)
  }

  grow(heap: SegregatedFit, units: number, alignUnits: number, _admission: Admission, mostBytes: number): number {
    const most = Math.min(mostBytes, this.maxPoolBytes)
    const bytes = this.segmentBytesFor(units + alignUnits - 1, most - this.reservedBytes)
    if (bytes > most) return 0
    if (this.reservedBytes + bytes > most) this.trim(Math.max(0, most - bytes))
    if (this.reservedBytes + bytes > most) return 0
    if (this.mostPieces > 0) this.trim(0)
    if (this.mostPieces > 0) return 0
    const ptr = relaxed(this.context.activate(), () => this.allocateSegment(bytes))
    if (ptr === 0) return 0
    try {
      this.watch.ready(ptr, bytes)
    } catch (error) {
      this.context.discard(() => this.source.giveBack(ptr))
      throw error
    }
    this.addSegment(heap, ptr, bytes)
    const record = heap.allocate(units, alignUnits, 0)
    // Another thread may repair the heap during a driver call, and then leaves a claimed block alone.
    heap.records.claim(record)
    return record
  }

  /** Bytes of a new segment for `units`. Pinned memory may have smaller ones where the limit leaves less. */
  private segmentBytesFor(units: number, roomBytes: number): number {
    const { leastBytes, granuleBytes, kind } = this.source
    const needed = Math.ceil((units * UNIT_BYTES) / granuleBytes) * granuleBytes
    const room = Math.floor(roomBytes / granuleBytes) * granuleBytes
    return Math.max(needed, kind === 'pinned' ? Math.min(leastBytes, room) : leastBytes)
  }

  get mostPieces(): number {
    const { most } = this.heaps.small.firstRecords
    return this.held.length < most || this.held.includes(null) ? 0 : most
  }

  get growthStepBytes(): number {
    if (!this.source.isWorthGathering) return Infinity
    return growthStep(
      Math.min(this.maxPoolBytes, this.limits.releaseThresholdBytes) - this.reservedBytes,
      this.reservedBytes,
    )
  }

  takeInView(): number {
    return 0
  }

  stitch(): number {
    return 0
  }

  stitchedBlocks(): readonly number[] {
    return []
  }

  couldGrow(
    _heap: SegregatedFit,
    units: number,
    alignUnits: number,
    _admission: Admission,
    settled: Admission,
    newBytes: number,
  ): boolean {
    return newBytes + this.idleAfter(settled) >= (units + alignUnits - 1) * UNIT_BYTES
  }

  trim(keepBytes: number): void {
    this.source.releaseRest?.()
    for (const heap of [this.heaps.small, this.heaps.large]) {
      const { records } = heap
      for (const [range, record] of heap.firstRecords) {
        if (this.reservedBytes <= keepBytes) return
        const idle = records.state(record) === State.free && records.keyOf(record) === 0
        if (!idle || records.nextOf(record) !== 0) continue
        // Taken out of the heap first, so that no other thread can allocate from it while the driver frees it.
        const segment = this.held[range]!
        const start = records.offsetOf(record)
        heap.removeRange(record)
        try {
          this.watch.leaving(segment.ptr)
          relaxed(this.context.activate(), () => this.source.giveBack(segment.ptr))
        } catch (error) {
          heap.addRange(range, start, segment.bytes / UNIT_BYTES, 'free')
          this.watch.stays(segment.ptr, segment.bytes)
          throw error
        }
        this.held[range] = null
        this.bases[range] = NaN
        this.baseChanges++
        this.reservedBytes -= segment.bytes
      }
    }
  }

  segments(): PoolSegment[] {
    return this.held.flatMap(segment => (segment === null ? [] : [{ ptr: segment.ptr, bytes: segment.bytes }]))
  }

  rangesAt(ptr: number): readonly number[] {
    const range = this.held.findIndex(
      segment => segment !== null && ptr >= segment.ptr && ptr < segment.ptr + segment.bytes,
    )
    return range === -1 ? [] : [range]
  }

  close(): void {
    for (const [range, segment] of this.held.entries()) {
      if (segment === null) continue
      this.watch.leaving(segment.ptr)
      this.source.giveBack(segment.ptr)
      this.held[range] = null
      this.reservedBytes -= segment.bytes
    }
    this.source.releaseRest?.()
  }

  check(): void {
    let bytes = 0
    for (const [range, segment] of this.held.entries()) {
      if (segment === null) continue
      bytes += segment.bytes
      const { records } = segment.heap
      let units = 0
      for (let record = segment.heap.firstRecords.get(range); record !== 0; record = records.nextOf(record)) {
        assert(records.state(record) !== State.absent, 'a segment has no holes')
        units += records.unitsOf(record)
      }
      assert(units * UNIT_BYTES === segment.bytes, 'blocks tile their segment')
    }
    assert(bytes === this.reservedBytes, 'reserved bytes are the segments held')
  }

  /** Bytes of segments whose blocks are all free, and wait only for stamps within `settled`. */
  private idleAfter(settled: Admission): number {
    let bytes = 0
    for (const heap of [this.heaps.small, this.heaps.large]) {
      for (const [range, first] of heap.firstRecords) {
        let record = first
        while (record !== 0 && isAdmitted(heap.records, record, settled)) {
          record = heap.records.nextOf(record)
        }
        if (record === 0) bytes += this.held[range]!.bytes
      }
    }
    return bytes
  }

  /** The address of a new segment, after giving idle segments back if necessary; 0 when the device has no room. */
  private allocateSegment(bytes: number): number {
    const { leaveFreeBytes } = this.limits
    for (let attempt = 0; attempt < 2; attempt++) {
      try {
        const room = leaveFreeBytes === 0 ? Infinity : this.context.activate().cuMemGetInfo().freeBytes - leaveFreeBytes
        const ptr = bytes <= room ? this.source.obtain(bytes) : 0
        if (ptr !== 0) return ptr
      } catch (error) {
        if (!isOutOfMemory(error)) throw error
      }
      if (attempt === 0) this.trim(0)
    }
    return 0
  }

  /** After a call was cut short: forgets segments that no heap has, and counts the others anew. */
  mend(): void {
    this.reservedBytes = 0
    for (const [range, segment] of this.held.entries()) {
      if (segment === null) continue
      if (segment.heap.firstRecords.has(range)) this.reservedBytes += segment.bytes
      else {
        this.held[range] = null
        this.bases[range] = NaN
      }
    }
  }

  private addSegment(heap: SegregatedFit, ptr: number, bytes: number): void {
    const vacant = this.held.indexOf(null)
    const range = vacant === -1 ? this.held.length : vacant
    // Numbers units so that a unit's number has the same alignment as its address.
    const start = (ptr % MOST_ALIGNMENT_BYTES) / UNIT_BYTES
    this.held[range] = { ptr, bytes, heap }
    this.bases[range] = ptr - start * UNIT_BYTES
    this.baseChanges++
    heap.addRange(range, start, bytes / UNIT_BYTES, 'free')
    this.reservedBytes += bytes
    if (this.reservedBytes > this.peakReservedBytes) this.peakReservedBytes = this.reservedBytes
  }
}
