// A heap over a range of addresses that grows at its end (side-ranges.ts). The addresses without memory are one hole.

import { assert } from '../../base/assert.js'
import { findAdmittedRun, startIn, takeAdmitted } from '../../heap/cross-key.js'
import type { Admission } from '../../heap/free-run.js'
import { type RecordTable, State } from '../../heap/records.js'
import { SegregatedFit } from '../../heap/segregated-fit.js'
import { UNIT_BYTES } from '../../heap/size-classes.js'
import type { SideRange, SideRanges } from './side-ranges.js'

export class RangeHeap {
  readonly heap: SegregatedFit
  /** whether `mostBytes` has refused the last block */
  isFull = false
  private readonly range: SideRange
  private readonly granuleUnits: number

  /** Throws the driver's error if it does not reserve the addresses. */
  constructor(
    private readonly records: RecordTable,
    private readonly sides: SideRanges,
    capacityBytes: number,
  ) {
    this.range = sides.add(capacityBytes)
    this.granuleUnits = sides.granuleBytes / UNIT_BYTES
    this.heap = new SegregatedFit(records)
    this.heap.addRange(this.range.number, 0, capacityBytes / UNIT_BYTES, 'absent')
  }

  /** bytes of the device */
  get reservedBytes(): number {
    return this.range.heldBytes
  }

  /** Whether a taken block lies here. */
  owns(record: number): boolean {
    return this.records.rangeOf(record) === this.range.number
  }

  get heaps(): readonly SegregatedFit[] {
    return [this.heap]
  }

  /**
   * A taken block, on free memory that `admission` admits, or on new memory until the range has `mostBytes`; 0 for
   * none. Memory beside it that other work has used depends on `stamp` of `key` from now on. Throws the driver's error.
   */
  take(units: number, alignUnits: number, key: number, stamp: number, admission: Admission, mostBytes: number): number {
    const record =
      takeAdmitted(this.heap, units, alignUnits, key, admission) ||
      this.takeRun(units, alignUnits, admission) ||
      this.grow(units, alignUnits, key, stamp, admission, mostBytes)
    return record !== 0 && this.records.isSpent(record) ? this.heap.rehouse(record) : record
  }

  /** Takes memory until the range has `bytes`. False if limit or device do not allow it. */
  reserve(bytes: number): boolean {
    const target = Math.ceil(bytes / this.sides.granuleBytes) * this.sides.granuleBytes
    const before = this.memoryUnits
    if (target / UNIT_BYTES <= before) return true
    if (!this.sides.grow(this.range, target)) return false
    this.heap.commit(before, target / UNIT_BYTES - before, 0, 0)
    return true
  }

  free(record: number, key: number, stamp: number): void {
    this.heap.free(record, key, stamp)
  }

  /** No free block depends on captured work any more. */
  settle(): void {
    for (let key = 1; key < this.heap.keyLimit; key++) this.heap.settle(key, Infinity)
  }

  /**
   * Gives the memory behind the last taken block back, in whole pieces, and the rest of a failed growth; no work may
   * use it.
   */
  trim(): void {
    const { heap, records, range } = this
    const last = this.lastBlock
    const before = this.memoryUnits
    const end = records.state(last) === State.free ? records.offsetOf(last) : before
    if (!range.hasBeyond(end * UNIT_BYTES)) return
    try {
      this.sides.shrink(range, end * UNIT_BYTES)
    } finally {
      const after = range.mappedBytes / UNIT_BYTES
      if (after < before) heap.decommit(last, after, before - after)
    }
  }

  /** Gives memory and addresses back once no block is taken, and nothing uses them. False while a block is taken. */
  close(): boolean {
    const { heap, records, range } = this
    this.trim()
    const first = heap.firstRecords.get(range.number)
    if (records.state(first) !== State.absent || range.heldBytes > 0) return false
    this.sides.remove(range)
    heap.removeRange(first)
    return true
  }

  check(): void {
    this.heap.check()
    const { asleepBytes, mappedBytes } = this.range
    assert(this.memoryUnits * UNIT_BYTES <= Math.max(asleepBytes, mappedBytes), 'blocks have memory')
  }

  /** Units from the start that have memory, or had it before a sleep. */
  private get memoryUnits(): number {
    return this.heap.totalUnits - this.heap.absentUnits
  }

  /** The last block with memory, or else the hole. */
  private get lastBlock(): number {
    const { records } = this
    let last = this.heap.firstRecords.get(this.range.number)
    for (let next = records.nextOf(last); next !== 0; next = records.nextOf(last)) {
      if (records.state(next) === State.absent) break
      last = next
    }
    return last
  }

  /** A part of neighbouring free blocks that depend on different work. */
  private takeRun(units: number, alignUnits: number, admission: Admission): number {
    const run = findAdmittedRun(this.heap, units, alignUnits, admission)
    return run === null ? 0 : this.heap.takeRun(run, this.granuleUnits)
  }

  private grow(
    units: number,
    alignUnits: number,
    key: number,
    stamp: number,
    admission: Admission,
    mostBytes: number,
  ): number {
    const { heap, granuleUnits, sides } = this
    const run = heap.findRun(units + alignUnits - 1, admission, granuleUnits)
    const end = run === null ? Infinity : run.start + run.units
    const bytes = Math.ceil(end / granuleUnits) * sides.granuleBytes
    this.isFull = bytes > mostBytes
    if (run === null || this.isFull || !sides.grow(this.range, bytes)) return 0
    const taken = heap.takeRun(run, granuleUnits)
    if (alignUnits === 1) return heap.keep(taken, run.start, units) // all of the rest is new
    return heap.keep(taken, startIn(heap, taken, alignUnits), units, key, stamp)
  }
}
