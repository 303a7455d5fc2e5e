import assert from 'node:assert/strict'
import { test } from 'node:test'
import { threadNumber, threadStart } from './os-thread.js'
import { MOST_WORKERS, REGISTRY_WORDS, ThreadRegistry } from './thread-registry.js'

const newWords = () => new Int32Array(new SharedArrayBuffer(REGISTRY_WORDS * 4))

test('a thread is known by its number and by when it started', () => {
  const words = newWords()
  const worker = new ThreadRegistry(words, 0).enter()
  assert.equal(words[worker] & (2 ** 22 - 1), threadNumber())
  assert.equal(words[MOST_WORKERS + worker], threadStart(threadNumber()))
})

test('what is found out about a thread does not bury the next one of its number, even where the system calls both the same', t => {
  const registry = new ThreadRegistry(newWords(), 0)
  const worker = registry.enter()
  const { load } = Atomics
  t.mock.method(Atomics, 'load', (words: Int32Array, index: number) => {
    if (index === MOST_WORKERS + worker) {
      t.mock.restoreAll()
      registry.forget(worker)
      assert.equal(registry.enter(), worker)
      return -1 // when the thread before began
    }
    return load(words, index)
  })
  assert.equal(registry.look(worker), false)
  assert.equal(registry.isAlive(worker), true)
})

test('the number of a dead thread that another one has taken over is not given away', () => {
  const registry = new ThreadRegistry(newWords(), 0)
  while (registry.enter() !== 0);
  registry.bury(7)
  assert.equal(registry.takeOver(), 7)
  registry.forgetDead(7)
  assert.equal(registry.isAlive(7), true)
})

test('a name is of one thread, a number of one after another', () => {
  const registry = new ThreadRegistry(newWords(), 0)
  const names = [1, 2, 3].map(() => {
    const worker = registry.enter()
    const name = registry.nameOf(worker)
    assert.equal(ThreadRegistry.numberIn(name), worker)
    registry.forget(worker)
    return name
  })
  assert.equal(new Set(names).size, 3)
})

test('where all numbers are taken, that of a dead thread can be taken over, once', () => {
  const registry = new ThreadRegistry(newWords(), 0)
  while (registry.enter() !== 0);
  assert.equal(registry.takeOver(), 0)
  const name = registry.nameOf(7)
  registry.bury(7)
  assert.deepEqual(registry.dead(), [7])
  assert.equal(registry.takeOver(), 7)
  assert.deepEqual([registry.isAlive(7), registry.look(7), registry.takeOver()], [true, false, 0])
  assert.notEqual(registry.nameOf(7), name)
})
