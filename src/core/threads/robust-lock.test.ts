import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setImmediate } from 'node:timers/promises'
import { AssertionError } from '../base/assert.js'
import { At, section } from './lock-contender.worker.js'
import { contend, lockOf, newWords } from './robust-lock.fixture.js'
import { RobustLock } from './robust-lock.js'
import { MOST_WORKERS, ThreadRegistry } from './thread-registry.js'

test('each number belongs to one thread until it is forgotten', () => {
  const registry = new ThreadRegistry(newWords(), At.registry)
  const numbers = Array.from({ length: MOST_WORKERS + 1 }, () => registry.enter())
  assert.deepEqual(
    numbers,
    Array.from({ length: MOST_WORKERS + 1 }, (_, index) => (index < MOST_WORKERS ? index + 1 : 0)),
  )
  assert.equal(registry.bury(7), true)
  assert.equal(registry.bury(7), false, 'a second time')
  assert.deepEqual([registry.isDead(7), registry.isAlive(7), registry.isAlive(8)], [true, false, true])
  assert.equal(registry.enter(), 0, 'a dead one keeps its number')
  registry.forget(7)
  assert.equal(registry.isDead(7), false)
  assert.equal(registry.enter(), 7)
})

test('a lock is taken when free, waited for when held, and taken over from a dead thread', () => {
  const words = newWords()
  const [a, b] = [lockOf(words), lockOf(words)]
  assert.equal(a.lock.owner, 0)
  assert.equal(a.lock.acquire(), 0)
  assert.equal(b.lock.owner, a.worker)
  assert.throws(() => b.lock.release(), AssertionError, 'not by another')
  a.lock.release()
  assert.equal(b.lock.acquire(), 0)
  b.registry.bury(b.worker)
  assert.equal(a.lock.acquire(), b.worker, 'who died')
  a.registry.bury(a.worker)
  const c = lockOf(words)
  assert.equal(c.lock.acquire(), a.worker, 'died before all was repaired')
  c.lock.release()
  assert.equal(c.lock.acquire(), 0, 'after which all is well')
})

test('a thread that waits does its work meanwhile, for which the owner may wait', () => {
  const words = newWords()
  const [a, b] = [lockOf(words), lockOf(words)]
  a.lock.acquire()
  const waiting = new RobustLock(words, At.lock, b.registry, b.worker, () => a.lock.release())
  assert.equal(waiting.acquire(), 0)
  assert.equal(a.lock.owner, b.worker)
})

test('a thread takes over its own lock after a call was cut short', () => {
  const { lock, worker } = lockOf(newWords())
  lock.acquire()
  assert.equal(lock.acquire(), worker)
  lock.release()
  assert.equal(lock.acquire(), 0)
})

test('a lock released after a failure reports the failure to the next owner, once', () => {
  const words = newWords()
  const [a, b] = [lockOf(words), lockOf(words)]
  a.lock.acquire()
  a.lock.releaseBroken()
  assert.equal(a.lock.owner, 0)
  assert.notEqual(b.lock.acquire(), 0)
  b.lock.release()
  assert.equal(a.lock.acquire(), 0)
})

test('a lock is not taken from a living thread with the number of a dead owner', () => {
  const words = newWords()
  const [holder, waiter, other] = [lockOf(words), lockOf(words), lockOf(words)]
  holder.lock.acquire()
  waiter.registry.bury(holder.worker)
  const isDead = waiter.registry.isDead.bind(waiter.registry)
  let heir = holder
  waiter.registry.isDead = worker => {
    const wasDead = isDead(worker)
    waiter.registry.isDead = wasNow => {
      heir.lock.release()
      waiter.registry.isDead = isDead
      return isDead(wasNow)
    }
    // The waiter is stopped here, between its look at the lock and its exchange.
    assert.equal(other.lock.acquire(), holder.worker)
    other.registry.forget(holder.worker)
    other.lock.release()
    heir = lockOf(words)
    assert.equal(heir.worker, holder.worker)
    heir.lock.acquire()
    return wasDead
  }
  assert.equal(waiter.lock.acquire(), 0, 'the lock came from its living holder, which released it')
  assert.equal(waiter.lock.owner, waiter.worker)
})

test('look finds ended threads, also when the system has reused their number', async () => {
  const words = newWords()
  const { registry, worker } = lockOf(words)
  const { thread, worker: other } = await contend(words, true)
  assert.deepEqual([registry.hasDied(worker), registry.hasDied(other), registry.findDead()], [false, false, []])
  await thread.terminate()
  while (!registry.hasDied(other)); // the system may need a moment to drop the thread
  assert.deepEqual([registry.isDead(other), registry.bury(other), registry.findDead()], [true, false, [other]])
  registry.forget(other)
  assert.deepEqual([registry.hasDied(other), registry.findDead()], [false, []])
  const started = At.registry + MOST_WORKERS + worker
  words[started]++
  assert.equal(registry.hasDied(worker), true)
})

test('the lock of a terminated thread is taken over while the main thread blocks', async () => {
  const words = newWords()
  const { lock, registry, worker } = lockOf(words)
  const { thread, worker: holder } = await contend(words, true)
  assert.equal(lock.owner, holder)
  void thread.terminate()
  assert.equal(lock.acquire(), holder, 'without any turn of the event loop')
  assert.deepEqual([lock.owner, registry.isDead(holder)], [worker, true])
})

test('a waiter is woken by a release, and takes over from a terminated owner', async () => {
  const words = newWords()
  const { lock, registry, worker } = lockOf(words)
  lock.acquire()
  void contend(words)
  // The waiter's bit shows that it sleeps.
  const held = Atomics.load(words, At.lock)
  while (Atomics.load(words, At.lock) === held) await setImmediate()
  assert.equal(words[At.sections], 0)
  lock.release()
  while (Atomics.load(words, At.sections) < 1000) section(words, lock)
  lock.acquire()
  registry.bury(worker)
  const before = Atomics.load(words, At.sections)
  while (Atomics.load(words, At.sections) < before + 1000) await setImmediate()
  assert.deepEqual([words[At.takeovers], words[At.broken]], [1, 0])
})
