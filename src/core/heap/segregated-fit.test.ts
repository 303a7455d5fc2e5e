import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Double, State, Stride, Word } from './records.js'
import { assertPristine, map, newHeap, offsetOf, only, take, unitsOf } from './segregated-fit.fixture.js'

test('a freed block is taken again at the lowest address, and neighbours merge', () => {
  const heap = newHeap(4096)
  const a = take(heap, 4)
  const b = take(heap, 8)
  assert.equal(offsetOf(heap, a), 0)
  assert.equal(offsetOf(heap, b), 4)
  heap.free(a, 0, 0)
  const c = take(heap, 2)
  assert.equal(offsetOf(heap, c), 0)
  heap.free(c, 0, 0)
  const three = [take(heap, 4), take(heap, 4), take(heap, 4)]
  heap.free(b, 0, 0)
  for (const block of three) heap.free(block, 0, 0)
  assertPristine(heap)
})

test('two freed quarters serve a half, but not a half and one', () => {
  const heap = newHeap(4096)
  const quarters = [take(heap, 1024), take(heap, 1024), take(heap, 1024), take(heap, 1024)]
  assert.equal(take(heap, 1), 0)
  heap.free(quarters[0], 0, 0)
  heap.free(quarters[1], 0, 0)
  assert.equal(take(heap, 2049), 0)
  const half = take(heap, 2048)
  assert.equal(offsetOf(heap, half), 0)
  for (const block of [half, quarters[2], quarters[3]]) heap.free(block, 0, 0)
  assertPristine(heap)
})

test("a search goes deep into the request's bin before it declares a miss", () => {
  const heap = newHeap(1 << 20)
  const sizes = [1055, ...Array.from({ length: 40 }, (_, index) => 1024 + (index % 30))]
  const blocks: number[] = []
  for (const size of sizes) {
    blocks.push(take(heap, size))
    take(heap, 1)
  }
  take(heap, heap.freeUnits)
  for (const block of blocks) heap.free(block, 0, 0)
  assert.equal(unitsOf(heap, take(heap, 1055)), 1055)
})

test('neighbours that depend on different streams stay apart until one settles', () => {
  const heap = newHeap(300)
  const [a, b, c] = [take(heap, 100), take(heap, 100), take(heap, 100)]
  heap.free(a, 1, 5)
  heap.free(b, 2, 3)
  heap.free(c, 1, 7)
  heap.check()
  assert.equal(take(heap, 150, 1), 0, 'stream 2 lies between')
  assert.equal(take(heap, 50, 3), 0, 'a third stream may use neither')
  assert.equal(heap.settle(2, 2), 0)
  assert.equal(heap.settle(2, 3), 1)
  heap.check()
  const all = take(heap, 300, 1)
  assert.notEqual(all, 0, 'all three are in the order of stream 1')
  heap.free(all, 0, 0)
  assertPristine(heap)
})

test('a merge keeps the later stamp', () => {
  for (const [first, second] of [
    [9, 4],
    [4, 9],
  ]) {
    const heap = newHeap(20)
    const [a, b] = [take(heap, 10), take(heap, 10)]
    heap.free(a, 1, first)
    const merged = heap.free(b, 1, second)
    assert.equal(heap.records.doubles[merged * Stride.doubles + Double.stamp], 9)
    assert.equal(heap.settle(1, 8), 0)
    assert.equal(heap.settle(1, 9), 1)
    assertPristine(heap)
  }
})

test('a block that depends on nothing takes over the dependency of its neighbour', () => {
  const heap = newHeap(20)
  const [a, b] = [take(heap, 10), take(heap, 10)]
  heap.free(a, 0, 0)
  const merged = heap.free(b, 2, 6)
  assert.equal(heap.records.words[merged * Stride.words + Word.key], 2)
  assert.equal(take(heap, 1, 1), 0)
})

