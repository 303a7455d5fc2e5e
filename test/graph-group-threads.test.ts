// Several threads launch graphs that share memory, and some of them end meanwhile.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { setImmediate } from 'node:timers/promises'
import { openDevice } from '../src/core/device/open.js'
import { SimulatedDriver } from '../src/core/driver/simulated/simulated-driver.js'
import { start } from './device-threads.fixture.js'
import { areOwn, launcher, newLaunches, PLACES } from './graph-group-threads.fixture.js'

const SEED = Number(process.env['GROUP_THREADS_SEED'] ?? 1)

describe(`graphs that several threads launch (GROUP_THREADS_SEED=${SEED})`, () => {
  const open = () => openDevice(new SimulatedDriver({ progress: 'seeded', seed: SEED }))

  it('never overlap', async () => {
    const device = open()
    device.share()
    const launches = newLaunches(device, 3)
    const { order, launch } = launcher(device, launches, 3)
    const others = [1, 2].map(value => start(device, 'launch', launches, value, PLACES))
    let own = 0
    const ended = Promise.all(others.map(({ done }) => done)).then(() => true)
    for (let isOver = false; !isOver; isOver = await Promise.race([ended, setImmediate(false)])) launch(own++)
    assert.equal(order.launches, 2 * PLACES + own)
    assert.ok(order.waits > 0)
    device.synchronize()
    for (const value of [1, 2, 3]) {
      assert.ok(areOwn(device, launches, value, value === 3 ? Math.min(own, PLACES) : PLACES), `graph ${value}`)
    }
  })

  it('go on after a thread that ended in the middle', async () => {
    const device = open()
    device.share()
    const launches = newLaunches(device, 6)
    const { order, launch } = launcher(device, launches, 1)
    let own = 0
    for (const value of [2, 3, 4, 5, 6]) {
      const { thread } = start(device, 'launch', launches, value, Number.MAX_SAFE_INTEGER)
      for (const until = order.launches + 5 * value; order.launches < until; ) await setImmediate()
      await thread.terminate()
      for (let time = 0; time < 5; time++) launch(own++)
      assert.equal(order.latest, 1)
    }
    device.clocks.buryStreams()
    device.synchronize()
    for (const value of [1, 2, 3, 4, 5, 6]) assert.ok(areOwn(device, launches, value, 5), `graph ${value}`)
  })
})
