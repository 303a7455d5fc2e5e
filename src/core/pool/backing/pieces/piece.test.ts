import assert from 'node:assert/strict'
import { test } from 'node:test'
import { GiB, KiB, MiB } from '../../../base/bytes.js'
import { UNIT_BYTES } from '../../../heap/size-classes.js'
import { leastPiece, policy } from '../../policy.js'
import { cut, leastPieceUnits, Piece } from './piece.js'

const GRANULE = (2 * MiB) / UNIT_BYTES

test('pieces have the fewest granules that hold the least piece of the policy', () => {
  for (const room of [0, 1, 512, 513, 8192, 100_000, Infinity].map(size => size * MiB)) {
    for (const reserved of [0, 1, 4096, 40_000].map(size => size * MiB)) {
      const units = leastPieceUnits(room, reserved, GRANULE)
      const at = `${room / MiB} MiB of room, ${reserved / MiB} MiB reserved`
      const least = Math.max(1, leastPiece(room, reserved) / UNIT_BYTES)
      assert.equal(units % GRANULE, 0, at)
      assert.ok(units >= least && units - GRANULE < least, at)
    }
  }
})

test('a piece has at least one granule, also without room', () => {
  for (const granule of [64 * KiB, 2 * MiB, 8 * MiB, 2 * GiB].map(bytes => bytes / UNIT_BYTES)) {
    assert.equal(leastPieceUnits(0, 0, granule), granule)
    assert.equal(leastPieceUnits(-1, GiB, granule), granule)
  }
})

test('a piece need not have more than 1 GiB', () => {
  assert.equal(leastPieceUnits(Infinity, GiB * policy.pieces, GRANULE), GiB / UNIT_BYTES)
  assert.equal(leastPieceUnits(Infinity, 2 * GiB * policy.pieces, GRANULE), GiB / UNIT_BYTES)
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
