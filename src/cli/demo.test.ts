import assert from 'node:assert/strict'
import { test } from 'node:test'
import { SimulatedDriver } from '../core/driver/simulated/simulated-driver.js'
import { demo } from './demo.js'

test('the demo frees all of its memory', async () => {
  const driver = new SimulatedDriver({ capacityBytes: 2 ** 30 })
  await demo(driver, () => {})
  driver.cuInit()
  driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(0))
  assert.equal(driver.cuMemGetInfo().freeBytes, 2 ** 30)
})
