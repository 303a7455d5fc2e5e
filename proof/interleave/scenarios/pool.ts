import { assert } from '../../../src/core/base/assert.js'
import { Random } from '../../../src/core/base/random.js'
import type { DeviceBuffer } from '../../../src/core/pool/buffer.js'
import type { TransferredBuffer } from '../../../src/core/pool/transferred-buffer.js'
import { type Cast, mayBeCut, pause, type Scenario } from '../stage.js'
import { newPool, tried } from './shared-pool.js'

/**
 * Threads that allocate and free, hand buffers on, close and attach again; the calls of the second one may be cut
 * short anywhere.
 */
function program(seed: number, steps: number, isCut: boolean): Cast {
  const made = newPool()
  const { attach, keep, take, give, giveAll } = made
  const sent: TransferredBuffer[] = []
  /** written and read around a message, which is seen after all that was stored before it */
  const messages = new Int32Array(new SharedArrayBuffer(4))
  let working = 2
  const work = (who: number) => {
    const random = new Random(seed * 8 + who)
    let pool = attach(who === 1)
    if (who === 1) pool.begin()
    const held: DeviceBuffer[] = []
    const some = () => held.splice(random.below(held.length), 1)[0]
    const hold = (buffer: DeviceBuffer) => {
      take(buffer, who)
      held.push(buffer)
    }
    const send = (buffer: DeviceBuffer) => {
      give(buffer)
      const transferred = buffer.transfer()
      Atomics.add(messages, 0, 1)
      sent.push(transferred)
    }
    const receive = (count: number) => {
      const list = sent.splice(0, count)
      Atomics.load(messages, 0)
      for (const buffer of count === 1 ? list.map(one => pool.adopt(one)) : pool.adoptAll(list)) hold(buffer)
    }
    const free = (how: number) => {
      const buffer = some()
      if (how === 0) buffer.recordUse(pool.defaultStream)
      give(buffer)
      if (how === 1) pool.deallocate(buffer.ptr)
      else buffer.free()
    }
    const close = () => {
      giveAll(who) // buffers of cut calls, too
      held.length = 0
      pool.close()
    }
    const act = (choice: number) => {
      if (choice < 7 || held.length === 0) hold(pool.allocate(1000 + 3000 * random.below(2)))
      else if (choice < 12) free(choice - 7)
      else if (choice < 14) send(some())
      else if (choice < 17) receive(choice - 13)
      else if (choice < 19) pool.trimTo(0)
      else if (who === 2) {
        close()
        pool = attach()
      }
    }
    for (let step = 0; step < steps; step++) {
      const choice = random.below(20)
      if (isCut && who === 2 && choice < 19) mayBeCut(() => act(choice))
      else act(choice)
    }
    for (const buffer of held) {
      give(buffer)
      if (!buffer.freed) buffer.free()
    }
    if (who === 1) {
      while (working > 1) pool.processDeferred()
      pool.reclaim(0)
      if (!isCut) pool.check()
      assert(pool.stats().liveBuffers === 0, `${pool.stats().liveBuffers} buffers are left`)
    }
    close()
    working--
  }
  return { threads: [keep, () => work(1), () => work(2)] }
}

/** Threads that come and go, each with the number of an earlier thread. */
function comeAndGo(): Cast {
  const { attach, keep } = newPool()
  let working = 2
  const work = () => {
    for (let turn = 0; turn < 2; turn++) {
      const pool = attach()
      assert(pool.processDeferred() >= 0, 'a question has its own answer')
      assert(pool.close().heldBuffers === 0, 'and so has the last one')
    }
    working--
  }
  const create = () => {
    const pool = attach(true)
    pool.begin()
    while (working > 0) pool.processDeferred()
    pool.close()
  }
  return { threads: [keep, create, work, work] }
}

/** A thread attaches while a second thread closes the pool for all. */
function closing(): Cast {
  const { attach, keep } = newPool()
  let isClosing = false
  const close = () => {
    const pool = attach(true)
    pool.begin()
    isClosing = true
    while (tried(() => pool.close()) === null) pause()
  }
  const come = () => {
    while (!isClosing) pause()
    const pool = tried(() => attach())
    if (pool === null) return // it was too late
    pool.processDeferred()
    pool.close()
  }
  return { threads: [keep, close, come] }
}

export const scenarios: Record<string, Scenario> = {
  'a program of a shared pool': { begin: seed => program(seed, 12, false), isLarge: true, mostSteps: 2_000_000 },
  'a program whose calls are cut short anywhere': {
    begin: seed => program(seed, 12, true),
    isLarge: true,
    mostSteps: 200_000,
  },
  'threads come and go, and each has its own answers': { begin: comeAndGo, isLarge: true, mostSteps: 2_000_000 },
  'a thread that comes while a pool is closed is refused or served': {
    begin: closing,
    isLarge: true,
    mostSteps: 2_000_000,
  },
}
