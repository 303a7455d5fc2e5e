import { assert } from '../../../src/core/base/assert.js'
import { BiasedLock } from '../../../src/core/threads/biased-lock.js'
import { storeRelease } from '../../../src/core/threads/memory-order.js'
import { Region } from '../../../src/core/threads/region.js'
import { MOST_WORKERS, REGISTRY_WORDS, ThreadRegistry } from '../../../src/core/threads/thread-registry.js'
import { type Cast, pause, type Scenario } from '../stage.js'

const WORDS = 64 * (MOST_WORKERS + 1)

/**
 * A thread that takes a block behind its biased lock and puts it back, and a pool server that takes it away behind
 * shut biased locks.
 */
function biasedLock(isFenced: boolean): Cast {
  const registry = new ThreadRegistry(new Int32Array(new SharedArrayBuffer(REGISTRY_WORDS * 4)), 0)
  const buffer = new SharedArrayBuffer(WORDS * 4)
  const newBiasedLock = () => new BiasedLock(new Region(buffer), registry, isFenced)
  const me = registry.enter()
  /** whether the block is where both may take it, then what goes with it */
  const place = new Int32Array(new SharedArrayBuffer(256))
  const [IS_THERE, CONTENT] = [0, 32]
  place[IS_THERE] = 1
  let holders = 0
  const have = () => {
    assert(holders === 0, 'a block is one thread’s')
    holders++
    place[CONTENT]++
    pause()
    holders--
  }
  const work = () => {
    const own = newBiasedLock()
    own.assign(me)
    for (let turn = 0; turn < 3; turn++) {
      if (!own.enter()) continue
      const isMine = place[IS_THERE] === 1
      if (isMine) place[IS_THERE] = 0
      own.leave()
      if (!isMine) continue
      have()
      storeRelease(place, IS_THERE, 1)
    }
  }
  const keep = () => {
    const server = newBiasedLock()
    for (let turn = 0; turn < 2; turn++) {
      server.shut()
      if (Atomics.load(place, IS_THERE) === 1 && server.isOut(me) && Atomics.load(place, IS_THERE) === 1) {
        const content = place[CONTENT]
        Atomics.store(place, IS_THERE, 0)
        have()
        assert(place[CONTENT] === content + 1, 'what goes with a block is seen')
        if (turn === 0) Atomics.store(place, IS_THERE, 1)
        else holders++ // and keeps it
      }
      server.open()
    }
  }
  const end = () => {
    const own = newBiasedLock()
    own.assign(me)
    assert(own.enter(), 'the biased locks are open in the end')
  }
  return { threads: [work, keep], end }
}

/** A thread ends inside its biased lock; then a new thread gets its number. */
function successors(): Cast {
  const registry = new ThreadRegistry(new Int32Array(new SharedArrayBuffer(REGISTRY_WORDS * 4)), 0)
  const buffer = new SharedArrayBuffer(WORDS * 4)
  const newBiasedLock = () => new BiasedLock(new Region(buffer), registry, false)
  let number = 0
  const look = () => {
    const server = newBiasedLock()
    server.shut()
    assert(server.isOut(number), 'what a thread has that is not inside may be taken')
    server.open()
  }
  const end = () => {
    const own = newBiasedLock()
    number = registry.enter()
    own.assign(number)
    own.enter()
  }
  const clearUp = () => {
    look()
    registry.forgetDead(number)
  }
  const begin = () => {
    const own = newBiasedLock()
    assert(registry.enter() === number, 'the number is given away')
    own.assign(number)
    look()
  }
  return { threads: [end, clearUp, begin], heirs: { 1: 0, 2: 1 } }
}

export const scenarios: Record<string, Scenario> = {
  'a biased lock lets one of both have a block': { begin: () => biasedLock(false) },
  'a biased lock whose threads make barriers lets one of both have a block': { begin: () => biasedLock(true) },
  'a thread that ended inside its biased lock is outside, and so is the next one of its number': { begin: successors },
}
