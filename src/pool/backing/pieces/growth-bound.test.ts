import assert from 'node:assert/strict'
import { test } from 'node:test'
import { GrowthBound } from './growth-bound.js'

/** A bound with a clock and a number of frees that the test sets. */
function boundAt() {
  const time = { seconds: 100 }
  const heaps = { largeFrees: 0 }
  return { time, heaps, bound: new GrowthBound(heaps, () => time.seconds) }
}

test('new memory comes first up to 1.02 times the most that was in use', () => {
  const { bound } = boundAt()
  assert.equal(bound.mostBytes(0), 0)
  bound.noteUse(1000)
  bound.noteUse(400)
  assert.equal(bound.mostBytes(0), 1020)
  bound.noteUse(2000)
  assert.equal(bound.mostBytes(0), 2040)
})

test('each stitched block raises the bound by a quarter of a per cent, up to 1.2', () => {
  const { bound } = boundAt()
  bound.noteUse(1000)
  assert.equal(bound.mostBytes(4), 1030)
  assert.equal(bound.mostBytes(72), 1200)
  assert.equal(bound.mostBytes(1000), 1200)
})

test('80 large frees and 22 ms earn a stitched block each', () => {
  const { bound, heaps, time } = boundAt()
  bound.noteUse(1000)
  heaps.largeFrees = 160
  assert.equal(bound.mostBytes(6), 1030)
  time.seconds += 0.022
  assert.equal(Math.round(bound.mostBytes(7)), 1030)
  heaps.largeFrees = 80_000
  assert.equal(bound.mostBytes(7), 1020, 'what was earned and not spent does not lower the bound')
})

test('a pool grows by at least 1/64 of the most in use', () => {
  const { bound } = boundAt()
  assert.equal(bound.leastGrowthBytes, 0)
  bound.noteUse(1000)
  bound.noteUse(10)
  assert.equal(bound.leastGrowthBytes, 1000 / 64)
})
