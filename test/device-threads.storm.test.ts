// DEVICE_SEED and DEVICE_TERMINATIONS replay and lengthen.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { setImmediate } from 'node:timers/promises'
import { Random } from '../src/core/base/random.js'
import { openDevice } from '../src/core/device/open.js'
import { SimulatedDriver } from '../src/core/driver/simulated/simulated-driver.js'
import { MOST_STREAMS } from '../src/core/order/clocks.js'
import { start } from './device-threads.fixture.js'

const SEED = Number(process.env['DEVICE_SEED'] ?? 1)
const TERMINATIONS = Number(process.env['DEVICE_TERMINATIONS'] ?? 12)

test(`the streams of terminated threads come back (DEVICE_SEED=${SEED} DEVICE_TERMINATIONS=${TERMINATIONS})`, async () => {
  const driver = new SimulatedDriver({ progress: 'eager' })
  const device = openDevice(driver)
  const { clocks } = device
  const random = new Random(SEED)
  const kept = device.createStream()
  for (let count = 0; count < TERMINATIONS; count += 3) {
    const together = Array.from({ length: 3 }, () => start(device, 'churn', 18, random.next()))
    await Promise.all(together.map(({ done }) => done))
    for (let turns = random.below(60); turns > 0; turns--) await setImmediate()
    const release = driver.releaseThrough.bind(driver, kept.handle, driver.holdOperation(kept.handle))
    await Promise.all(together.map(({ thread }) => thread.terminate()))
    release()
    kept.synchronize()
    for (let slot = 0; slot < MOST_STREAMS; slot++) {
      assert.ok(!clocks.isOpen(slot) || clocks.completed[slot] <= clocks.marked[slot])
    }
  }
  const streams = Array.from({ length: MOST_STREAMS - 2 }, () => device.createStream())
  assert.equal(new Set(streams.map(({ slot }) => slot)).size, MOST_STREAMS - 2)
  assert.throws(() => device.createStream(), /2048 streams are open/)
  device.close()
})
