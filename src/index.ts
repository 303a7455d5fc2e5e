// The public face of cuda-mempool.

import { serveIfAsked } from './live/serve-if-asked.js'

export type { ByteSize } from './base/byte-size.js'
export { formatBytes, GiB, KiB, MiB, parseBytes, TiB } from './base/bytes.js'
export {
  CompileError,
  CudaError,
  DebugError,
  DescriptorError,
  DeviceLostError,
  type Fault,
  type FaultSites,
  FormatError,
  MissingFileError,
  NoDeviceError,
  NoLibraryError,
  OutOfMemoryError,
  type OutOfMemoryFigures,
  PoolError,
  type Remedy,
  SlowReplayError,
  type StreamMemory,
} from './base/errors.js'
export { attachDevice, attachPool } from './device/attach.js'
export {
  Device,
  type SharedArenaDescriptor,
  type SharedBlockDescriptor,
  type SharedDevice,
  type SharedHostDescriptor,
  type SharedPoolDescriptor,
} from './device/device.js'
export type { DeviceProperties } from './device/device-properties.js'
export { type DeviceChoice, openDevice, openDevices, parseDeviceChoice } from './device/open.js'
export type { Driver, KernelArguments, LaunchShape, MemPoolProperties } from './driver/driver.js'
export type { CompileOptions } from './kernel/compile-options.js'
export { deviceIncludePath } from './kernel/device-code.js'
export type {
  DevicePointer,
  Kernel,
  KernelArgument,
  KernelResources,
  LaunchOptions,
  Occupancy,
} from './kernel/kernel.js'
export type { Extent } from './kernel/launch-limits.js'
export type { Module } from './kernel/module.js'
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
export type { PassOptions } from './libraries/descriptors.js'
export { type Nvtx, type NvtxRange, openNvtx } from './libraries/nvtx.js'
export type { CaptureMode } from './order/capture.js'
export type { Event, EventOptions, SharedEvent } from './order/event.js'
export type { Graph } from './order/graph.js'
export type { GraphMemory } from './order/graph-memory.js'
export type { SharedStream, Stream, StreamOptions, Waitable } from './order/stream.js'
export type { AccessChange, AccessLocation, PoolAccess } from './pool/access.js'
export type { BufferOwner } from './pool/allocation.js'
export type { ArenaMark, ArenaOptions, ArenaPool, RegionArenaOptions } from './pool/arena/arena-pool.js'
export type { ArenaLease, ArenaQueue, ArenaQueueOptions } from './pool/arena/arena-queue.js'
export type { SharedArenaPool } from './pool/arena/shared-arena-pool.js'
export type { DeviceArray, SameElements, TypedArray, TypedArrayConstructor, TypedArrayOf } from './pool/array.js'
export type { PoolSegment, SegmentObserver } from './pool/backing/segment-watch.js'
export type { BlockOptions } from './pool/blocks/block-options.js'
export type { BlockPool } from './pool/blocks/block-pool.js'
export type { SharedBlockPool } from './pool/blocks/shared-block-pool.js'
export type { DeviceBuffer } from './pool/buffer.js'
export type { CachingPool, CachingPoolStats, LiveBlock } from './pool/caching/caching-pool.js'
export type { DebugOptions } from './pool/caching/debug-options.js'
export type { PoolOptions } from './pool/caching/options.js'
export type { PoolSnapshot, SnapshotBlock } from './pool/caching/snapshot.js'
export type { CloseReport } from './pool/closable-pool.js'
export type { DebugCloseReport, DebugLiveBlock, DebugPool } from './pool/debug/debug-pool.js'
export type { DriverPool } from './pool/driver-owned/driver-pool.js'
export type { DriverPoolOptions } from './pool/driver-owned/driver-pool-options.js'
export type { ImportedPool } from './pool/driver-owned/imported-pool.js'
export type { PlainPool } from './pool/driver-owned/plain-pool.js'
export type { HostArray, HostBuffer } from './pool/host/host-buffer.js'
export type { HostPoolOptions } from './pool/host/host-options.js'
export type { HostPool } from './pool/host/host-pool.js'
export type { SharedHostPool } from './pool/host/shared-host-pool.js'
export type { LiveGroup } from './pool/labels.js'
export type { GrowableBuffer, GrowableOptions } from './pool/mapped/growable-buffer.js'
export type { InterprocessBuffer, OpenOptions } from './pool/mapped/interprocess-buffer.js'
export type { Pool, PoolStats } from './pool/pool.js'
export type { ReservedChange } from './pool/reserved-watch.js'
export type { Reclaimed } from './pool/shared/pool-server.js'
export type { SharedPool } from './pool/shared/shared-pool.js'
export type { PoolThread, SharedLiveBlock } from './pool/shared/shared-report.js'
export type { SleepOptions, SleepProgress, WakeOptions } from './pool/sleep/sleep-options.js'
export type { TransferredBuffer } from './pool/transferred-buffer.js'
export type { WaitOptions } from './pool/wait-options.js'
export type { Counter, Counters } from './pool/wrappers/counters.js'
export { type FallbackPool, withFallback } from './pool/wrappers/fallback.js'
export { type LimitedPool, limited } from './pool/wrappers/limited.js'
export { type ProfiledOptions, type ProfiledPool, profiled } from './pool/wrappers/profiled.js'
export { type OnFailure, type RetryingPool, retrying } from './pool/wrappers/retrying.js'
export { type SpillableOptions, type SpillableSet, type SpillableStats, spillable } from './pool/wrappers/spillable.js'
export type { SpillableBuffer, UseOptions } from './pool/wrappers/spillable-buffer.js'
export { type StatisticsPool, type StatisticsScope, statistics } from './pool/wrappers/statistics.js'
export { type TaggedOptions, type TaggedPool, type TagStats, tagged } from './pool/wrappers/tagged.js'
export { replayDevices } from './trace/replay-devices.js'

serveIfAsked()
