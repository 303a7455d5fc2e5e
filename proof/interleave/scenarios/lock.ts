import { assert } from '../../../src/base/assert.js'
import { RobustLock } from '../../../src/base/robust-lock.js'
import { ROSTER_WORDS, Roster } from '../../../src/base/roster.js'
import { type Cast, isOverNow, type Scenario } from '../stage.js'

/** Threads that enter a roster and take a lock some times each; what is locked is a sum in two halves. */
function contenders(count: number, turns: number, mortals: readonly number[] = []): Cast {
  const words = new Int32Array(new SharedArrayBuffer((ROSTER_WORDS + 4) * 4))
  const roster = new Roster(words, 4)
  let inside = 0
  const contend = () => {
    const me = roster.enter()
    const lock = new RobustLock(words, 0, roster, me)
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
    threads: Array.from({ length: count }, () => contend),
    mortals,
    end: () => assert(mortals.length > 0 || words[1] === count * turns, 'every turn counts'),
  }
}

/** The same, where whoever takes the lock over from a dead thread gives the number of that away, before the others enter or after. */
function heirs(): Cast {
  const words = new Int32Array(new SharedArrayBuffer((ROSTER_WORDS + 4) * 4))
  const roster = new Roster(words, 4)
  let inside = -1
  const contend = (thread: number) => {
    const lock = new RobustLock(words, 0, roster, roster.enter())
    roster.lookAtAll() // so that the dead are known before anybody sleeps
    const dead = lock.acquire()
    assert(inside === -1 || isOverNow(inside), 'one thread is inside')
    inside = thread
    words[1]++
    if (dead !== 0) roster.forget(dead)
    inside = -1
    lock.release()
  }
  return { threads: [0, 1, 2, 3].map(thread => () => contend(thread)), mortals: [0] }
}

export const scenarios: Record<string, Scenario> = {
  'a lock lets one thread in': { begin: () => contenders(2, 2) },
  'a lock is taken over from the dead': { begin: () => contenders(2, 1, [0]) },
  'a lock is not taken from whoever has the number of the dead': { begin: heirs, bound: null },
}
