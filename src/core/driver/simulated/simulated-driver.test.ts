import { driverSuite } from '../driver.suite.js'
import { SimulatedDriver } from './simulated-driver.js'

driverSuite('simulated, eager, one device', () => new SimulatedDriver({ progress: 'eager' }))
for (const [index, fabricHandles] of ([false, true, 'refused'] as const).entries()) {
  const seed = index + 1
  driverSuite(
    `simulated, seed ${seed}, two devices, fabric handles ${fabricHandles}`,
    () => new SimulatedDriver({ seed, devices: 2, fabricHandles }),
  )
}
