import { assert } from '../base/assert.js'
import type { Ranges } from './ranges.js'
import { type RecordTable, State } from './records.js'
import { classOf } from './size-classes.js'

/** The part of `SegregatedFit` that a check compares. */
export interface CheckedHeap {
  readonly records: RecordTable
  readonly firstRecords: Ranges
  readonly unitsByKey: Float64Array
  readonly keyLimit: number
  readonly firstHole: number
  readonly freeUnits: number
  readonly absentUnits: number
  readonly totalUnits: number
  nextClass(key: number, from: number): number
  head(key: number, sizeClass: number): number
}

/** Asserts that the chains in address order, the bins, the bitmaps and the counters of a heap agree. */
export function checkHeap(heap: CheckedHeap): void {
  const { records } = heap
  const inChains = { free: 0, absent: 0, total: 0, freeBlocks: 0, holes: 0 }
  for (const [range, first] of heap.firstRecords) {
    assert(records.previousOf(first) === 0, 'the first block of a range has nothing before it')
    let previous = 0
    for (let record = first; record !== 0; record = records.nextOf(record)) {
      const state = records.state(record)
      const units = records.unitsOf(record)
      assert(records.rangeOf(record) === range, 'a block knows its range')
      assert(records.previousOf(record) === previous, 'neighbours know each other')
      assert(units > 0, 'a block has at least one unit')
      assert(state !== State.unused, 'a block in a range has a state')
      if (previous !== 0) checkNeighbours(heap, previous, record)
      if (state === State.free) {
        inChains.free += units
        inChains.freeBlocks++
      }
      if (state === State.absent) {
        inChains.absent += units
        inChains.holes++
      }
      inChains.total += units
      previous = record
    }
  }
  assert(inChains.free === heap.freeUnits, 'the free units of the blocks add up to the counter')
  assert(inChains.absent === heap.absentUnits, 'the absent units of the holes add up to the counter')
  assert(inChains.total === heap.totalUnits, 'blocks tile the ranges')
  assert(countBins(heap) === inChains.freeBlocks, 'every free block is in exactly one bin')
  assert(countHoles(heap) === inChains.holes, 'every hole is in the list of holes')
}

function checkNeighbours(heap: CheckedHeap, left: number, right: number): void {
  const { records } = heap
  const [leftState, rightState] = [records.state(left), records.state(right)]
  assert(records.offsetOf(left) + records.unitsOf(left) === records.offsetOf(right), 'neighbours touch')
  assert(leftState !== State.absent || rightState !== State.absent, 'neighbouring holes are merged')
  if (leftState !== State.free || rightState !== State.free) return
  const [leftKey, rightKey] = [records.keyOf(left), records.keyOf(right)]
  assert(leftKey !== rightKey && leftKey !== 0 && rightKey !== 0, 'free neighbours that may merge are merged')
}

function countBins(heap: CheckedHeap): number {
  const { records } = heap
  let blocks = 0
  for (let key = 0; key < heap.keyLimit; key++) {
    let units = 0
    for (let sizeClass = heap.nextClass(key, 0); sizeClass !== -1; sizeClass = heap.nextClass(key, sizeClass + 1)) {
      const head = heap.head(key, sizeClass)
      assert(head !== 0, 'a bitmap names only bins that hold a block')
      let previous = 0
      for (let record = head; record !== 0; record = records.binNextOf(record)) {
        assert(records.state(record) === State.free, 'a block in a bin is free')
        assert(records.keyOf(record) === key, 'a free block is in a bin of its key')
        assert(key !== 0 || records.stampOf(record) === 0, 'a block without a key has no stamp')
        assert(classOf(records.unitsOf(record)) === sizeClass, 'a free block is in the bin of its size')
        assert(records.binPreviousOf(record) === previous, 'neighbours in a bin know each other')
        units += records.unitsOf(record)
        blocks++
        previous = record
      }
    }
    assert(units === heap.unitsByKey[key], 'the free units of a key add up to its counter')
  }
  return blocks
}

function countHoles(heap: CheckedHeap): number {
  const { records } = heap
  let holes = 0
  for (let record = heap.firstHole; record !== 0; record = records.binNextOf(record)) {
    assert(records.state(record) === State.absent, 'the list of holes holds holes')
    holes++
  }
  return holes
}
