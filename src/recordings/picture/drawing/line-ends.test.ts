import assert from 'node:assert/strict'
import { test } from 'node:test'
import { apart } from './line-ends.js'

test('names of lines lie apart, near their lines and not below the plot', () => {
  assert.deepEqual(apart([10, 50, 90], 100, 13), [10, 50, 90])
  assert.deepEqual(apart([10, 10, 15, 60], 100, 13), [10, 23, 36, 60])
  assert.deepEqual(apart([95, 99, 99], 100, 13), [74, 87, 100])
  assert.deepEqual(apart([], 100, 13), [])
})
