// A heap as the pool uses it, for its tests.

import assert from 'node:assert/strict'
import { RecordTable, State, Stride, Word } from './records.js'
import { SegregatedFit } from './segregated-fit.js'

export function newHeap(units: number, state: 'free' | 'absent' = 'free'): SegregatedFit {
  const heap = new SegregatedFit(new RecordTable())
  heap.addRange(0, 0, units, state)
  return heap
}

/** Allocates as the pool does: the record comes back without a state, and gets one. */
export function take(heap: SegregatedFit, units: number, key = 0, alignUnits = 1): number {
  const record = heap.allocate(units, alignUnits, key)
  if (record !== 0) heap.records.setState(record, State.live)
  return record
}
export const offsetOf = (heap: SegregatedFit, record: number) => heap.records.words[record * Stride.words + Word.offset]
export const unitsOf = (heap: SegregatedFit, record: number) => heap.records.words[record * Stride.words + Word.units]

/** Everything came back when the whole range can be had in one piece. */
export function assertPristine(heap: SegregatedFit): void {
  heap.check()
  const whole = take(heap, heap.totalUnits)
  assert.notEqual(whole, 0, 'the whole range in one piece')
  heap.free(whole, 0, 0)
  heap.check()
  assert.equal(heap.records.inUse, 1)
}

/** Blocks of one key are admitted, besides those that depend on nothing. */
export function only(key: number): Float64Array {
  return new Float64Array(key + 1).fill(Infinity, key)
}

/** Gives memory to the granules of the best run and takes it. */
export function map(heap: SegregatedFit, units: number, key: number, granuleUnits: number): number {
  const run = heap.findRun(units, only(key), granuleUnits)
  if (run === null) return 0
  const record = heap.takeRun(run, granuleUnits)
  heap.records.setState(record, State.live)
  assert.deepEqual([offsetOf(heap, record), unitsOf(heap, record)], [run.start, units])
  return record
}
