import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Random } from '../core/base/random.js'
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

test('a late free of a closed pool is not for the block that has its address now', () => {
  const held = new HeldBlocks<null>()
  const blockOf = (name: string) => ({ name, pool: null, byteLength: 1, free: () => undefined })
  const [closed, weights, activation] = ['closed', 'weights', 'activation'].map(blockOf)
  const address = 2 ** 40
  held.add(address, closed)
  held.add(address, activation)
  assert.equal(held.remove(address), activation)
  held.addLasting(address, weights)
  held.addLasting(address + 512, activation)
  assert.deepEqual(held.blocks, [weights, activation])
  assert.equal(held.remove(address + 512), activation)
  assert.equal(held.remove(address), closed)
  assert.equal(held.remove(address), weights)
  assert.equal(held.remove(address), null)
})
