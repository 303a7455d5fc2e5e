// The free ends of pieces against a model of single units, in random heaps.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Random } from '../../../base/random.js'
import { isAdmitted } from '../../../heap/free-run.js'
import { RecordTable, State } from '../../../heap/records.js'
import { SegregatedFit } from '../../../heap/segregated-fit.js'
import { HOME_RANGE } from '../backing.js'
import { FreeEnds, findFreeEnds } from './free-ends.js'
import { Piece } from './piece.js'

const UNITS = 120
const KEYS = 3

/** A heap with holes, in which blocks were taken and freed at random, and its pieces. */
function randomHeap(random: Random): { heap: SegregatedFit; pieces: Piece[] } {
  const heap = new SegregatedFit(new RecordTable())
  heap.addRange(HOME_RANGE, 0, UNITS, 'absent')
  const pieces: Piece[] = []
  for (let start = random.below(5); start < UNITS - 20; start += random.below(3) === 0 ? 4 : 0) {
    const piece = new Piece(start, 1 + random.below(16))
    heap.commit(start, piece.units, 0, 0)
    pieces.push(piece)
    start += piece.units
  }
  const held: number[] = []
  for (let step = 0; step < 60; step++) {
    if (random.below(3) > 0) {
      const record = heap.allocate(1 + random.below(12), 1, random.below(KEYS))
      if (record === 0) continue
      heap.records.setState(record, State.live)
      held.push(record)
    } else if (held.length > 0) {
      const key = random.below(KEYS)
      heap.free(held.splice(random.below(held.length), 1)[0], key, key === 0 ? 0 : 1 + random.below(9))
    }
  }
  heap.check()
  return { heap, pieces }
}

/** By unit: the record of the block there if the admission admits it, otherwise 0. */
function admittedUnits(heap: SegregatedFit, admission: Float64Array): number[] {
  const { records } = heap
  const units: number[] = []
  for (let record = heap.firstRecords.get(HOME_RANGE); record !== 0; record = records.nextOf(record)) {
    const admitted = records.state(record) === State.free && isAdmitted(records, record, admission)
    for (let count = records.unitsOf(record); count > 0; count--) units.push(admitted ? record : 0)
  }
  return units
}

function lengthWhile(units: readonly number[]): number {
  const length = units.indexOf(0)
  return length === -1 ? units.length : length
}

test('each piece knows how much a stream may use at its ends, and in which block that begins', () => {
  let [ends, wholes] = [0, 0]
  for (let seed = 1; seed <= 2000; seed++) {
    const random = new Random(seed)
    const { heap, pieces } = randomHeap(random)
    const admission = Float64Array.from({ length: KEYS }, (_, key) => (key === 0 ? Infinity : random.below(11)))
    findFreeEnds(pieces, heap, HOME_RANGE, admission)
    const admitted = admittedUnits(heap, admission)
    for (const piece of pieces) {
      const inside = admitted.slice(piece.start, piece.start + piece.units)
      const [atStart, atEnd] = [lengthWhile(inside), lengthWhile([...inside].reverse())]
      assert.deepEqual([piece.startFree, piece.endFree], [atStart, atEnd], `seed ${seed}, piece at ${piece.start}`)
      assert.equal(piece.isFree, atStart === piece.units)
      if (atStart > 0) assert.equal(piece.startRecord, inside[0])
      if (atEnd > 0) assert.equal(piece.endRecord, inside[inside.length - atEnd])
      if (piece.isFree) wholes++
      else if (atEnd > 0) ends++
    }
  }
  assert.ok(ends > 1000 && wholes > 1000, `${ends} ends, ${wholes} whole pieces`)
})

test('a look forgets the results of an earlier one', () => {
  const { heap, pieces } = randomHeap(new Random(1))
  findFreeEnds(pieces, heap, HOME_RANGE, new Float64Array(KEYS).fill(Infinity))
  assert.ok(pieces.some(piece => piece.startFree > 0))
  findFreeEnds(pieces, heap, HOME_RANGE, Float64Array.of(-1))
  assert.ok(pieces.every(piece => piece.startFree === 0 && piece.endFree === 0))
})

/** Whether `ends` walks the heap when it looks for an admission; it notes what is free then. */
function walks(ends: FreeEnds, pieces: readonly Piece[], admission: Float64Array): boolean {
  for (const piece of pieces) piece.startFree = -1
  ends.find(pieces, admission)
  return pieces.every(({ startFree }) => startFree >= 0)
}

test('a look that would find the same does not walk the heap', () => {
  const { heap, pieces } = randomHeap(new Random(1))
  const ends = new FreeEnds(heap, HOME_RANGE, false)
  const all = new Float64Array(KEYS).fill(Infinity)
  const looks = (admission: Float64Array) => walks(ends, pieces, admission)
  assert.deepEqual([looks(all), looks(all), looks(all.slice())], [true, false, false])
  all[KEYS - 1] = 3
  assert.deepEqual([looks(all), looks(all), looks(Float64Array.of(Infinity))], [true, false, true])
  const record = heap.allocate(1, 1, 0) // a part of a free block
  assert.deepEqual([looks(all), looks(all)], [true, false])
  heap.free(record, 0, 0)
  assert.deepEqual([looks(all), looks(all)], [true, false])
  heap.commit(UNITS - 1, 1, 0, 0) // behind the last piece
  assert.deepEqual([looks(all), looks(all)], [true, false])
})

test('every look walks a heap that other threads change', () => {
  const { heap, pieces } = randomHeap(new Random(1))
  const ends = new FreeEnds(heap, HOME_RANGE, true)
  const all = new Float64Array(KEYS).fill(Infinity)
  assert.deepEqual([walks(ends, pieces, all), walks(ends, pieces, all)], [true, true])
})
