// The main entry point: devices, streams, pools and their wrappers, arrays, kernels and graphs. All other names lie in
// src/entries/, by their use.

import { serveIfAsked } from './live/serve-if-asked.js'

export type { ByteSize, FixedSize } from './core/base/byte-size.js'
export { formatBytes, GiB, KiB, MiB, parseBytes, TiB } from './core/base/bytes.js'
export {
  CompileError,
  CudaError,
  DebugError,
  DeviceLostError,
  type ErrorCode,
  MissingFileError,
  NoDeviceError,
  NoLibraryError,
  OutOfMemoryError,
  PoolError,
  type PoolErrorCode,
  type Remedy,
} from './core/base/errors.js'
export { bfloat16, float16, type SmallFloat } from './core/base/small-floats.js'
export type { Device } from './core/device/device.js'
export type { DeviceProperties } from './core/device/device-properties.js'
export { type DeviceChoice, openDevice, openDevices } from './core/device/open.js'
export type { CompileOptions } from './core/kernel/compile-options.js'
export type { DevicePointer, Kernel, KernelArgument, LaunchOptions } from './core/kernel/kernel.js'
export type { Extent } from './core/kernel/launch-limits.js'
export type { KernelOptions, Module } from './core/kernel/module.js'
export type { CaptureMode } from './core/order/capture.js'
export type { Event, EventOptions } from './core/order/event.js'
export type { Graph } from './core/order/graph.js'
export type { Stream, StreamOptions } from './core/order/stream.js'
export type { LineOptions, WaitOptions } from './core/order/wait-options.js'
export type { ArenaMark } from './core/pool/arena/arena-mark.js'
export type {
  ArenaOptions,
  BorrowedArenaOptions,
  BorrowedRange,
  RegionArenaOptions,
} from './core/pool/arena/arena-options.js'
export type { ArenaPool } from './core/pool/arena/arena-pool.js'
export type { ArenaLease, ArenaQueue, ArenaQueueOptions } from './core/pool/arena/arena-queue.js'
export type { DeviceArray, SameElements, TypedArray, TypedArrayConstructor, TypedArrayOf } from './core/pool/array.js'
export type { BlockOptions } from './core/pool/blocks/block-options.js'
export type { BlockPool } from './core/pool/blocks/block-pool.js'
export type { DeviceBuffer } from './core/pool/buffer.js'
export type { CachingPool, CachingPoolStats } from './core/pool/caching/caching-pool.js'
export type {
  CaptureOptions,
  GraphGroup,
  GraphGroupOptions,
  GraphGroupStats,
} from './core/pool/caching/captures/graph-group.js'
export type { GraphOutput, OutputLifetime } from './core/pool/caching/captures/graph-output.js'
export type { DebugOptions } from './core/pool/caching/debug-options.js'
export type { PoolOptions } from './core/pool/caching/options.js'
export type { CloseReport } from './core/pool/closable-pool.js'
export type { HostArray } from './core/pool/host/host-array.js'
export type { HostBuffer } from './core/pool/host/host-buffer.js'
export type { HostPoolOptions } from './core/pool/host/host-options.js'
export type { HostPool } from './core/pool/host/host-pool.js'
export type { AllocateOptions } from './core/pool/long-form.js'
export type { GrowableBuffer, GrowableOptions } from './core/pool/mapped/growable-buffer.js'
export type { Pool, PoolStats } from './core/pool/pool.js'
export type { ModelState, ModelStats } from './core/pool/shelf/model.js'
export type { Shelf, ShelfStats } from './core/pool/shelf/shelf.js'
export type { ModelOptions, ShelfOptions } from './core/pool/shelf/shelf-options.js'
export type { SleepOptions, WakeOptions } from './core/pool/sleep/sleep-options.js'
export { type FallbackPool, fallback } from './core/pool/wrappers/fallback.js'
export { type LimitedPool, limited } from './core/pool/wrappers/limited.js'
export { type OnFailure, type RetryingPool, retrying } from './core/pool/wrappers/retrying.js'
export { type SpillableOptions, type SpillableSet, spillable } from './core/pool/wrappers/spillable.js'
export type { SpillableBuffer, UseOptions } from './core/pool/wrappers/spillable-buffer.js'
export { type StatisticsPool, statistics } from './core/pool/wrappers/statistics.js'
export { type TaggedOptions, type TaggedPool, tagged } from './core/pool/wrappers/tagged.js'

serveIfAsked()
