import assert from 'node:assert/strict'
import { test } from 'node:test'
import { KiB, MiB, TiB } from '../../../base/bytes.js'
import { Random } from '../../../base/random.js'
import { type AddressRegion, AddressSpace } from './address-space.js'

test('ranges do not overlap, and are found by the addresses inside only', () => {
  const random = new Random(5)
  const space = new AddressSpace()
  const owned = new Set<AddressRegion>()
  for (let step = 0; step < 3000; step++) {
    if (random.below(2) === 0 && owned.size > 0) {
      const region = [...owned][random.below(owned.size)]
      owned.delete(region)
      space.release(region)
      assert.equal(space.find(region.base), undefined)
    } else {
      const alignment = random.below(3) === 0 ? 2 * MiB : 1
      const region = space.claim(random.logUniform(1, 64 * MiB), alignment)!
      assert.equal(region.base % Math.max(alignment, 512), 0)
      owned.add(region)
    }
  }
  let end = 2 ** 32
  for (const region of [...owned].sort((a, b) => a.base - b.base)) {
    assert.ok(region.base >= end)
    end = region.base + region.bytes
    assert.ok(end <= 2 ** 47)
    for (const inside of [region.base, region.base + random.below(region.bytes), end - 1]) {
      assert.equal(space.find(inside), region)
    }
    assert.notEqual(space.find(end), region)
    assert.notEqual(space.find(region.base - 1), region)
  }
})

test('a freed address is used again at once for a similar size', () => {
  const space = new AddressSpace()
  const first = space.claim(100 * KiB)!
  space.release(first)
  assert.equal(space.claim(120 * KiB)!.base, first.base)
})

test('addresses can run out, and smaller requests still work', () => {
  const space = new AddressSpace()
  assert.notEqual(space.claim(64 * TiB), null)
  assert.equal(space.claim(80 * TiB), null)
  assert.notEqual(space.claim(MiB), null)
})
