import assert from 'node:assert/strict'
import { test } from 'node:test'
import { GiB, KiB, MiB } from '../base/bytes.js'
import { growthStep, leastPiece, policy } from './policy.js'

test('without room there is no step and no least piece', () => {
  for (const room of [0, -1, -GiB]) {
    assert.equal(growthStep(room), 0)
    assert.equal(leastPiece(room, 100 * GiB), 0)
  }
})

test('with room a step is the most it can be, and a piece is a step or a share of the pool', () => {
  for (const room of [100 * GiB, 2 ** 52, Infinity]) {
    assert.equal(growthStep(room), policy.stepBytes)
    assert.equal(growthStep(room, (100 * MiB) / policy.stepOfPool), 100 * MiB)
    assert.equal(leastPiece(room, 0), policy.stepBytes)
    assert.equal(leastPiece(room, policy.pieces * policy.stepBytes), policy.stepBytes)
    assert.equal(leastPiece(room, policy.pieces * 100 * MiB), 100 * MiB)
  }
})

test('with less room steps and pieces are shares of it, from a border on', () => {
  const border = policy.stepBytes / policy.stepOfRoom
  assert.equal(growthStep(border), policy.stepBytes)
  assert.equal(growthStep(border - 128 * KiB), policy.stepBytes - KiB)
  assert.equal(leastPiece(border, 0), policy.stepBytes)
  assert.equal(leastPiece(border / 2, 0), policy.stepBytes / 2)
  assert.equal(leastPiece(border / 2, 100 * GiB), policy.stepBytes / 2, 'also in a large pool')
})
