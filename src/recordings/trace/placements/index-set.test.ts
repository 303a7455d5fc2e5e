import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { IndexSet } from './index-set.js'

test('a set of indexes finds the members that a plain list finds', () => {
  const steps = (size: number) =>
    fc.tuple(fc.constant(size), fc.array(fc.tuple(fc.boolean(), fc.nat(size - 1), fc.nat(size)), { maxLength: 60 }))
  const sizes = fc.constantFrom(1, 2, 31, 32, 33, 1024, 1025, 40_000, 2 ** 21)
  fc.assert(
    fc.property(sizes.chain(steps), ([size, list]) => {
      const set = new IndexSet(size)
      const members = new Set<number>()
      for (const [adds, index, asked] of list) {
        if (adds) set.add(index)
        else set.delete(index)
        if (adds) members.add(index)
        else members.delete(index)
        const sorted = [...members].sort((a, b) => a - b)
        assert.equal(set.has(index), adds)
        assert.equal(set.from(asked), sorted.find(member => member >= asked) ?? -1)
        assert.equal(set.before(asked), sorted.findLast(member => member < asked) ?? -1)
      }
    }),
  )
})
