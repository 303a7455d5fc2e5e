import assert from 'node:assert/strict'
import { test } from 'node:test'
import { GrowthBound } from './growth-bound.js'

/** A bound with a clock that the test sets. */
function boundAt() {
  const time = { seconds: 100 }
  return { time, bound: new GrowthBound(() => time.seconds) }
}

test('new memory comes first up to 1.02 times the most that was in use', () => {
  const { bound } = boundAt()
  assert.equal(bound.mostBytes(0), 0)
  bound.noteUse(1000)
  bound.noteUse(400)
  assert.equal(bound.mostBytes(10), 1020)
  bound.noteUse(2000)
  assert.equal(bound.mostBytes(10), 2040)
})

test('the bound is wider while more was mapped than two times the pieces', () => {
  const { bound } = boundAt()
  bound.noteUse(1000)
  bound.noteMappings(12)
  bound.noteMappings(8)
  assert.equal(bound.mostBytes(10), 1020)
  bound.noteMappings(1)
  assert.equal(bound.mostBytes(10), 1050)
  assert.equal(bound.mostBytes(11), 1020, 'more pieces allow more mappings')
})

test('half a per cent of the time that passes may be spent on mappings of 28 µs', () => {
  const { bound, time } = boundAt()
  bound.noteUse(1000)
  bound.noteMappings(20 + 179)
  time.seconds += 1
  assert.equal(bound.mostBytes(10), 1050)
  time.seconds += 0.01 // 1.8 mappings more
  assert.equal(bound.mostBytes(10), 1020)
})

test('a pool grows by at least 1/128 of the most in use', () => {
  const { bound } = boundAt()
  assert.equal(bound.leastGrowthBytes, 0)
  bound.noteUse(1000)
  bound.noteUse(10)
  assert.equal(bound.leastGrowthBytes, 1000 / 128)
})
