// The simulated GPU, a part of the public API: for tests and for looking at programs without a GPU.

export { DeviceMemory, type NumberArray, type NumberArrayConstructor } from './device-memory.js'
export type { FaultRule } from './faults.js'
export {
  LaunchArguments,
  registerSimulatedKernel,
  type SimulatedKernel,
  type SimulatedLaunch,
  threadCount,
} from './kernels.js'
export type { SimulatedOptions } from './options.js'
export type { CallName } from './price-list.js'
export { SimulatedDriver } from './simulated-driver.js'
export type { WorkPoint } from './stream-queue.js'
