// The public face of cuda-mempool.

import { serveIfAsked } from './live/serve-if-asked.js'

export type { ByteSize } from './core/base/byte-size.js'
export { formatBytes, GiB, KiB, MiB, parseBytes, TiB } from './core/base/bytes.js'
export {
  CompileError,
  CudaError,
  DebugError,
  DescriptorError,
  DeviceLostError,
  type ErrorCode,
  type Fault,
  type FaultSites,
  FormatError,
  MissingFileError,
  NoDeviceError,
  NoLibraryError,
  OutOfMemoryError,
  type OutOfMemoryFigures,
  PoolError,
  type PoolErrorCode,
  type Remedy,
  SlowReplayError,
  type StreamMemory,
} from './core/base/errors.js'
export { bfloat16, float16, type SmallFloat } from './core/base/small-floats.js'
export { attachDevice, attachPool } from './core/device/attach.js'
export { Device } from './core/device/device.js'
export type { DeviceProperties } from './core/device/device-properties.js'
export { type DeviceChoice, openDevice, openDevices, parseDeviceChoice } from './core/device/open.js'
export type {
  SharedArenaDescriptor,
  SharedBlockDescriptor,
  SharedDevice,
  SharedHostDescriptor,
  SharedPoolDescriptor,
} from './core/device/shared-pools.js'
export type { Driver, KernelArguments, LaunchShape, MemPoolProperties } from './core/driver/driver.js'
export type { CompileOptions } from './core/kernel/compile-options.js'
export { deviceIncludePath } from './core/kernel/device-code.js'
export type {
  DevicePointer,
  Kernel,
  KernelArgument,
  KernelResources,
  LaunchOptions,
  Occupancy,
} from './core/kernel/kernel.js'
export type { Extent } from './core/kernel/launch-limits.js'
export type { Module } from './core/kernel/module.js'
export type { PassOptions } from './core/libraries/descriptors.js'
export { type Nvtx, type NvtxRange, openNvtx } from './core/libraries/nvtx.js'
export type { CaptureMode } from './core/order/capture.js'
export type { Event, EventOptions, SharedEvent } from './core/order/event.js'
export type { Graph } from './core/order/graph.js'
export type { GraphMemory } from './core/order/graph-memory.js'
export type { SharedStream, Stream, StreamOptions, Waitable } from './core/order/stream.js'
export type { WaitOptions } from './core/order/wait-options.js'
export type { AccessChange, AccessingDevice, AccessLocation, PoolAccess } from './core/pool/access.js'
export type { BufferOwner } from './core/pool/allocation.js'
export type { ArenaMark, ArenaOptions, ArenaPool, RegionArenaOptions } from './core/pool/arena/arena-pool.js'
export type { ArenaLease, ArenaQueue, ArenaQueueOptions } from './core/pool/arena/arena-queue.js'
export type { SharedArenaPool } from './core/pool/arena/shared-arena-pool.js'
export type { DeviceArray, SameElements, TypedArray, TypedArrayConstructor, TypedArrayOf } from './core/pool/array.js'
export type { PoolSegment, SegmentObserver } from './core/pool/backing/segment-watch.js'
export type { BlockOptions } from './core/pool/blocks/block-options.js'
export type { BlockPool } from './core/pool/blocks/block-pool.js'
export type { SharedBlockPool } from './core/pool/blocks/shared-block-pool.js'
export type { DeviceBuffer } from './core/pool/buffer.js'
export type { CachingPool, CachingPoolStats } from './core/pool/caching/caching-pool.js'
export type { DebugOptions } from './core/pool/caching/debug-options.js'
export type { PoolOptions } from './core/pool/caching/options.js'
export type { LiveBlock } from './core/pool/caching/reserving-pool.js'
export type { PoolSnapshot, SnapshotBlock } from './core/pool/caching/snapshot.js'
export type { CloseReport } from './core/pool/closable-pool.js'
export type { DebugCloseReport, DebugLiveBlock, DebugPool } from './core/pool/debug/debug-pool.js'
export type { DriverPool } from './core/pool/driver-owned/driver-pool.js'
export type { DriverPoolOptions } from './core/pool/driver-owned/driver-pool-options.js'
export type { ImportedPool } from './core/pool/driver-owned/imported-pool.js'
export type { PlainPool } from './core/pool/driver-owned/plain-pool.js'
export type { HostArray } from './core/pool/host/host-array.js'
export type { HostBuffer } from './core/pool/host/host-buffer.js'
export type { HostPoolOptions } from './core/pool/host/host-options.js'
export type { HostPool } from './core/pool/host/host-pool.js'
export type { SharedHostPool } from './core/pool/host/shared-host-pool.js'
export type { LiveGroup } from './core/pool/labels.js'
export type { GrowableBuffer, GrowableOptions } from './core/pool/mapped/growable-buffer.js'
export type { InterprocessBuffer, OpenOptions } from './core/pool/mapped/interprocess-buffer.js'
export type { Pool, PoolStats } from './core/pool/pool.js'
export type { ReservedChange } from './core/pool/reserved-watch.js'
export type { Reclaimed } from './core/pool/shared/pool-server.js'
export type { SharedPool } from './core/pool/shared/shared-pool.js'
export type { PoolThread, SharedLiveBlock } from './core/pool/shared/shared-report.js'
export type { SleepOptions, SleepProgress, WakeOptions } from './core/pool/sleep/sleep-options.js'
export type { TransferredBuffer } from './core/pool/transferred-buffer.js'
export type { Counter, Counters, TagStats } from './core/pool/wrappers/counters.js'
export { type FallbackPool, withFallback } from './core/pool/wrappers/fallback.js'
export { type LimitedPool, limited } from './core/pool/wrappers/limited.js'
export { type ProfiledOptions, type ProfiledPool, profiled } from './core/pool/wrappers/profiled.js'
export { type OnFailure, type RetryingPool, retrying } from './core/pool/wrappers/retrying.js'
export {
  type SpillableOptions,
  type SpillableSet,
  type SpillableStats,
  spillable,
} from './core/pool/wrappers/spillable.js'
export type { SpillableBuffer, UseOptions } from './core/pool/wrappers/spillable-buffer.js'
export { type StatisticsPool, type StatisticsScope, statistics } from './core/pool/wrappers/statistics.js'
export { type TaggedOptions, type TaggedPool, tagged } from './core/pool/wrappers/tagged.js'
export { createDeviceArena, type DeviceArena } from './kernel-memory/device-arena.js'
export { createDeviceHeap, type DeviceHeap } from './kernel-memory/device-heap.js'
export type { BumpStats, HeapStats } from './kernel-memory/device-layout.js'
export type { DeviceRegion } from './kernel-memory/device-region.js'
export type { KernelMemoryOptions } from './kernel-memory/kernel-memory.js'
export { SimulatedArena, SimulatedHeap } from './kernel-memory/simulated-memory.js'
export {
  createStreamArenas,
  type RegionPool,
  type StreamArenas,
  type StreamArenasOptions,
} from './kernel-memory/stream-arenas.js'

serveIfAsked()
