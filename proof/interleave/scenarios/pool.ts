import { assert } from '../../../src/base/assert.js'
import { Random } from '../../../src/base/random.js'
import type { DeviceBuffer } from '../../../src/pool/buffer.js'
import type { TransferredBuffer } from '../../../src/pool/transferred.js'
import type { Cast, Scenario } from '../stage.js'
import { newPool } from './shared-pool.js'

/** Threads that allocate and free, hand buffers on, and close. */
function program(seed: number, steps: number): Cast {
  const { attach, keep, take, give } = newPool()
  const sent: TransferredBuffer[] = []
  /** written and read around a message, which is seen after all that was stored before it */
  const messages = new Int32Array(new SharedArrayBuffer(4))
  let working = 2
  const work = (who: number) => {
    const random = new Random(seed * 8 + who)
    const pool = attach(who === 1)
    if (who === 1) pool.begin()
    const held: DeviceBuffer[] = []
    for (let step = 0; step < steps; step++) {
      const choice = random.below(16)
      if (choice < 6 || held.length === 0) {
        const buffer = pool.allocate(1000 + 3000 * random.below(2))
        take(buffer, who)
        held.push(buffer)
      } else if (choice < 10) {
        const buffer = held.splice(random.below(held.length), 1)[0]
        give(buffer)
        buffer.free()
      } else if (choice < 12) {
        const buffer = held.splice(random.below(held.length), 1)[0]
        give(buffer)
        const transferred = buffer.transfer()
        Atomics.add(messages, 0, 1)
        sent.push(transferred)
      } else if (choice < 15) {
        const transferred = sent.shift()
        if (transferred === undefined) continue
        Atomics.load(messages, 0)
        const buffer = pool.adopt(transferred)
        take(buffer, who)
        held.push(buffer)
      } else pool.trimTo(0)
    }
    for (const buffer of held) {
      give(buffer)
      buffer.free()
    }
    if (who === 1) {
      while (working > 1) pool.processDeferred()
      pool.check()
    }
    pool.close()
    working--
  }
  return { threads: [keep, () => work(1), () => work(2)] }
}

/** Threads that come and go, each with a number that another one had. */
function comeAndGo(): Cast {
  const { attach, keep } = newPool()
  let working = 2
  const work = () => {
    for (let turn = 0; turn < 2; turn++) {
      const pool = attach()
      assert(pool.processDeferred() >= 0, 'a question has its own answer')
      assert(pool.close().lostBuffers === 0, 'and so has the last one')
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

export const scenarios: Record<string, Scenario> = {
  'a program of a shared pool': { begin: seed => program(seed, 12), bound: null, mostSteps: 2_000_000 },
  'threads come and go, and each has its own answers': { begin: comeAndGo, bound: null, mostSteps: 2_000_000 },
}
