// The public face of cuda-mempool.

export { formatBytes, GiB, KiB, MiB, TiB } from './base/bytes.js'
export {
  CudaError,
  DeviceLostError,
  FormatError,
  NoDeviceError,
  OutOfMemoryError,
  type OutOfMemoryFigures,
  PoolError,
} from './base/errors.js'
export { Device, type DeviceChoice, openDevice, parseDeviceChoice } from './device.js'
export type { Driver } from './driver/driver.js'
export type { DevicePointer, Extent, Kernel, KernelArgument, LaunchOptions } from './kernel/kernel.js'
export type { Module } from './kernel/module.js'
export type { Event } from './order/event.js'
export type { Stream } from './order/stream.js'
export type { ArenaMark, ArenaOptions, ArenaPool } from './pool/arena-pool.js'
export type { DeviceArray, TypedArray } from './pool/array.js'
export type { BlockOptions, BlockPool } from './pool/block-pool.js'
export type { DeviceBuffer } from './pool/buffer.js'
export type { CachingPool, CloseReport, LiveBlock } from './pool/caching-pool.js'
export type { DriverPool } from './pool/driver-pool.js'
export { withFallback } from './pool/fallback.js'
export { limited } from './pool/limited.js'
export type { PoolOptions } from './pool/options.js'
export type { PlainPool } from './pool/plain-pool.js'
export type { Pool, PoolStats } from './pool/pool.js'
export type { PoolSnapshot, SnapshotBlock } from './pool/snapshot.js'
