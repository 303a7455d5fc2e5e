// The choice of an NCCL for a driver.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import type { Driver } from '../core/driver/driver.js'
import { SimulatedDriver } from '../core/driver/simulated/simulated-driver.js'
import { ncclFor, useNccl } from './nccl-for.js'
import { openSimulatedNccl } from './simulated/simulated-nccl.js'

test('the devices of a simulated driver have one NCCL', () => {
  const [driver, other] = [new SimulatedDriver({ devices: 2 }), new SimulatedDriver()]
  const nccl = ncclFor(driver)
  assert.ok(nccl.simulated)
  assert.equal(ncclFor(driver), nccl)
  assert.notEqual(ncclFor(other), nccl)
})

test('a simulated driver can get an NCCL of another version', () => {
  const driver = new SimulatedDriver()
  const old = openSimulatedNccl(driver, { version: 21900 })
  useNccl(driver, old)
  assert.equal(ncclFor(driver), old)
})

test("a simulated driver of one's own has none", () => {
  assert.throws(() => ncclFor({ simulated: true } as Driver), {
    name: 'PoolError',
    code: 'ERR_NOT_SUPPORTED',
    message: /need a device that this thread has opened: openDevice\('simulated'\)$/,
  })
})
