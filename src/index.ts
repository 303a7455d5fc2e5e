// The public face of cuda-mempool.

export { formatBytes, GiB, KiB, MiB, TiB } from './base/bytes.js'
export {
  CompileError,
  CudaError,
  DebugError,
  DescriptorError,
  DeviceLostError,
  type Fault,
  type FaultSites,
  FormatError,
  NoDeviceError,
  NoLibraryError,
  OutOfMemoryError,
  type OutOfMemoryFigures,
  PoolError,
  type Remedy,
  type StreamMemory,
} from './base/errors.js'
export {
  attachDevice,
  attachPool,
  Device,
  type DeviceChoice,
  openDevice,
  openDevices,
  parseDeviceChoice,
  type SharedArenaDescriptor,
  type SharedBlockDescriptor,
  type SharedDevice,
  type SharedHostDescriptor,
  type SharedPoolDescriptor,
} from './device.js'
export type { Driver } from './driver/driver.js'
export { type Nvtx, type NvtxRange, openNvtx } from './driver/native/nvtx.js'
export type { CompileOptions } from './kernel/compile-options.js'
export type { DeviceArena } from './kernel/device-arena.js'
export { deviceIncludePath } from './kernel/device-code.js'
export type { DeviceHeap } from './kernel/device-heap.js'
export type { BumpStats, HeapStats } from './kernel/device-layout.js'
export type { DeviceRegion } from './kernel/device-region.js'
export type {
  DevicePointer,
  Kernel,
  KernelArgument,
  KernelResources,
  LaunchOptions,
  Occupancy,
} from './kernel/kernel.js'
export type { KernelMemoryOptions } from './kernel/kernel-memory.js'
export type { Extent } from './kernel/launch-limits.js'
export type { Module } from './kernel/module.js'
export { SimulatedArena, SimulatedHeap } from './kernel/simulated-memory.js'
export type { RegionPool, StreamArenas, StreamArenasOptions } from './kernel/stream-arenas.js'
export type { CaptureMode } from './order/capture.js'
export type { Event, SharedEvent } from './order/event.js'
export type { Graph } from './order/graph.js'
export type { GraphMemory } from './order/graph-memory.js'
export type { SharedStream, Stream } from './order/stream.js'
export type { AccessChange, AccessLocation, PoolAccess } from './pool/access.js'
export { aligned } from './pool/aligned.js'
export type { ArenaMark, ArenaOptions, ArenaPool } from './pool/arena-pool.js'
export type { DeviceArray, TypedArray } from './pool/array.js'
export type { BlockOptions, BlockPool } from './pool/block-pool.js'
export type { DeviceBuffer } from './pool/buffer.js'
export type { CachingPool, CloseReport, LiveBlock } from './pool/caching-pool.js'
export type { Counter, Counters } from './pool/counters.js'
export type { DebugOptions } from './pool/debug-options.js'
export type { DebugCloseReport, DebugLiveBlock, DebugPool } from './pool/debug-pool.js'
export type { DriverPool } from './pool/driver-pool.js'
export type { DriverPoolAttribute } from './pool/driver-pool-attributes.js'
export type { DriverPoolOptions } from './pool/driver-pool-options.js'
export { type FallbackPool, withFallback } from './pool/fallback.js'
export type { GrowableBuffer, GrowableOptions } from './pool/growable-buffer.js'
export type { HostArray, HostBuffer } from './pool/host-buffer.js'
export type { HostPoolOptions } from './pool/host-options.js'
export type { HostPool } from './pool/host-pool.js'
export type { ImportedPool } from './pool/imported-pool.js'
export { type LimitedPool, limited } from './pool/limited.js'
export type { PoolOptions } from './pool/options.js'
export type { PlainPool } from './pool/plain-pool.js'
export type { Pool, PoolStats } from './pool/pool.js'
export { type ProfiledOptions, type ProfiledPool, profiled } from './pool/profiled.js'
export { type OnFailure, retrying } from './pool/retrying.js'
export type { SharedArenaPool } from './pool/shared-arena-pool.js'
export type { SharedBlockPool } from './pool/shared-block-pool.js'
export type { OpenOptions, SharedBuffer } from './pool/shared-buffer.js'
export type { SharedHostPool } from './pool/shared-host-pool.js'
export type { PoolThread, SharedPool } from './pool/shared-pool.js'
export type { PoolSnapshot, SnapshotBlock } from './pool/snapshot.js'
export { type StatisticsPool, type StatisticsScope, statistics } from './pool/statistics.js'
export { type TaggedOptions, type TaggedPool, type TagStats, tagged } from './pool/tagged.js'
export type { TransferredBuffer } from './pool/transferred.js'
