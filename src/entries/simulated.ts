// cuda-mempool/simulated: the simulated GPU, for tests and for runs of programs without a GPU.

export type { FaultRule } from '../core/driver/simulated/faults.js'
export type {
  DeviceMemory,
  NumberArray,
  NumberArrayConstructor,
} from '../core/driver/simulated/memory/device-memory.js'
export type { SimulatedOptions } from '../core/driver/simulated/options.js'
export { SimulatedDriver } from '../core/driver/simulated/simulated-driver.js'
export type { WorkPoint } from '../core/driver/simulated/streams/stream-queue.js'
export {
  type LaunchArguments,
  registerSimulatedKernel,
  type SimulatedKernel,
  type SimulatedLaunch,
  threadCount,
} from '../core/driver/simulated-kernels.js'
