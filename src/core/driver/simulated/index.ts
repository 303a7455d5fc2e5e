// The public API of the simulated GPU, for tests and for runs of programs without a GPU. The package exports it as
// `cuda-mempool/simulated`.

export type { CallName, KernelArguments, LaunchShape, MemPoolProperties } from '../driver.js'
export {
  LaunchArguments,
  registerSimulatedKernel,
  type SimulatedKernel,
  type SimulatedLaunch,
  threadCount,
} from '../simulated-kernels.js'
export type { FaultRule } from './faults.js'
export { DeviceMemory, type NumberArray, type NumberArrayConstructor } from './memory/device-memory.js'
export type { SimulatedOptions } from './options.js'
export { SimulatedDriver } from './simulated-driver.js'
export type { WorkPoint } from './streams/stream-queue.js'
