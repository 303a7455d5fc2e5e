import { assert } from '../../../src/base/assert.js'
import { MOST_WORKERS, ROSTER_WORDS, Roster } from '../../../src/threads/roster.js'
import { isOverNow, pause, type Scenario } from '../stage.js'

function newRoster(): Roster {
  return new Roster(new Int32Array(new SharedArrayBuffer(ROSTER_WORDS * 4)), 0)
}

export const scenarios: Record<string, Scenario> = {
  'a thread that has ended is known as dead, although the system gives its number to another': {
    begin: () => {
      const roster = newRoster()
      let dead = 0
      return {
        threads: [
          () => roster.forget(roster.enter()),
          () => {
            dead = roster.enter()
          },
          () => assert(roster.look(dead), 'the thread before this one has ended'),
        ],
        heirs: { 2: 1 },
      }
    },
  },
  'of those who bury a thread one cleans up': {
    begin: () => {
      const roster = newRoster()
      let [dead, cleaned] = [0, 0]
      const bury = () => {
        if (roster.bury(dead)) cleaned++
      }
      return {
        threads: [
          () => {
            dead = roster.enter()
          },
          bury,
          bury,
        ],
        heirs: { 1: 0, 2: 0 },
        end: () => assert(cleaned === 1, `${cleaned} threads cleaned up`),
      }
    },
  },
  'a number is one thread’s, whoever looks meanwhile': {
    begin: () => {
      const roster = newRoster()
      const numbers = new Set<number>()
      const enter = () => {
        const number = roster.enter()
        assert(!numbers.has(number), 'a number is one thread’s')
        numbers.add(number)
        pause()
        assert(roster.isAlive(number) && !roster.look(number), 'and stays so')
        numbers.delete(number)
        roster.forget(number)
      }
      const look = () => assert(roster.lookAtAll().length === 0, 'nobody has died')
      return { threads: [enter, enter, enter, look], heirs: { 2: 0 } }
    },
  },
  'a dead thread’s number is taken over by one, or given away': {
    begin: () => {
      const roster = newRoster()
      for (let number = 1; number < MOST_WORKERS; number++) roster.enter()
      /** by number, the thread that has it */
      const holders = new Map<number, number>()
      const hold = (number: number, thread: number) => {
        if (number === 0) return
        const holder = holders.get(number)
        assert(holder === undefined || isOverNow(holder), 'a number is one thread’s')
        holders.set(number, thread)
        pause()
        assert(roster.isAlive(number) && !roster.look(number), 'and stays so')
      }
      const bury = () => {
        for (const number of roster.lookAtAll()) roster.forgetDead(number)
        hold(roster.enter(), 3)
      }
      const takeOver = (thread: number) => hold(roster.takeOver(), thread)
      return {
        threads: [() => hold(roster.enter(), 0), () => takeOver(1), () => takeOver(2), bury],
        heirs: { 1: 0, 2: 1 },
        end: () => {
          for (const number of holders.keys()) assert(roster.look(number) || !roster.isAlive(number), 'all have ended')
        },
      }
    },
  },
}
