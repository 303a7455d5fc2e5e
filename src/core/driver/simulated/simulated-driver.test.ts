import { driverSuite } from '../driver.suite.js'
import { SimulatedDriver } from './simulated-driver.js'

driverSuite('simulated, eager, one device', () => new SimulatedDriver({ progress: 'eager' }))
for (const seed of [1, 2, 3]) {
  driverSuite(`simulated, seed ${seed}, two devices`, () => new SimulatedDriver({ seed, devices: 2 }))
}
