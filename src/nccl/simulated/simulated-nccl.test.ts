import { SimulatedDriver } from '../../core/driver/simulated/simulated-driver.js'
import { ncclSuite } from '../nccl.suite.js'
import { openSimulatedNccl } from './simulated-nccl.js'

function open(version: number, progress: 'eager' | 'seeded', seed = 1) {
  const driver = new SimulatedDriver({ devices: 2, progress, seed })
  return { driver, nccl: openSimulatedNccl(driver, { version }) }
}

ncclSuite('simulated, 2.19, eager', () => open(21903, 'eager'))
for (const [seed, version] of [22304, 22707, 22809, 22907, 23007].entries()) {
  ncclSuite(`simulated, ${version}, seed ${seed}`, () => open(version, 'seeded', seed))
}
