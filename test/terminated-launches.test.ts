// A thread launches graphs that share memory, after threads that were terminated in the middle of their launches. Where
// each was then is chance; `src/core/pool/caching/captures/group-order.test.ts` ends a thread at each store.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { setImmediate } from 'node:timers/promises'
import { openDevice } from '../src/core/device/open.js'
import { SimulatedDriver } from '../src/core/driver/simulated/simulated-driver.js'
import { start } from './device-threads.fixture.js'
import { areOwn, launcher, newLaunches } from './terminated-launches.fixture.js'

const SEED = Number(process.env['GROUP_THREADS_SEED'] ?? 1)
const LAUNCHES = 5

describe(`launches of a group (GROUP_THREADS_SEED=${SEED})`, () => {
  it('go on after a thread that was terminated in the middle, and never overlap', async () => {
    const device = openDevice(new SimulatedDriver({ progress: 'seeded', seed: SEED }))
    device.share()
    const others = [2, 3, 4, 5, 6]
    const launches = newLaunches(device, others.length + 1)
    const { order, launch } = launcher(device, launches, 1)
    for (const value of others) {
      const { thread } = start(device, 'launchForEver', launches, value)
      for (const until = order.launches + 2 * LAUNCHES + value; order.launches < until; ) await setImmediate()
      await thread.terminate()
      for (let time = 0; time < LAUNCHES; time++) launch(time)
      assert.equal(order.latest, 1)
    }
    assert.ok(order.waits >= others.length)
    device.clocks.buryStreams()
    device.synchronize()
    for (const value of [1, ...others]) assert.ok(areOwn(device, launches, value, LAUNCHES), `graph ${value}`)
  })
})
