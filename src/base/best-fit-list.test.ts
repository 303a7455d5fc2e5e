import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { BestFitList } from './best-fit-list.js'

test('blocks are found by size, then address', () => {
  const list = new BestFitList<{ bytes: number; address: number }>()
  const blocks = [
    { bytes: 512, address: 7 },
    { bytes: 512, address: 3 },
    { bytes: 2 ** 40 + 512, address: 1 },
  ]
  for (const block of blocks) list.insert(block)
  assert.equal(list.smallest(1), blocks[1])
  assert.equal(list.after(blocks[1]), blocks[0])
  assert.equal(list.after(blocks[0]), blocks[2])
  assert.equal(list.after(blocks[2]), null)
  assert.equal(list.smallest(2 ** 40 + 513), null)
  assert.deepEqual([list.remove(blocks[0]), list.remove(blocks[0])], [true, false])
  assert.deepEqual(list.all(), [blocks[1], blocks[2]])
})

test('the list agrees with a sorted array', () => {
  const bytes = fc.oneof(
    fc.integer({ min: 1, max: 70 }),
    fc.integer({ min: 1, max: 2 ** 31 - 1 }),
    fc.constant(2 ** 45),
  )
  const step = fc.record({ bytes, address: fc.nat(20), remove: fc.boolean() })
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), steps => {
      const list = new BestFitList<{ bytes: number; address: number }>()
      let sorted: { bytes: number; address: number }[] = []
      for (const { remove, ...block } of steps) {
        const same = sorted.find(other => other.bytes === block.bytes && other.address === block.address)
        if (same === undefined) {
          list.insert(block)
          sorted = [...sorted, block].sort((a, b) => a.bytes - b.bytes || a.address - b.address)
        }
        const found = sorted.find(other => other.bytes >= block.bytes) ?? null
        assert.equal(list.smallest(block.bytes), found)
        if (remove && found !== null) {
          assert.equal(list.after(found), sorted[sorted.indexOf(found) + 1] ?? null)
          assert.equal(list.remove(found), true)
          sorted = sorted.filter(other => other !== found)
        }
        assert.deepEqual(list.all(), sorted)
      }
    }),
  )
})
