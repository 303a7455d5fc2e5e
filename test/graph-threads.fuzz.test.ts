// Random programs of worker threads with one group of graphs. They capture, launch, use outputs, free and close side by
// side, on a device that runs work in a random order. They end in different ways, also in a capture. Each thread checks
// its results; at the end nothing is left. SEED repeats the steps of each thread; their order among threads varies.

import assert from 'node:assert/strict'
import { once } from 'node:events'
import { describe, it } from 'node:test'
import { setImmediate } from 'node:timers/promises'
import { Worker } from 'node:worker_threads'
import { MiB } from '../src/core/base/bytes.js'
import { Random } from '../src/core/base/random.js'
import { openDevice } from '../src/core/device/open.js'
import { SimulatedDriver } from '../src/core/driver/simulated/simulated-driver.js'
import { ENDINGS, GraphProgram, type GraphThreadData } from './graph-threads.worker.js'
import { threadProgram } from './thread-program.fixture.js'

const PROGRAM = threadProgram(new URL('./graph-threads.worker.js', import.meta.url))
const CAPACITY = 64 * MiB
const STEPS = 60
const FIRST = Number(process.env['SEED'] ?? 1)
const PROGRAMS = process.env['SEED'] === undefined ? 8 : 1

type Taken = GraphProgram['taken']

async function runThread(data: GraphThreadData): Promise<Taken> {
  const worker = new Worker(PROGRAM, { workerData: { does: 'graphs', ...data } })
  const exit = once(worker, 'exit')
  const [taken] = (await once(worker, 'message')) as [Taken]
  await exit
  return taken
}

/** Runs one program; returns the steps of its threads. */
async function runProgram(seed: number): Promise<Taken[]> {
  const random = new Random(seed)
  const driver = new SimulatedDriver({ capacityBytes: CAPACITY, progress: 'seeded', seed })
  const device = openDevice(driver)
  const pool = device.createSharedPool({ maxPoolBytes: CAPACITY - 8 * MiB })
  const group = pool.createGraphGroup({ poison: random.below(3) === 0 })
  const shared = { pool: pool.share(), group: group.share() }
  const threads = Promise.all(
    Array.from({ length: 2 + random.below(2) }, (_, index) => {
      const ending = ENDINGS[random.below(ENDINGS.length)]
      return runThread({ ...shared, seed: seed + 1000 * index, steps: STEPS, ending })
    }),
  )
  const own = new GraphProgram(pool, group, [device.createStream()], seed)
  let isOver = false
  const results = threads.finally(() => (isOver = true))
  while (!isOver) {
    own.step()
    await setImmediate() // the device's thread answers the others
  }
  const taken = await results
  own.finish()
  for (const { thread, alive } of pool.threads()) if (!alive) pool.reclaim(thread)
  pool.check()
  assert.equal(pool.stats().liveBuffers, 0)
  assert.equal(group.stats().graphs, 0)
  group.close()
  device.synchronize()
  pool.trimTo(0)
  assert.equal(pool.stats().reservedBytes, 0)
  device.close()
  assert.equal(driver.usedBytes(), 0)
  return [...taken, own.taken]
}

describe('threads with one group of graphs', () => {
  it('give right results, and leave nothing behind', { timeout: 120_000 }, async test => {
    test.diagnostic(`seeds ${FIRST} to ${FIRST + PROGRAMS - 1}`)
    const sums: Record<string, number> = {}
    for (let seed = FIRST; seed < FIRST + PROGRAMS; seed++) {
      try {
        for (const taken of await runProgram(seed)) {
          for (const [name, times] of Object.entries(taken)) sums[name] = (sums[name] ?? 0) + times
        }
      } catch (error) {
        const command = `SEED=${seed} node --test dist/test/graph-threads.fuzz.test.js`
        throw new Error(`replay: ${command}`, { cause: error })
      }
    }
    test.diagnostic(JSON.stringify(sums))
    for (const name of ['capture', 'launch', 'check']) assert.ok(sums[name] > 10 * PROGRAMS, name)
  })
})
