import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Random } from '../base/random.js'
import { type Block, HeldBlocks } from './held-blocks.js'

test('blocks are found by address, in whatever order they are removed', () => {
  const random = new Random(1)
  const held = new HeldBlocks<null>()
  const model = new Map<number, Block<null>>()
  for (let step = 0; step < 2000; step++) {
    const address = 2 ** 40 + 512 * random.below(64)
    const known = model.get(address)
    if (known === undefined && random.below(3) > 0) {
      const block = { name: '', pool: null, byteLength: step, free: () => undefined }
      held.add(address, block)
      model.set(address, block)
    } else {
      assert.equal(held.remove(address), known ?? null, `step ${step}`)
      model.delete(address)
    }
    assert.deepEqual(new Set(held.blocks), new Set(model.values()), `step ${step}`)
  }
})
