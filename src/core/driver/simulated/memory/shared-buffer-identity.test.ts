import assert from 'node:assert/strict'
import { test } from 'node:test'
import { isSameMemory } from './shared-buffer-identity.js'

test('the same memory is recognised among memory of the same size and contents', () => {
  for (const bytes of [4, 7, 4096]) {
    const memory = new SharedArrayBuffer(bytes)
    const again = structuredClone(memory)
    assert.notEqual(again, memory)
    const other = new SharedArrayBuffer(bytes)
    assert.deepEqual(
      [memory, again, other].map(buffer => isSameMemory(memory, buffer)),
      [true, true, false],
    )
    new Uint8Array(again).fill(1)
    assert.equal(isSameMemory(again, memory), true)
    assert.equal(isSameMemory(memory, new SharedArrayBuffer(bytes + 4)), false)
  }
})

test('memory of less than a word is recognised by the same object only', () => {
  const memory = new SharedArrayBuffer(3)
  assert.deepEqual([isSameMemory(memory, memory), isSameMemory(memory, structuredClone(memory))], [true, false])
})

test('other waiters on the memory do not change the answer', () => {
  const memory = new Int32Array(new SharedArrayBuffer(8))
  const other = new SharedArrayBuffer(8)
  const { waitAsync } = Atomics as unknown as { waitAsync(words: Int32Array, index: number, value: number): object }
  for (const words of [memory, new Int32Array(other)]) {
    for (let waiter = 0; waiter < 3; waiter++) waitAsync(words, 1, 0)
  }
  assert.equal(isSameMemory(memory.buffer, structuredClone(memory.buffer)), true)
  assert.equal(isSameMemory(memory.buffer, other), false)
})
