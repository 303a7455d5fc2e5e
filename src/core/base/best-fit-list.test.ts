import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { BestFitList } from './best-fit-list.js'

interface Sized {
  readonly bytes: number
  readonly address: number
}

test('blocks are found by size, then address', () => {
  const list = new BestFitList<Sized>()
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

test('a list has no block below or above all that it had', () => {
  const list = new BestFitList<Sized>()
  const block = { bytes: 2 ** 20, address: 1 }
  for (const bytes of [1, 2 ** 30]) assert.equal(list.remove({ bytes, address: 1 }), false)
  list.insert(block)
  for (const bytes of [1, 2 ** 30]) assert.equal(list.remove({ bytes, address: 1 }), false)
  assert.equal(list.before({ bytes: 1, address: 1 }), null)
  assert.deepEqual(list.all(), [block])
})

const isBefore = (a: Sized, b: Sized) => a.bytes < b.bytes || (a.bytes === b.bytes && a.address < b.address)

test('the list agrees with a sorted array', () => {
  const bytes = fc.oneof(
    fc.integer({ min: 1, max: 70 }),
    fc.integer({ min: 1, max: 2 ** 31 - 1 }),
    fc.constant(2 ** 45),
  )
  const step = fc.record({ bytes, address: fc.nat(20), remove: fc.boolean() })
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), steps => {
      const list = new BestFitList<Sized>()
      let sorted: Sized[] = []
      for (const { remove, ...block } of steps) {
        const same = sorted.find(other => other.bytes === block.bytes && other.address === block.address)
        if (same === undefined) {
          list.insert(block)
          sorted = [...sorted, block].sort((a, b) => a.bytes - b.bytes || a.address - b.address)
        }
        const found = sorted.find(other => other.bytes >= block.bytes) ?? null
        assert.equal(list.smallest(block.bytes), found)
        assert.equal(list.before(block), sorted.findLast(other => isBefore(other, block)) ?? null)
        assert.equal(list.before(), sorted.at(-1) ?? null)
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

// With work that grows by the square of the number of blocks, this takes a minute.
test('a hundred thousand blocks of one size come and go', () => {
  const list = new BestFitList<Sized>()
  const blocks = Array.from({ length: 100_000 }, (_, i) => ({ bytes: 512, address: (i * 7919) % 100_000 }))
  for (const block of blocks) list.insert(block)
  assert.equal(list.smallest(1)?.address, 0)
  assert.equal(list.before()?.address, 99_999)
  for (const block of blocks) assert.equal(list.remove(block), true)
  assert.deepEqual(list.all(), [])
})