test('aligned blocks begin at a multiple of their alignment', () => {
  const heap = newHeap(8192)
  take(heap, 3)
  const aligned = take(heap, 5, 0, 1024)
  assert.equal(offsetOf(heap, aligned), 1024)
  heap.check()
  const small = newHeap(16)
  const exact = take(small, 16, 0, 8)
  assert.equal(offsetOf(small, exact), 0, 'a block that fits only where it lies is found')
})

test('memory comes to holes and leaves free blocks', () => {
  const heap = newHeap(100, 'absent')
  assert.equal(take(heap, 1), 0)
  const block = map(heap, 27, 0, 10)
  assert.equal(offsetOf(heap, block), 0)
  assert.deepEqual([heap.absentUnits, heap.freeUnits], [70, 3], 'the rest of the third granule is free')
  heap.check()
  const free = heap.free(block, 0, 0)
  heap.decommit(free, 10, 10)
  heap.check()
  assert.equal(heap.absentUnits, 80)
  const run = heap.findRun(30, only(0), 10)
  assert.deepEqual([run?.start, run?.absentUnits], [0, 10], 'filling the hole needs the least')
  assert.equal(offsetOf(heap, map(heap, 30, 0, 10)), 0)
  heap.check()
})

test('a run ends with a free block when that needs less memory', () => {
  const heap = newHeap(100, 'absent')
  const [low, high] = [map(heap, 10, 0, 10), map(heap, 50, 0, 10)]
  const rest = heap.free(high, 0, 0)
  heap.decommit(rest, 10, 20)
  const run = heap.findRun(35, only(0), 10)
  assert.deepEqual([run?.start, run?.absentUnits], [25, 10], 'from 10 it would need 20')
  heap.free(low, 0, 0)
})

test("new memory beside another stream's block stays usable for its stream", () => {
  const heap = newHeap(100, 'absent')
  const block = map(heap, 10, 1, 10)
  heap.free(block, 1, 1)
  assert.equal(offsetOf(heap, map(heap, 15, 2, 10)), 10)
  heap.check()
})

test('a spent record gives its block to another record', () => {
  const heap = newHeap(10)
  const block = take(heap, 4)
  const { words } = heap.records
  words[block * Stride.words] = (2 ** 28 - 1) * 8 + State.live
  assert.equal(heap.records.revive(block), 0)
  const moved = heap.rehouse(block)
  assert.notEqual(moved, block)
  assert.notEqual(heap.records.revive(moved), 0)
  heap.check()
  heap.free(moved, 0, 0)
  heap.check()
})

test('every sequence of six operations over eight units keeps the heap whole', () => {
  const sequences = { count: 0 }
  const play = (choices: readonly number[]): number => {
    const heap = newHeap(8)
    const live: number[] = []
    const shadow = new Int8Array(8)
    let branches = 0
    for (const choice of choices) {
      branches = 4 + live.length * 2
      if (choice >= branches) return -1
      if (choice < 4) {
        const record = take(heap, choice + 1, 1)
        if (record === 0) continue
        for (let unit = 0; unit <= choice; unit++) assert.equal(shadow[offsetOf(heap, record) + unit]++, 0)
        live.push(record)
      } else {
        const [record] = live.splice((choice - 4) >> 1, 1)
        const start = offsetOf(heap, record)
        shadow.fill(0, start, start + unitsOf(heap, record))
        heap.free(record, choice & 1, choice & 1)
      }
      heap.check()
    }
    for (const record of live) heap.free(record, 0, 0)
    heap.settle(1, 1)
    assertPristine(heap)
    sequences.count++
    return 4 + live.length * 2
  }
  const extend = (prefix: number[]) => {
    const branches = play(prefix)
    if (prefix.length === 6) return
    for (let choice = 0; choice < branches; choice++) extend([...prefix, choice])
  }
  extend([])
  assert.ok(sequences.count > 10_000, `${sequences.count} sequences`)
})
