import assert from 'node:assert/strict'
import { test } from 'node:test'
import { PoolError } from '../base/errors.js'
import { MOST_WORKERS } from '../base/roster.js'
import { LAST_GENERATION, State } from './records.js'
import { newSharedState, SharedHeap, type SharedState } from './shared-heap.js'

const UNITS = 4096
const ROOM = { streams: 4, records: 256, ranges: 2 }

/** Several views of one heap, as several threads have them. */
function world(count: number, room = ROOM): { state: SharedState; heaps: SharedHeap[] } {
  const state = newSharedState(room)
  const heaps = Array.from({ length: count }, () => new SharedHeap(state))
  heaps[0].addRange(0, 0, UNITS)
  return { state, heaps }
}

/** Everything came back when the whole range can be had in one piece. */
function assertPristine(heap: SharedHeap): void {
  for (let stream = 0; stream < ROOM.streams; stream++) heap.settle(stream, Infinity)
  heap.drain()
  for (let stream = 0; stream < ROOM.streams; stream++) heap.settle(stream, Infinity)
  heap.check()
  const whole = heap.allocate(UNITS, 0)
  assert.notEqual(whole, 0, 'the whole range in one piece')
  heap.free(whole, heap.lastTag, 0, 0)
  heap.drain()
  heap.settle(0, Infinity)
  heap.check()
}

interface Handle {
  readonly record: number
  readonly tag: number
}
function take(heap: SharedHeap, units: number, stream = 0): Handle {
  const record = heap.allocate(units, stream)
  assert.notEqual(record, 0)
  return { record, tag: heap.lastTag }
}

test('a block freed on a stream is taken again from the slots, by that thread and stream', () => {
  const { heaps } = world(2)
  const [a, b] = heaps
  const first = take(a, 10)
  assert.equal(a.misses, 1)
  assert.equal(a.free(first.record, first.tag, 0, 1), true)
  assert.equal(a.free(first.record, first.tag, 0, 1), false, 'a second time')
  assert.notEqual(take(b, 10).record, first.record, 'in the slots of another thread')
  assert.notEqual(take(a, 10, 1).record, first.record, 'of another stream')
  const again = take(a, 10)
  assert.equal(again.record, first.record)
  assert.notEqual(again.tag, first.tag)
  assert.deepEqual([a.isLive(again.record, again.tag), a.isLive(first.record, first.tag)], [true, false])
  assert.equal(b.free(first.record, first.tag, 0, 1), false, 'a handle of an earlier use')
  a.check()
})

test('a block is freed by another thread than the one that took it', () => {
  const { heaps } = world(2)
  const [a, b] = heaps
  const block = take(a, 10)
  assert.deepEqual(a.holdings(b.worker), [])
  assert.equal(b.free(block.record, block.tag, 0, 1), true)
  assert.equal(a.free(block.record, block.tag, 0, 1), false)
  assert.equal(take(b, 10).record, block.record)
  assert.deepEqual(
    b.holdings(b.worker).map(({ record, units }) => ({ record, units })),
    [{ record: block.record, units: 10 }],
  )
})

test('what a thread hands over is held by the one that adopts it', () => {
  const { heaps } = world(2)
  const [a, b] = heaps
  const block = take(a, 10)
  assert.throws(() => a.leave(), PoolError)
  assert.equal(b.adopt(block.record, block.tag + 8, a.worker), false, 'a stale handle')
  assert.equal(b.adopt(block.record, block.tag, a.worker), true)
  assert.equal(b.adopt(block.record, block.tag, a.worker), false, 'a second time')
  assert.deepEqual([a.holdings(a.worker).length, a.holdings(b.worker).length], [0, 1])
  a.leave()
  b.free(block.record, block.tag, 0, 1)
  assertPristine(b)
})

test('blocks of other threads are broken up before a request fails', () => {
  const { heaps } = world(3)
  const [a, b, c] = heaps
  const halves = [take(a, UNITS / 2), take(b, UNITS / 2)]
  a.free(halves[0].record, halves[0].tag, 0, 1)
  b.free(halves[1].record, halves[1].tag, 0, 1)
  assert.equal(c.freeUnits, 0, 'all is in slots')
  assert.equal(c.allocate(UNITS, 1), 0, 'of another stream')
  assert.notEqual(c.allocate(UNITS, 0), 0)
})

