import assert from 'node:assert/strict'
import { test } from 'node:test'
import fc from 'fast-check'
import { ReservedSegments } from './reserved-segments.js'
import { Action } from './trace.js'

const { segmentAlloc, segmentFree, segmentMap, segmentUnmap } = Action

test('plain segments are added and removed whole, also side by side', () => {
  const set = new ReservedSegments()
  set.apply(segmentAlloc, 200, 100, 1)
  set.apply(segmentAlloc, 100, 100, 1)
  const both = [
    { address: 100, bytes: 100, stream: 1, expandable: false, pool: 0 },
    { address: 200, bytes: 100, stream: 1, expandable: false, pool: 0 },
  ]
  assert.deepEqual(set.list(), both)
  set.apply(segmentFree, 300, 100, 1)
  set.apply(Action.alloc, 100, 100, 1)
  assert.deepEqual(set.list(), both)
  set.apply(segmentFree, 100, 100, 1)
  assert.deepEqual(set.list(), [both[1]])
})

test('mapped ranges of a stream join, and an unmap cuts them', () => {
  const set = new ReservedSegments()
  set.apply(segmentMap, 0, 10, 1)
  set.apply(segmentMap, 20, 10, 1)
  set.apply(segmentMap, 30, 10, 2)
  set.apply(segmentMap, 10, 10, 1)
  const joined = { address: 0, bytes: 30, stream: 1, expandable: true, pool: 0 }
  const other = { address: 30, bytes: 10, stream: 2, expandable: true, pool: 0 }
  assert.deepEqual(set.list(), [joined, other])
  set.apply(segmentUnmap, 5, 10, 1)
  assert.deepEqual(set.list(), [{ ...joined, bytes: 5 }, { ...joined, address: 15, bytes: 15 }, other])
})

test('undoing all events backwards leads back to the start', () => {
  fc.assert(
    fc.property(fc.array(fc.record({ page: fc.nat(9), stream: fc.nat(1), plain: fc.boolean() })), steps => {
      const set = new ReservedSegments([{ address: 5000, bytes: 100, stream: 0, expandable: true, pool: 0 }])
      const before = set.list()
      const mapped = new Map<number, number>()
      const events = steps.map(({ page, stream, plain }): [number, number, number, number] => {
        const address = plain ? page * 10 : 1000 + page * 10
        const owner = mapped.get(address)
        if (owner === undefined) mapped.set(address, stream)
        else mapped.delete(address)
        const action = owner === undefined ? (plain ? segmentAlloc : segmentMap) : plain ? segmentFree : segmentUnmap
        return [action, address, 10, owner ?? stream]
      })
      for (const event of events) set.apply(...event)
      assert.equal(
        set.list().reduce((sum, { bytes }) => sum + bytes, 0),
        100 + 10 * mapped.size,
      )
      for (const event of events.reverse()) set.undo(...event)
      assert.deepEqual(set.list(), before)
    }),
  )
})

test('mapped ranges of different private pools stay apart', () => {
  const set = new ReservedSegments()
  set.apply(segmentMap, 0, 10, 1, 1)
  set.apply(segmentMap, 10, 10, 1, 2)
  set.apply(segmentMap, 20, 10, 1, 2)
  assert.deepEqual(
    set.list().map(({ address, bytes, pool }) => [address, bytes, pool]),
    [
      [0, 10, 1],
      [10, 20, 2],
    ],
  )
})

// With work that grows by the square of the number of ranges, this takes many times as long.
test('thirty thousand mapped ranges in any order are found, and unmapped', () => {
  const set = new ReservedSegments()
  const pages = Array.from({ length: 30_000 }, (_, i) => (i * 7919) % 30_000)
  for (const page of pages) set.apply(segmentMap, 30 * page, 10, 1)
  for (const page of pages) set.apply(segmentAlloc, 30 * page + 10, 10, 1)
  assert.equal(set.list().length, 60_000)
  for (const page of pages) set.apply(segmentUnmap, 30 * page, 10, 1)
  for (const page of pages) set.apply(segmentFree, 30 * page + 10, 10, 1)
  assert.deepEqual(set.list(), [])
})

test('a segment at the address of a mapped range takes its place', () => {
  const set = new ReservedSegments()
  set.apply(segmentMap, 0, 30, 1)
  set.apply(segmentAlloc, 0, 10, 1)
  set.apply(segmentFree, 10, 20, 1)
  assert.deepEqual(
    set.list().map(({ address, bytes, expandable }) => [address, bytes, expandable]),
    [
      [0, 10, false],
      [10, 20, true],
    ],
  )
})

test('memory that is mapped twice is one range, that of the later mapping', () => {
  const set = new ReservedSegments()
  set.apply(segmentMap, 0, 30, 1)
  set.apply(segmentMap, 10, 10, 2)
  assert.deepEqual(
    set.list().map(({ address, bytes, stream }) => [address, bytes, stream]),
    [
      [0, 10, 1],
      [10, 10, 2],
      [20, 10, 1],
    ],
  )
})
