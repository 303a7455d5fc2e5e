// Every block in every row of up to three small pieces.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Piece } from './piece.js'
import { partsIn, placeIn, stretchOf, unitsOf } from './stretch.js'

const UNITS = [1, 2, 3, 4]
const [START_RECORD, END_RECORD] = [100, 200]

/** Pieces with free ends, or whole free ones; their homes are apart and not in order. */
function piece(index: number, units: number, startFree: number, endFree: number): Piece {
  const made = new Piece(1000 - 100 * index, units)
  Object.assign(made, { startFree, endFree, startRecord: START_RECORD + index, endRecord: END_RECORD + index })
  return made
}

/** Rows whose first piece has a free end, whose last has a free start, and whose others are free. */
function* rows(): Generator<Piece[]> {
  for (const first of UNITS) {
    for (const last of UNITS) {
      for (const middle of [0, ...UNITS]) {
        for (let end = 1; end <= first; end++) {
          for (let start = 1; start <= last; start++) {
            yield [
              piece(0, first, end === first ? first : 0, end),
              ...(middle === 0 ? [] : [piece(1, middle, middle, middle)]),
              piece(2, last, start, start === last ? last : 0),
            ]
          }
        }
      }
    }
  }
}

test('a stretch is the free end of the first piece, all between, and the free start of the last', () => {
  for (const pieces of rows()) {
    const [first, last] = [pieces[0], pieces[pieces.length - 1]]
    const between = pieces.slice(1, -1).reduce((sum, { units }) => sum + units, 0)
    assert.deepEqual(stretchOf(pieces), {
      first: 0,
      last: pieces.length - 1,
      start: first.units - first.endFree,
      units: first.endFree + between + last.startFree,
    })
    assert.equal(unitsOf(pieces), first.units + between + last.units)
  }
})

test('a block lies in the stretch, aligned, wherever the stretch has room for its alignment', () => {
  for (const pieces of rows()) {
    const stretch = stretchOf(pieces)
    const end = stretch.start + stretch.units
    for (const alignUnits of [1, 2, 4]) {
      for (let units = 1; units + alignUnits - 1 <= stretch.units; units++) {
        const start = placeIn(stretch, pieces, units, alignUnits)
        assert.ok(start >= stretch.start && start + units <= end && start % alignUnits === 0)
      }
    }
  }
})

test('free memory that a block leaves of a whole piece stays at the outer end of that piece', () => {
  for (const pieces of rows()) {
    const stretch = stretchOf(pieces)
    const [first, last] = [pieces[0], pieces[pieces.length - 1]]
    // A shorter block would not need both of the outer pieces.
    for (
      let units = Math.max(1, stretch.units - Math.min(first.endFree, last.startFree) + 1);
      units <= stretch.units;
      units++
    ) {
      const parts = partsIn(pieces, placeIn(stretch, pieces, units, 1), units)
      const [front, back] = [parts[0], parts[parts.length - 1]]
      assert.equal(parts.length, pieces.length)
      if (first.isFree) assert.equal(front.start + front.units, first.start + first.units)
      if (last.isFree) assert.equal(back.start, last.start)
      if (first.isFree && !last.isFree) assert.equal(back.units, last.startFree)
      else assert.equal(front.units, first.endFree)
    }
  }
})

test('parts tile a block in the order of its addresses, and name a record at or before each', () => {
  for (const pieces of rows()) {
    const stretch = stretchOf(pieces)
    for (let units = 1; units <= stretch.units; units++) {
      const start = placeIn(stretch, pieces, units, 1)
      /** the home of each unit of the row, and the record of the free memory there */
      const homes = pieces.flatMap((each, index) => {
        const records = Array.from({ length: each.units }, (_, unit) =>
          each.endFree > 0 && unit >= each.units - each.endFree ? END_RECORD : START_RECORD,
        )
        return records.map((record, unit) => ({ home: each.start + unit, record, each, index }))
      })
      const covered = homes.slice(start, start + units)
      const parts = partsIn(pieces, start, units)
      assert.deepEqual(
        parts.flatMap(part => Array.from({ length: part.units }, (_, unit) => part.start + unit)),
        covered.map(({ home }) => home),
      )
      assert.equal(parts.length, new Set(covered.map(({ each }) => each)).size)
      for (const part of parts) {
        const at = covered.find(({ home }) => home === part.start)!
        const known = at.record === END_RECORD ? at.each.endRecord : at.each.startRecord
        assert.equal(part.near, known)
      }
    }
  }
})
