import assert from 'node:assert/strict'
import { test } from 'node:test'
import { firstIndex } from './binary-search.js'

test('the first index is found wherever it lies, and asked for in few steps', () => {
  for (let count = 0; count < 40; count++) {
    for (let first = 0; first <= count; first++) {
      let steps = 0
      const found = firstIndex(count, index => {
        steps++
        assert.ok(index >= 0 && index < count)
        return index >= first
      })
      assert.equal(found, first)
      assert.ok(steps <= 1 + Math.log2(count + 1))
    }
  }
})
