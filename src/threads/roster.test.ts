import assert from 'node:assert/strict'
import { test } from 'node:test'
import { threadNumber, threadStart } from './os-thread.js'
import { MOST_WORKERS, ROSTER_WORDS, Roster } from './roster.js'

const newWords = () => new Int32Array(new SharedArrayBuffer(ROSTER_WORDS * 4))

test('a thread is known by its number and by when it started', () => {
  const words = newWords()
  const worker = new Roster(words, 0).enter()
  assert.equal(words[worker] & (2 ** 22 - 1), threadNumber())
  assert.equal(words[MOST_WORKERS + worker], threadStart(threadNumber()))
})

test('what is found out about a thread does not bury the next one of its number, even where the system calls both the same', t => {
  const roster = new Roster(newWords(), 0)
  const worker = roster.enter()
  const { load } = Atomics
  t.mock.method(Atomics, 'load', (words: Int32Array, index: number) => {
    if (index === MOST_WORKERS + worker) {
      t.mock.restoreAll()
      roster.forget(worker)
      assert.equal(roster.enter(), worker)
      return -1 // when the thread before began
    }
    return load(words, index)
  })
  assert.equal(roster.look(worker), false)
  assert.equal(roster.isAlive(worker), true)
})

test('the number of a dead thread that another one has taken over is not given away', () => {
  const roster = new Roster(newWords(), 0)
  while (roster.enter() !== 0);
  roster.bury(7)
  assert.equal(roster.takeOver(), 7)
  roster.forgetDead(7)
  assert.equal(roster.isAlive(7), true)
})

test('a name is of one thread, a number of one after another', () => {
  const roster = new Roster(newWords(), 0)
  const names = [1, 2, 3].map(() => {
    const worker = roster.enter()
    const name = roster.nameOf(worker)
    assert.equal(Roster.numberIn(name), worker)
    roster.forget(worker)
    return name
  })
  assert.equal(new Set(names).size, 3)
})

test('where all numbers are taken, that of a dead thread can be taken over, once', () => {
  const roster = new Roster(newWords(), 0)
  while (roster.enter() !== 0);
  assert.equal(roster.takeOver(), 0)
  const name = roster.nameOf(7)
  roster.bury(7)
  assert.deepEqual(roster.dead(), [7])
  assert.equal(roster.takeOver(), 7)
  assert.deepEqual([roster.isAlive(7), roster.look(7), roster.takeOver()], [true, false, 0])
  assert.notEqual(roster.nameOf(7), name)
})
