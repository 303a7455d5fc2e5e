import assert from 'node:assert/strict'
import { test } from 'node:test'
import { grownBytes } from './size-growth.js'

test('a block of equal bytes may be smaller below the two sizes, unless it is of the model', () => {
  const at = (size: number, isOfModel: boolean) => {
    const { low, estimate, high } = grownBytes([16, 300], [32, 300], size, { isBrief: false, isOfModel })
    return [low, estimate, high]
  }
  assert.deepEqual(at(4, false), [75, 300, 300])
  for (const [size, isOfModel] of [
    [4, true],
    [24, false],
    [64, false],
  ] as const) {
    assert.deepEqual(at(size, isOfModel), [300, 300, 300])
  }
})
