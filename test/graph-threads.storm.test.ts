// Threads with one group of graphs that are terminated at random: in a capture, in a request, in a launch.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { MiB } from '../src/core/base/bytes.js'
import { openDevice } from '../src/core/device/open.js'
import { SimulatedDriver } from '../src/core/driver/simulated/simulated-driver.js'
import { runGraphThreads } from './graph-threads.fixture.js'

const SEED = Number(process.env['STORM_SEED'] ?? 1)
const TERMINATIONS = Number(process.env['STORM_TERMINATIONS'] ?? 40)
const STEPS = 30

test('graphs of other threads stay right, and nothing is left, when threads are terminated', async test => {
  test.diagnostic(`STORM_SEED=${SEED}`)
  let ended = 0
  for (let seed = SEED; ended < TERMINATIONS; seed++) {
    try {
      const driver = new SimulatedDriver({ capacityBytes: 64 * MiB, progress: 'seeded', seed })
      const threads = await runGraphThreads(openDevice(driver), seed, STEPS, 1, ['terminated'])
      ended += threads.length - 1
      assert.equal(driver.usedBytes(), 0)
    } catch (error) {
      throw new Error(`replay: STORM_SEED=${seed} node --test dist/test/graph-threads.storm.test.js`, { cause: error })
    }
  }
})
