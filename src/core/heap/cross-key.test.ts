import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Random } from '../base/random.js'
import { blocksOf, findAdmitted, findAdmittedRun, startIn } from './cross-key.js'
import { Double, RecordTable, State, Stride, Word } from './records.js'
import { SegregatedFit } from './segregated-fit.js'

/** A heap of one range, tiled by taken blocks of the given sizes. */
function tiled(sizes: readonly number[]): { heap: SegregatedFit; blocks: number[] } {
  const heap = new SegregatedFit(new RecordTable())
  heap.addRange(
    0,
    0,
    sizes.reduce((sum, units) => sum + units, 0),
    'free',
  )
  const blocks = sizes.map(units => take(heap, heap.allocate(units, 1, 0)))
  return { heap, blocks }
}

function take(heap: SegregatedFit, record: number): number {
  if (record !== 0) heap.records.setState(record, State.live)
  return record
}

const unitsOf = (heap: SegregatedFit, record: number) => heap.records.words[record * Stride.words + Word.units]
const offsetOf = (heap: SegregatedFit, record: number) => heap.records.words[record * Stride.words + Word.offset]
const admit = (...stamps: number[]) => Float64Array.of(Infinity, ...stamps)

test('the smallest admitted block is found, and the oldest of equal ones', () => {
  const { heap, blocks } = tiled([40, 1, 20, 1, 20, 1, 30, 1])
  heap.free(blocks[0], 1, 5)
  heap.free(blocks[2], 1, 9)
  heap.free(blocks[4], 1, 7)
  heap.free(blocks[6], 2, 3)
  assert.equal(findAdmitted(heap, 20, 1, admit(4, 2)), 0)
  assert.equal(findAdmitted(heap, 20, 1, admit(6, 2)), blocks[0])
  assert.equal(findAdmitted(heap, 20, 1, admit(6, 3)), blocks[6])
  assert.equal(findAdmitted(heap, 20, 1, admit(9, 3)), blocks[4])
  assert.equal(findAdmitted(heap, 20, 1, admit(0)), 0, 'keys beyond the end are not admitted')
  assert.equal(findAdmitted(heap, 41, 1, admit(Infinity, Infinity)), 0)
})

test('a block is admitted only with room at an aligned place', () => {
  const { heap, blocks } = tiled([3, 20, 1, 40])
  heap.free(blocks[1], 1, 1)
  heap.free(blocks[3], 1, 1)
  const record = findAdmitted(heap, 16, 16, admit(1))
  assert.equal(record, blocks[3])
  const taken = take(heap, heap.carve(record, startIn(heap, record, 16), 16))
  assert.deepEqual([offsetOf(heap, taken) % 16, unitsOf(heap, taken)], [0, 16])
  heap.check()
})

test('a run of neighbours of several keys gives one block, and the rest keeps its dependency', () => {
  const { heap, blocks } = tiled([10, 10, 10, 1, 15])
  heap.free(blocks[0], 1, 5)
  heap.free(blocks[1], 2, 6)
  heap.free(blocks[2], 3, 7)
  heap.free(blocks[4], 1, 5)
  assert.equal(findAdmittedRun(heap, 25, 1, admit(5, 6, 6)), null)
  assert.equal(findAdmittedRun(heap, 25, 1, admit(5, 6)), null)
  assert.equal(findAdmittedRun(heap, 31, 1, admit(5, 6, 7)), null)
  const run = findAdmittedRun(heap, 25, 1, admit(5, 6, 7))!
  assert.deepEqual([run.start, blocksOf(heap, run)], [0, blocks.slice(0, 3)])
  const taken = take(heap, heap.takeRun(run, 1))
  assert.deepEqual([offsetOf(heap, taken), unitsOf(heap, taken)], [0, 25])
  heap.check()
  const { words, doubles } = heap.records
  const rest = words[taken * Stride.words + Word.next]
  assert.deepEqual(
    [unitsOf(heap, rest), words[rest * Stride.words + Word.key], doubles[rest * Stride.doubles + Double.stamp]],
    [5, 3, 7],
  )
})

test('an aligned run begins in the block that holds its start', () => {
  const { heap, blocks } = tiled([5, 7, 30])
  heap.free(blocks[0], 1, 1)
  heap.free(blocks[1], 2, 1)
  heap.free(blocks[2], 3, 1)
  const run = findAdmittedRun(heap, 32, 8, admit(1, 1, 1))!
  assert.deepEqual([run.start, blocksOf(heap, run)], [0, blocks])
  take(heap, heap.takeRun(findAdmittedRun(heap, 26, 16, admit(0, 1, 1))!, 1))
  heap.check()
})

test('in random heaps a run is found exactly if there is one, and taking it loses nothing', () => {
  const random = new Random(3)
  let found = 0
  for (let round = 0; round < 300; round++) {
    const sizes = Array.from({ length: 20 }, () => 1 + random.below(20))
    const { heap, blocks } = tiled(sizes)
    const usable = new Uint8Array(heap.totalUnits)
    const admission = admit(random.below(4), random.below(4), random.below(4))
    for (const record of blocks) {
      if (random.below(3) === 0) continue
      const [key, stamp] = [random.below(4), 1 + random.below(4)]
      const [offset, units] = [offsetOf(heap, record), unitsOf(heap, record)]
      heap.free(record, key, key === 0 ? 0 : stamp)
      usable.fill(1, offset, offset + units)
    }
    // A merge takes the later stamp, so the heap shows which blocks are usable.
    for (let record = heap.firstRecords.get(0)!; record !== 0; record = heap.records.words[record * 16 + Word.next]) {
      const key = heap.records.words[record * Stride.words + Word.key]
      const isUsable = key === 0 || heap.records.doubles[record * Stride.doubles + Double.stamp] <= admission[key]
      const offset = offsetOf(heap, record)
      if (heap.records.state(record) === State.free && !isUsable) usable.fill(0, offset, offset + unitsOf(heap, record))
    }
    const longest = Math.max(
      ...usable
        .join('')
        .split('0')
        .map(run => run.length),
    )
    assert.equal(findAdmittedRun(heap, longest + 1, 1, admission), null)
    if (longest === 0) continue
    const run = findAdmittedRun(heap, longest, 1, admission)!
    const taken = take(heap, heap.takeRun(run, 1))
    assert.ok(usable.subarray(run.start, run.start + longest).every(one => one === 1))
    assert.deepEqual([offsetOf(heap, taken), unitsOf(heap, taken)], [run.start, longest])
    heap.check()
    found++
  }
  assert.ok(found > 200)
})
