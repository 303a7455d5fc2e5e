// Opens simulated drivers for tests of this folder.

import type { SimulatedOptions } from './options.js'
import { SimulatedDriver } from './simulated-driver.js'

/** A simulated driver for one test, with the context of device 0 current. */
export function openSimulated(options: SimulatedOptions = {}): SimulatedDriver {
  const driver = new SimulatedDriver(options)
  driver.cuInit()
  driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(driver.cuDeviceGet(0)))
  return driver
}
