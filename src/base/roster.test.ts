import assert from 'node:assert/strict'
import { test } from 'node:test'
import { threadNumber, threadStart } from './os-thread.js'
import { MOST_WORKERS, ROSTER_WORDS, Roster } from './roster.js'

const newWords = () => new Int32Array(new SharedArrayBuffer(ROSTER_WORDS * 4))

test('a thread is known by its number and by when it started', () => {
  const words = newWords()
  const worker = new Roster(words, 0).enter()
  assert.equal(words[worker], threadNumber())
  assert.equal(words[MOST_WORKERS + worker], threadStart(threadNumber()))
})

test('a number is given away after the start of its last thread was cleared, so that no look takes the next one for dead', t => {
  const words = newWords()
  const roster = new Roster(words, 0)
  const worker = roster.enter()
  const store = t.mock.method(Atomics, 'store')
  roster.forget(worker)
  const indices = store.mock.calls.map(call => call.arguments[1])
  assert.deepEqual(indices.slice(-2), [MOST_WORKERS + worker, worker])
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
