import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { Random } from './random.js'
import { SortedList } from './sorted-list.js'

interface Item {
  readonly first: number
  readonly second: number
}

const step = fc.record({ first: fc.nat(5), second: fc.nat(5), remove: fc.boolean() })

test('the list agrees with a sorted array', () => {
  fc.assert(
    fc.property(fc.array(step, { maxLength: 60 }), steps => {
      const list = new SortedList<Item>()
      let sorted: Item[] = []
      for (const { remove, first, second } of steps) {
        const isFrom = (item: Item) => item.first > first || (item.first === first && item.second >= second)
        const found = sorted.find(isFrom)
        assert.equal(list.from(first, second), found)
        assert.equal(
          list.before(first, second),
          sorted.findLast(item => !isFrom(item)),
        )
        if (remove && found !== undefined) {
          assert.equal(list.remove(found, found.first, found.second), true)
          assert.equal(list.remove(found, found.first, found.second), false)
          sorted = sorted.filter(item => item !== found)
        } else {
          const item = { first, second }
          list.insert(item, first, second)
          sorted = [item, ...sorted].sort((a, b) => a.first - b.first || a.second - b.second)
        }
        assert.deepEqual([...list], sorted)
      }
    }),
  )
})

test('items in rising order fill whole chunks, and all are found', () => {
  const list = new SortedList<Item>()
  const items = Array.from({ length: 2000 }, (_, i) => ({ first: Math.floor(i / 3), second: i }))
  for (const item of items) list.insert(item, item.first, item.second)
  assert.deepEqual([...list], items)
  for (const item of items) assert.equal(list.from(item.first, item.second), item)
  for (const item of items.slice(1)) assert.equal(list.before(item.first, item.second), items[item.second - 1])
})

test('thousands of equals are found one by one, and 100,000 items move few others', () => {
  const list = new SortedList<Item>()
  const items = Array.from({ length: 100_000 }, (_, i) => ({ first: i < 3000 ? 0 : i, second: 0 }))
  const order = new Random(1)
  for (let i = items.length - 1; i > 0; i--) {
    const other = order.below(i + 1)
    ;[items[i], items[other]] = [items[other], items[i]]
  }
  for (const item of items) list.insert(item, item.first)
  for (const item of items) assert.equal(list.remove(item, item.first), true)
  assert.deepEqual([...list], [])
})
