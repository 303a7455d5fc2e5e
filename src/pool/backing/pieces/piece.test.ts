import assert from 'node:assert/strict'
import { test } from 'node:test'
import { GiB, MiB } from '../../../base/bytes.js'
import { UNIT_BYTES } from '../../../heap/size-classes.js'
import { Piece, pieceBytes } from './piece.js'

const STEP = 2 * MiB

test('a piece is the fewest granules that are enough for its pool and its request', () => {
  for (const reserved of [0, 1, 191, 192, 193, 1000, 4096, 70_000, 90_000].map(size => size * MiB)) {
    for (const request of [1, 64, 65, 300, 4096, 20_000].map(size => size * MiB)) {
      const bytes = pieceBytes(request, reserved, Infinity, STEP)
      const isEnough = (size: number) => size * 96 >= reserved && size * 32 >= request
      const at = `${reserved / MiB} MiB reserved, ${request / MiB} MiB asked`
      assert.equal(bytes % STEP, 0, at)
      assert.ok(isEnough(bytes), at)
      assert.ok(bytes === STEP || !isEnough(bytes - STEP), at)
    }
  }
})

test('a piece has at most 1 GiB', () => {
  assert.equal(pieceBytes(100 * GiB, 100 * GiB, Infinity, STEP), GiB)
  assert.equal(pieceBytes(1, 300 * GiB, Infinity, STEP), GiB)
})

test('a piece has at least one granule', () => {
  for (const granule of [64 * 1024, 2 * MiB, 8 * MiB, 2 * GiB]) {
    const bytes = pieceBytes(1, 1, Infinity, granule)
    assert.equal(bytes, Math.max(2 * MiB, granule))
  }
})

test('beyond four fifths of the limit pieces are a tenth as large, or as the request asks', () => {
  const limit = 100 * GiB
  assert.equal(pieceBytes(1, 0.8 * limit, limit, STEP), 854 * MiB)
  assert.equal(pieceBytes(1, 0.8 * limit + 1, limit, STEP), 82 * MiB)
  assert.equal(pieceBytes(10 * GiB, 0.8 * limit + 1, limit, STEP), 320 * MiB)
})

test('a piece is free if all of it is free from its start on', () => {
  const piece = new Piece(0, (4 * MiB) / UNIT_BYTES)
  assert.deepEqual([piece.bytes, piece.isFree], [4 * MiB, false])
  piece.startFree = piece.units
  assert.equal(piece.isFree, true)
})
