import assert from 'node:assert/strict'
import { test } from 'node:test'
import { GiB, MiB } from '../../../base/bytes.js'
import { UNIT_BYTES } from '../../../heap/size-classes.js'
import { cut, leastPieceBytes, Piece } from './piece.js'

const STEP = 2 * MiB

test('a piece is at least the fewest granules that are enough for its pool and its request', () => {
  for (const reserved of [0, 1, 191, 192, 193, 1000, 4096, 70_000, 90_000].map(size => size * MiB)) {
    for (const request of [1, 64, 65, 300, 4096, 20_000].map(size => size * MiB)) {
      const bytes = leastPieceBytes(request, reserved, Infinity, STEP)
      const isEnough = (size: number) => size * 96 >= reserved && size * 32 >= request
      const at = `${reserved / MiB} MiB reserved, ${request / MiB} MiB asked`
      assert.equal(bytes % STEP, 0, at)
      assert.ok(isEnough(bytes), at)
      assert.ok(bytes === STEP || !isEnough(bytes - STEP), at)
    }
  }
})

test('a piece need not have more than 1 GiB', () => {
  assert.equal(leastPieceBytes(100 * GiB, 100 * GiB, Infinity, STEP), GiB)
  assert.equal(leastPieceBytes(1, 300 * GiB, Infinity, STEP), GiB)
})

test('a piece has at least one granule', () => {
  for (const granule of [64 * 1024, 2 * MiB, 8 * MiB, 2 * GiB]) {
    const bytes = leastPieceBytes(1, 1, Infinity, granule)
    assert.equal(bytes, Math.max(2 * MiB, granule))
  }
})

test('beyond four fifths of the limit pieces may be a tenth as large, or as the request asks', () => {
  const limit = 100 * GiB
  assert.equal(leastPieceBytes(1, 0.8 * limit, limit, STEP), 854 * MiB)
  assert.equal(leastPieceBytes(1, 0.8 * limit + 1, limit, STEP), 82 * MiB)
  assert.equal(leastPieceBytes(10 * GiB, 0.8 * limit + 1, limit, STEP), 320 * MiB)
})

test('a run is cut into equal pieces of at least the least size, and a shorter run is one piece', () => {
  for (let run = 1; run <= 200; run++) {
    for (let least = 1; least <= 40; least++) {
      const units = cut(run * 4, least * 4, 4)
      const at = `${run} granules, at least ${least}`
      assert.equal(units % 4, 0, at)
      assert.ok(units >= 4 * Math.min(run, least), at)
      assert.ok(units < 8 * least || run < least, at)
    }
  }
  assert.deepEqual([cut(7, 4, 1), cut(8, 4, 1), cut(9, 4, 1), cut(12, 4, 1), cut(3, 4, 1)], [7, 4, 5, 4, 3])
})

test('a piece is free if all of it is free from its start on', () => {
  const piece = new Piece(0, (4 * MiB) / UNIT_BYTES)
  assert.deepEqual([piece.bytes, piece.isFree], [4 * MiB, false])
  piece.startFree = piece.units
  assert.equal(piece.isFree, true)
})
