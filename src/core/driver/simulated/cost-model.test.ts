import assert from 'node:assert/strict'
import { test } from 'node:test'
import { GiB, MiB } from '../../base/bytes.js'
import { CALL_NAMES } from '../table.js'
import { costOfMappingUs, costUs } from './cost-model.js'
import { openSimulated } from './opened.fixture.js'
import type { SimulatedDriver } from './simulated-driver.js'

const near = (actual: number, expected: number) =>
  assert.ok(Math.abs(actual - expected) < 1e-6 * expected, `${actual} is not ${expected}`)

function microsecondsOf(driver: SimulatedDriver, act: () => void): number {
  const before = driver.modelledSeconds
  act()
  return (driver.modelledSeconds - before) * 1e6
}

test('costs equal the measured costs at measured sizes, and lie between them at sizes in between', () => {
  near(costUs('cuMemCreate', 2 * MiB), 5.4)
  near(costUs('cuMemRelease', 128 * MiB), 32)
  near(costUs('cuMemSetAccess', 1 * GiB), 52)
  near(costUs('cuMemSetAccess', 11 * MiB), 15.9)
  near(costUs('cuMemAlloc', 4096), 25)
  near(costUs('cuMemRelease', 2 * GiB), 212 + (180 * 1024) / 896)
  near(costUs('cuEventRecord', 0), 0.123)
  near(costOfMappingUs('cuMemSetAccess', 2 * MiB, 1), 15.8)
  near(costOfMappingUs('cuMemSetAccess', 2 * MiB, 512), 20.7)
  near(costOfMappingUs('cuMemUnmap', 1 * GiB, 2), 27)
})

test('the driver adds up the costs of its calls', () => {
  const driver = openSimulated()
  near(
    microsecondsOf(driver, () => driver.cuMemFree(driver.cuMemAlloc(MiB))),
    51,
  )
  const base = driver.cuMemAddressReserve(8 * MiB, 0)
  const handles = [0, 1, 2].map(() => driver.cuMemCreate(2 * MiB, 0, 0))
  near(
    microsecondsOf(driver, () => {
      for (const [i, handle] of handles.entries()) driver.cuMemMap(base + i * 2 * MiB, 2 * MiB, handle)
    }),
    1.5,
  )
  near(
    microsecondsOf(driver, () => driver.cuMemSetAccess(base, 6 * MiB, [0])),
    3 * 20.7,
  )
  near(
    microsecondsOf(driver, () => driver.cuMemFree(driver.cuMemAllocManaged(GiB, 1))),
    106,
  )
  near(
    microsecondsOf(driver, () => driver.cuMemUnmap(base, 4 * MiB)),
    2 * 13.2,
  )
  near(
    microsecondsOf(driver, () => driver.cuMemUnmap(base + 4 * MiB, 2 * MiB)),
    11.4,
  )
  near(
    microsecondsOf(driver, () => driver.cuMemRelease(handles[0])),
    7.1,
  )
  const warm = driver.cuMemAllocAsync(MiB, 0)
  near(
    microsecondsOf(driver, () => driver.cuMemFreeAsync(driver.cuMemAllocAsync(MiB, 0), 0)),
    0.454,
  )
  driver.cuMemFreeAsync(warm, 0)
})

test('access for a second device costs extra, and more the first time', () => {
  const driver = openSimulated({ devices: 2 })
  const base = driver.cuMemAddressReserve(2 * MiB, 0)
  driver.cuMemMap(base, 2 * MiB, driver.cuMemCreate(2 * MiB, 0, 0))
  const grant = () => driver.cuMemSetAccess(base, 2 * MiB, [0, 1])
  near(microsecondsOf(driver, grant), 2 * 15.8 + 1000)
  near(microsecondsOf(driver, grant), 2 * 15.8)
})

test('the driver has each function of the contract, and counts its calls under its name', () => {
  const driver = openSimulated()
  const methods = methodsOf(driver).filter(name => /^cu[A-Z]/.test(name))
  assert.deepEqual(methods.sort(), CALL_NAMES.toSorted())
  assert.deepEqual(Object.fromEntries(driver.calls), {
    cuInit: 1,
    cuDeviceGet: 1,
    cuDevicePrimaryCtxRetain: 1,
    cuCtxSetCurrent: 1,
  })
})

/** The names of all methods, inherited ones too. */
function methodsOf(driver: SimulatedDriver): string[] {
  const names = new Set<string>()
  for (let type = Object.getPrototypeOf(driver); type !== Object.prototype; type = Object.getPrototypeOf(type)) {
    for (const name of Object.getOwnPropertyNames(type)) names.add(name)
  }
  return [...names]
}
