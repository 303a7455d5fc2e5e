// A heap as the pool uses it, for its tests.

import assert from 'node:assert/strict'
import { RecordTable, State, Stride, Word } from './records.js'
import { SegregatedFit } from './segregated-fit.js'

export function newHeap(units: number, state: 'free' | 'absent' = 'free'): SegregatedFit {
  const heap = new SegregatedFit(new RecordTable())
  heap.addRange(0, 0, units, state)
  return heap
}

/** Allocates as the pool does, which sets the state of the record. */
export function take(heap: SegregatedFit, units: number, key = 0, alignUnits = 1): number {
  const record = heap.allocate(units, alignUnits, key)
  if (record !== 0) heap.records.setState(record, State.live)
  return record
}
export const offsetOf = (heap: SegregatedFit, record: number) => heap.records.words[record * Stride.words + Word.offset]
export const unitsOf = (heap: SegregatedFit, record: number) => heap.records.words[record * Stride.words + Word.units]

/** Asserts that all blocks came back: the whole range can be allocated as one. */
export function assertPristine(heap: SegregatedFit): void {
  heap.check()
  const whole = take(heap, heap.totalUnits)
  assert.notEqual(whole, 0, 'the whole range in one piece')
  heap.free(whole, 0, 0)
  heap.check()
  assert.equal(heap.records.inUse, 1)
}

/** Admits blocks of one key, and blocks without a dependency. */
export function only(key: number): Float64Array {
  return new Float64Array(key + 1).fill(Infinity, key)
}

/** Gives memory to the granules of the best run, and takes the run. */
export function map(heap: SegregatedFit, units: number, key: number, granuleUnits: number): number {
  const run = heap.findRun(units, only(key), granuleUnits)
  if (run === null) return 0
  const record = heap.keep(heap.takeRun(run, granuleUnits), run.start, run.units)
  heap.records.setState(record, State.live)
  assert.deepEqual([offsetOf(heap, record), unitsOf(heap, record)], [run.start, units])
  return record
}
