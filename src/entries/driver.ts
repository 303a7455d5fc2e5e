// cuda-mempool/driver, types only: the calls below the pools, the pools that the driver owns, and memory that other
// libraries over the same driver see.

export type {
  BatchedCopy,
  CallName,
  CopyDirection,
  Driver,
  KernelArguments,
  LaunchShape,
  MemPoolProperties,
} from '../core/driver/driver.js'
export type { GraphMemory } from '../core/order/graph-memory.js'
export type { Waitable } from '../core/order/stream.js'
export type { AccessChange, AccessingDevice, AccessLocation, PoolAccess } from '../core/pool/access.js'
export type { BufferOwner } from '../core/pool/allocation.js'
export type { PoolSegment, SegmentObserver } from '../core/pool/backing/segment-watch.js'
export type { DriverPool } from '../core/pool/driver-owned/driver-pool.js'
export type { DriverPoolOptions } from '../core/pool/driver-owned/driver-pool-options.js'
export type { PlainPool } from '../core/pool/driver-owned/plain-pool.js'
export type { MemoryAdvice } from '../core/pool/managed-memory.js'