test('no record for a cut is no room, and the heap works on', () => {
  const { heaps } = world(1, { ...ROOM, records: 8 })
  const [heap] = heaps
  const blocks: Handle[] = []
  for (let record = heap.allocate(1, 0); record !== 0; record = heap.allocate(1, 0))
    blocks.push({ record, tag: heap.lastTag })
  assert.ok(blocks.length >= 4)
  for (const { record, tag } of blocks) assert.equal(heap.free(record, tag, 0, 1), true)
  assertPristine(heap)
})

test('a block whose record is spent goes on in another', () => {
  const { heaps } = world(1)
  const [heap] = heaps
  const block = take(heap, 10)
  const { words } = heap.records
  const tag = LAST_GENERATION * 8 + State.live
  words[block.record << 4] = tag
  words[(block.record << 4) | 14] = (LAST_GENERATION << 12) | (heap.worker << 2) | 1
  assert.equal(heap.free(block.record, tag, 0, 0), true)
  assert.equal(heap.free(block.record, tag, 0, 0), false)
  const next = take(heap, 10)
  assert.ok(next.tag < tag)
  heap.check()
  heap.free(next.record, next.tag, 0, 0)
  assertPristine(heap)
})

test('the dead: what they cached comes back, what they held is listed and reclaimed, their number goes on', () => {
  const { state, heaps } = world(2)
  const [a, b] = heaps
  const held = take(b, 100)
  const cached = take(b, 50)
  b.free(cached.record, cached.tag, 2, 3)
  a.bury(b.worker, 2, 9)
  assert.deepEqual(
    a.holdings(b.worker).map(({ record, offset, units }) => ({ record, offset, units })),
    [{ record: held.record, offset: 0, units: 100 }],
  )
  a.bury(b.worker, 2, 9)
  assert.equal(a.reclaim(b.worker, -1, 0).length, 1)
  assert.equal(a.isLive(held.record, held.tag), false)
  assert.equal(new SharedHeap(state).worker, b.worker)
  assertPristine(a)
})

test('a dead one that was between two stores of an allocation or a free', () => {
  // Where it stopped is made by hand: the block is out of its slot, and the rest of the call is missing.
  const { heaps } = world(2)
  const [a, b] = heaps
  const block = take(b, 10)
  const { words } = b.records
  const holder = (block.record << 4) | 14
  words[holder] = (words[holder] & ~3) | 2
  assert.throws(() => a.check(), /a cached block is in a slot/)
  a.bury(b.worker, 1, 7)
  a.check()
  assert.equal(a.allocate(UNITS, 0), 0, 'not before what it may have been used by')
  a.settle(1, 7)
  assertPristine(a)
})

test('a dead one that held the lock', () => {
  const { heaps } = world(2)
  const [a, b] = heaps
  const block = take(b, 10)
  const { lock, fit, slots } = b as unknown as {
    lock: { acquire(): number }
    fit: { remove(record: number): void }
    slots: { slots: Int32Array }
  }
  b.free(block.record, block.tag, 0, 0)
  lock.acquire()
  const free = [...Array(ROOM.records).keys()].find(record => record > 0 && b.records.state(record) === State.free)!
  fit.remove(free)
  const slot = slots.slots.lastIndexOf(block.record)
  slots.slots[slot] = -block.record
  a.bury(b.worker, -1, 0)
  assert.equal(a.repairs, 1)
  assert.equal(slots.slots[slot], 0)
  a.check()
  assertPristine(a)
})

test('bad states and too many threads', () => {
  const { state, heaps } = world(1)
  assert.throws(() => new SharedHeap({ ...state, version: 0 }), PoolError)
  const rest = Array.from({ length: MOST_WORKERS - 1 }, () => new SharedHeap(state))
  assert.throws(() => new SharedHeap(state), /64 threads share this heap/)
  rest[0].leave()
  assert.equal(new SharedHeap(state).worker, rest[0].worker)
  heaps[0].check()
})
