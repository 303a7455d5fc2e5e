import assert from 'node:assert/strict'
import { test } from 'node:test'
import { threadNumber, threadStart } from './os-thread.js'
import { MOST_WORKERS, REGISTRY_WORDS, ThreadRegistry } from './thread-registry.js'

const newWords = () => new Int32Array(new SharedArrayBuffer(REGISTRY_WORDS * 4))

test('a thread is identified by its number and its start time', () => {
  const words = newWords()
  const worker = new ThreadRegistry(words, 0).enter()
  assert.equal(words[worker] & (2 ** 22 - 1), threadNumber())
  assert.equal(words[MOST_WORKERS + worker], threadStart(threadNumber()))
})

test('a finding about a thread does not bury the next thread of its number, even with the same system number', t => {
  const registry = new ThreadRegistry(newWords(), 0)
  const worker = registry.enter()
  const { load } = Atomics
  t.mock.method(Atomics, 'load', (words: Int32Array, index: number) => {
    if (index === MOST_WORKERS + worker) {
      t.mock.restoreAll()
      registry.forget(worker)
      assert.equal(registry.enter(), worker)
      return -1 // the start time of the earlier thread
    }
    return load(words, index)
  })
  assert.equal(registry.hasDied(worker), false)
  assert.equal(registry.isAlive(worker), true)
})

test('the number of a dead thread is not given away after another thread has taken it over', () => {
  const registry = new ThreadRegistry(newWords(), 0)
  while (registry.enter() !== 0);
  registry.bury(7)
  assert.equal(registry.takeOver(), 7)
  registry.forgetDead(7)
  assert.equal(registry.isAlive(7), true)
})

test('threads of one number have different names', () => {
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

test('the number of a dead thread can be taken over once when all are taken', () => {
  const registry = new ThreadRegistry(newWords(), 0)
  while (registry.enter() !== 0);
  assert.equal(registry.takeOver(), 0)
  const name = registry.nameOf(7)
  registry.bury(7)
  assert.deepEqual(registry.dead(), [7])
  assert.equal(registry.takeOver(), 7)
  assert.deepEqual([registry.isAlive(7), registry.hasDied(7), registry.takeOver()], [true, false, 0])
  assert.notEqual(registry.nameOf(7), name)
})
