import { assert } from '../../../src/base/assert.js'
import { ROSTER_WORDS, Roster } from '../../../src/base/roster.js'
import { pause, type Scenario } from '../stage.js'

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
  'the numbers of the dead are given away once each': {
    begin: () => {
      const roster = newRoster()
      const numbers = new Set<number>()
      const enter = () => {
        roster.forgetDead()
        const number = roster.enter()
        assert(!numbers.has(number), 'a number is one thread’s')
        numbers.add(number)
        pause()
        assert(roster.isAlive(number) && !roster.look(number), 'and stays so')
        numbers.delete(number)
      }
      const end = () => void roster.enter()
      return { threads: [end, end, enter, enter], heirs: { 2: 0, 3: 1 } }
    },
  },
}
