import assert from 'node:assert/strict'
import { ObservedDriver } from './observed-driver.js'
import { CAPACITY_BYTES, GRANULE_BYTES } from './settings.js'

/** An observed driver of devices with little memory. */
export function newSmallDriver(progress: 'eager' | 'seeded', seed: number, devices = 1): ObservedDriver {
  return new ObservedDriver({
    devices,
    capacityBytes: CAPACITY_BYTES,
    granularityBytes: GRANULE_BYTES,
    progress,
    seed,
  })
}

export function assertNothingLeft(driver: ObservedDriver): void {
  assert.equal(driver.usedBytes(), 0, 'all memory is given back')
  assert.equal(driver.leaks, '', 'all that was made is given back')
}
