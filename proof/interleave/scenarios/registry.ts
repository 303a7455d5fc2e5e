import { assert } from '../../../src/core/base/assert.js'
import { MOST_WORKERS, REGISTRY_WORDS, ThreadRegistry } from '../../../src/core/threads/thread-registry.js'
import { isOverNow, pause, type Scenario } from '../stage.js'

function newRoster(): ThreadRegistry {
  return new ThreadRegistry(new Int32Array(new SharedArrayBuffer(REGISTRY_WORDS * 4)), 0)
}

export const scenarios: Record<string, Scenario> = {
  'a thread that has ended is known as dead, although the system gives its number to another': {
    begin: () => {
      const registry = newRoster()
      let dead = 0
      return {
        threads: [
          () => registry.forget(registry.enter()),
          () => {
            dead = registry.enter()
          },
          () => assert(registry.hasDied(dead), 'the thread before this one has ended'),
        ],
        heirs: { 2: 1 },
      }
    },
  },
  'of those who bury a thread one cleans up': {
    begin: () => {
      const registry = newRoster()
      let [dead, cleaned] = [0, 0]
      const bury = () => {
        if (registry.bury(dead)) cleaned++
      }
      return {
        threads: [
          () => {
            dead = registry.enter()
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
      const registry = newRoster()
      const numbers = new Set<number>()
      const enter = () => {
        const number = registry.enter()
        assert(!numbers.has(number), 'a number is one thread’s')
        numbers.add(number)
        pause()
        assert(registry.isAlive(number) && !registry.hasDied(number), 'and stays so')
        numbers.delete(number)
        registry.forget(number)
      }
      const look = () => assert(registry.findDead().length === 0, 'nobody has died')
      return { threads: [enter, enter, enter, look], heirs: { 2: 0 } }
    },
  },
  'a dead thread’s number is taken over by one, or given away': {
    begin: () => {
      const registry = newRoster()
      for (let number = 1; number < MOST_WORKERS; number++) registry.enter()
      /** by number, the thread that has it */
      const holders = new Map<number, number>()
      const hold = (number: number, thread: number) => {
        if (number === 0) return
        const holder = holders.get(number)
        assert(holder === undefined || isOverNow(holder), 'a number is one thread’s')
        holders.set(number, thread)
        pause()
        assert(registry.isAlive(number) && !registry.hasDied(number), 'and stays so')
      }
      const bury = () => {
        for (const number of registry.findDead()) registry.forgetDead(number)
        hold(registry.enter(), 3)
      }
      const takeOver = (thread: number) => hold(registry.takeOver(), thread)
      return {
        threads: [() => hold(registry.enter(), 0), () => takeOver(1), () => takeOver(2), bury],
        heirs: { 1: 0, 2: 1 },
        end: () => {
          for (const number of holders.keys())
            assert(registry.hasDied(number) || !registry.isAlive(number), 'all have ended')
        },
      }
    },
  },
}
