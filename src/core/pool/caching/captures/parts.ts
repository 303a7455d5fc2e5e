// Memory of captures in blocks of the pool that depend on no work. Each block gets a heap of its own inside. A pool
// with blocks of one size gives them one by one.

import { takeAdmitted } from '../../../heap/cross-key.js'
import type { Admission } from '../../../heap/free-run.js'
import { type RecordTable, State } from '../../../heap/records.js'
import { SegregatedFit } from '../../../heap/segregated-fit.js'
import { UNIT_BYTES } from '../../../heap/size-classes.js'

/** A capture that needs memory takes as much as it already has, within these bounds: 2 and 32 MiB. */
const LEAST_UNITS = 2 ** 13
const MOST_UNITS = 2 ** 17

interface Part {
  /** the pool's block */
  readonly record: number
  readonly heap: SegregatedFit
  /** freed blocks of the heap that are not used again, and their units */
  readonly spent: number[]
  spentUnits: number
}

/** The blocks that parts are made of. */
export interface IdleBlocks {
  /** whether all blocks of the pool have one size */
  readonly hasOneSize: boolean
  /** takes a block that depends on no work; 0 if the pool cannot provide one */
  takeIdle(units: number): number
}

export class Parts {
  /** whether `mostBytes` has refused the last block */
  isFull = false
  private readonly parts: Part[] = []
  private units = 0

  constructor(
    private readonly records: RecordTable,
    private readonly source: IdleBlocks,
  ) {}

  /** bytes of all parts */
  get reservedBytes(): number {
    return this.units * UNIT_BYTES
  }

  get heaps(): readonly SegregatedFit[] {
    return this.parts.map(({ heap }) => heap)
  }

  /** units that are not in use */
  get idleUnits(): number {
    return this.parts.reduce((sum, { heap, spentUnits }) => sum + heap.freeUnits + spentUnits, 0)
  }

  /** Whether all parts were given back. */
  get empty(): boolean {
    return this.parts.length === 0
  }

  /** Whether a taken block lies here. */
  owns(record: number): boolean {
    return this.partOf(record) !== undefined
  }

  /**
   * A taken block, on free memory that `admission` admits, or in a new part as long as the parts have at most
   * `mostBytes`; 0 for none.
   */
  take(
    units: number,
    alignUnits: number,
    key: number,
    _stamp: number,
    admission: Admission,
    mostBytes = Infinity,
  ): number {
    for (const part of this.parts) {
      const record = this.takeIn(part, units, alignUnits, key, admission)
      if (record !== 0) return record
    }
    const part = this.add(units + alignUnits - 1, mostBytes)
    return part === null ? 0 : this.takeIn(part, units, alignUnits, key, admission)
  }

  /** Takes memory until the parts have `bytes`. False if limit or device do not allow it. */
  reserve(bytes: number): boolean {
    const units = Math.ceil(bytes / UNIT_BYTES) - this.units
    return units <= 0 || this.addExactly(units) !== null
  }

  /** Takes a block back, which may be used once `stamp` of `key` has passed. */
  free(record: number, key: number, stamp: number): void {
    this.partOf(record)!.heap.free(record, key, stamp)
  }

  /** Takes a block back that is not used again. */
  spend(record: number): void {
    const part = this.partOf(record)!
    this.records.setState(record, State.captured)
    this.records.setKey(record, 0)
    part.spent.push(record)
    part.spentUnits += this.records.unitsOf(record)
  }

  /** No free block depends on captured work any more. */
  settle(): void {
    for (const { heap } of this.parts) settleAll(heap)
  }

  /** Takes out the parts without a taken block; returns their blocks of the pool. */
  takeEmpty(): number[] {
    const isEmpty = ({ heap, spentUnits }: Part) => heap.freeUnits + spentUnits === heap.totalUnits
    const empty = this.parts.filter(isEmpty)
    for (const { heap, record, spent } of empty) {
      for (const one of spent) heap.free(one, 0, 0)
      settleAll(heap)
      heap.removeRange([...heap.firstRecords][0][1])
      this.units -= this.records.unitsOf(record)
    }
    this.parts.splice(0, this.parts.length, ...this.parts.filter(part => !empty.includes(part)))
    return empty.map(({ record }) => record)
  }

  /** The heap inside a block of the pool; undefined for other blocks. */
  heapIn(record: number): SegregatedFit | undefined {
    return this.parts.find(part => part.record === record)?.heap
  }

  check(): void {
    for (const { heap } of this.parts) heap.check()
  }

  private takeIn({ heap }: Part, units: number, alignUnits: number, key: number, admission: Admission): number {
    const record = takeAdmitted(heap, units, alignUnits, key, admission)
    return record !== 0 && this.records.isSpent(record) ? heap.rehouse(record) : record
  }

  private add(units: number, mostBytes: number): Part | null {
    const most = mostBytes / UNIT_BYTES - this.units
    this.isFull = units > most
    if (this.isFull) return null
    const ahead = this.source.hasOneSize ? units : Math.max(LEAST_UNITS, Math.min(MOST_UNITS, this.units))
    const wanted = Math.min(most, Math.max(units, ahead))
    return this.addExactly(wanted) ?? (wanted > units ? this.addExactly(units) : null)
  }

  private addExactly(units: number): Part | null {
    const { records } = this
    const record = this.source.takeIdle(units)
    if (record === 0) return null
    records.setState(record, State.captured)
    const heap = new SegregatedFit(records)
    heap.addRange(records.rangeOf(record), records.offsetOf(record), records.unitsOf(record), 'free')
    this.units += records.unitsOf(record)
    const part = { record, heap, spent: [], spentUnits: 0 }
    this.parts.push(part)
    return part
  }

  private partOf(record: number): Part | undefined {
    const { records } = this
    const [range, start] = [records.rangeOf(record), records.offsetOf(record)]
    return this.parts.find(({ record: whole }) => {
      const from = start - records.offsetOf(whole)
      return records.rangeOf(whole) === range && from >= 0 && from < records.unitsOf(whole)
    })
  }
}

function settleAll(heap: SegregatedFit): void {
  for (let key = 1; key < heap.keyLimit; key++) heap.settle(key, Infinity)
}
