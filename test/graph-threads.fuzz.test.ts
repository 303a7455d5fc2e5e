// Random programs of worker threads with one group of graphs, on a device that runs work in a random order. SEED
// repeats the steps of each thread; their order among threads varies.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { MiB } from '../src/core/base/bytes.js'
import { openDevice } from '../src/core/device/open.js'
import { SimulatedDriver } from '../src/core/driver/simulated/simulated-driver.js'
import { runGraphThreads } from './graph-threads.fixture.js'

const STEPS = 60
const FIRST = Number(process.env['SEED'] ?? 1)
const PROGRAMS = process.env['SEED'] === undefined ? 8 : 1

test('threads with one group of graphs have right results, and leave nothing behind', async test => {
  test.diagnostic(`seeds ${FIRST} to ${FIRST + PROGRAMS - 1}`)
  const sums: Record<string, number> = {}
  for (let seed = FIRST; seed < FIRST + PROGRAMS; seed++) {
    try {
      const driver = new SimulatedDriver({ capacityBytes: 64 * MiB, progress: 'seeded', seed })
      for (const taken of await runGraphThreads(openDevice(driver), seed, STEPS, 1)) {
        for (const [name, times] of Object.entries(taken)) sums[name] = (sums[name] ?? 0) + times
      }
      assert.equal(driver.usedBytes(), 0)
    } catch (error) {
      throw new Error(`replay: SEED=${seed} node --test dist/test/graph-threads.fuzz.test.js`, { cause: error })
    }
  }
  test.diagnostic(JSON.stringify(sums))
  for (const name of ['capture', 'launch', 'check']) assert.ok(sums[name] > 10 * PROGRAMS, name)
})
