// The contract tests: both drivers pass them, the simulated driver and libcuda on a GPU. They test behaviour that
// CUDA documents or that was measured on a real driver, one file a chapter in contract/. Behaviour that kills the
// context, or that is undefined on a real driver, is tested with the simulated driver alone.

import { describe } from 'node:test'
import { batchSuite } from './contract/batches.suite.js'
import { DriverFixture } from './contract/contract.fixture.js'
import { deviceSuite } from './contract/devices.suite.js'
import { graphSuite } from './contract/graphs.suite.js'
import { kernelSuite } from './contract/kernels.suite.js'
import { memorySuite } from './contract/memory.suite.js'
import { poolSuite } from './contract/pools.suite.js'
import { streamSuite } from './contract/streams.suite.js'
import { virtualMemorySuite } from './contract/virtual-memory.suite.js'
import type { Driver } from './driver.js'

/**
 * Runs the contract tests. `open` is called once for each test. `newHost` makes host memory that is to be registered;
 * it must be shared memory if the driver belongs to another thread.
 */
export function driverSuite(
  name: string,
  open: () => Driver,
  newHost = (bytes: number): Uint8Array => new Uint8Array(bytes),
): void {
  describe(`driver contract: ${name}`, () => {
    const fixture = new DriverFixture(open, newHost)
    deviceSuite(fixture)
    memorySuite(fixture)
    batchSuite(fixture)
    streamSuite(fixture)
    kernelSuite(fixture)
    graphSuite(fixture)
    virtualMemorySuite(fixture)
    poolSuite(fixture)
  })
}
