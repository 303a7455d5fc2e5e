import { assert } from '../../../src/core/base/assert.js'
import { RobustLock } from '../../../src/core/threads/robust-lock.js'
import { REGISTRY_WORDS, ThreadRegistry } from '../../../src/core/threads/thread-registry.js'
import { type Cast, mayBeCut, mayDie, pause, type Scenario } from '../stage.js'

/**
 * Two threads enter a registry, and take a lock a few times each. The lock guards a sum in two halves. The first
 * thread may die.
 */
function contenders(turns: number, dies: boolean): Cast {
  const words = new Int32Array(new SharedArrayBuffer((REGISTRY_WORDS + 4) * 4))
  const registry = new ThreadRegistry(words, 4)
  let inside = 0
  const contend = () => {
    const me = registry.enter()
    const lock = new RobustLock(words, 0, registry, me)
    for (let turn = 0; turn < turns; turn++) {
      const dead = lock.acquire()
      assert(inside === 0 || inside === dead, 'one thread is inside')
      inside = me
      if (dead !== 0) words[2] = words[1]
      assert(words[1] === words[2], 'what is locked is whole')
      words[1]++
      words[2]++
      inside = 0
      lock.release()
    }
  }
  return {
    threads: [dies ? () => mayDie(contend) : contend, contend],
    end: () => assert(dies || words[1] === 2 * turns, 'every turn counts'),
  }
}

/**
 * The first thread ends with the lock. The thread that takes it over forgets its number, and a new thread enters.
 */
function heirs(): Cast {
  const words = new Int32Array(new SharedArrayBuffer((REGISTRY_WORDS + 4) * 4))
  const registry = new ThreadRegistry(words, 4)
  const [first, second, third] = [1, 2, 3].map(() => registry.enter())
  new RobustLock(words, 0, registry, first).acquire()
  registry.bury(first)
  let inside = 0
  const contend = (me: number) => {
    const lock = new RobustLock(words, 0, registry, me)
    const dead = lock.acquire()
    assert(inside === 0, 'one thread is inside')
    inside = me
    if (dead !== 0) registry.forgetDead(dead)
    pause()
    inside = 0
    lock.release()
  }
  return { threads: [() => contend(second), () => contend(third), () => contend(registry.enter())] }
}

/**
 * Threads whose first turns may be cut short in the middle; the next turn finds the lock taken by the same thread.
 */
function cutShort(): Cast {
  const words = new Int32Array(new SharedArrayBuffer((REGISTRY_WORDS + 4) * 4))
  const registry = new ThreadRegistry(words, 4)
  const contend = () => {
    const lock = new RobustLock(words, 0, registry, registry.enter())
    const turn = () => {
      if (lock.acquire() !== 0) words[2] = words[1]
      assert(words[1] === words[2], 'what is locked is whole')
      words[1]++
      words[2]++
      lock.release()
    }
    mayBeCut(turn)
    turn()
  }
  return { threads: [contend, contend], end: () => assert(words[1] >= 2, 'every turn that is done counts') }
}

export const scenarios: Record<string, Scenario> = {
  'a lock lets one thread in': { begin: () => contenders(2, false) },
  'a lock is taken over from the dead': { begin: () => contenders(1, true) },
  'a thread whose call was cut short takes its own lock over': { begin: cutShort },
  'a lock is not taken from whoever has the number of the dead': { begin: heirs },
}
