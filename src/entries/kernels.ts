// cuda-mempool/kernels: memory that running kernels allocate from, and what a compiled kernel needs.

export { deviceIncludePath } from '../core/kernel/device-code.js'
export type { KernelResources, Occupancy } from '../core/kernel/kernel.js'
export { createDeviceArena, type DeviceArena } from '../kernel-memory/device-arena.js'
export { createDeviceHeap, type DeviceHeap } from '../kernel-memory/device-heap.js'
export type { BumpStats } from '../kernel-memory/device-layout.js'
export type { DeviceRegion } from '../kernel-memory/device-region.js'
export type { HeapStats } from '../kernel-memory/heap-stats.js'
export type { KernelMemoryOptions } from '../kernel-memory/kernel-memory.js'
export { SimulatedArena, SimulatedHeap } from '../kernel-memory/simulated-memory.js'
export {
  createStreamArenas,
  type RegionPool,
  type StreamArenas,
  type StreamArenasOptions,
} from '../kernel-memory/stream-arenas.js'
