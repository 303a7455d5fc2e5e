import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { DisjointRanges } from './disjoint-ranges.js'

const step = fc.record({ from: fc.nat(30), bytes: fc.nat(9), adds: fc.boolean() })

test('ranges hold what painting each address holds, the later of two at one address', () => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 40 }), steps => {
      const ranges = new DisjointRanges<{ address: number; bytes: number; name: number }>((range, from, to) => ({
        ...range,
        address: from,
        bytes: to - from,
      }))
      const cells = new Array<number>(40).fill(-1)
      const paint = (list: readonly { address: number; bytes: number; name: number }[]) => {
        const painted = new Array<number>(40).fill(-1)
        for (const { address, bytes, name } of list) painted.fill(name, address, address + bytes)
        return painted
      }
      for (const [name, { from, bytes, adds }] of steps.entries()) {
        assert.equal(
          ranges.overlaps(from, from + bytes),
          cells.slice(from, from + bytes).some(cell => cell >= 0),
        )
        const before = cells.map((cell, at) => (at >= from && at < from + bytes ? cell : -1))
        if (adds) ranges.add({ address: from, bytes, name })
        else assert.deepEqual(paint(ranges.take(from, from + bytes)), before)
        cells.fill(adds ? name : -1, from, from + bytes)
        assert.deepEqual(paint(ranges.all()), cells)
      }
    }),
  )
})
