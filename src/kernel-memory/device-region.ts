import { OutOfRangeError, WrongTypeError } from '../core/base/argument-errors.js'
import { describe } from '../core/base/bytes.js'
import { PoolError } from '../core/base/errors.js'
import { type Context, unreachable } from '../core/driver/context.js'
import type { DevicePointer } from '../core/kernel/kernel.js'
import type { Stream } from '../core/order/stream.js'

/**
 * Memory that kernels allocate from: a buffer of any pool, which the caller keeps while it is used. A buffer that
 * grows in place (`device.createGrowableBuffer`) can grow between launches.
 */
export interface DeviceRegion extends DevicePointer {
  /** size of the memory in bytes */
  readonly byteLength: number
  /** true once the memory was given back */
  readonly freed?: boolean
  /** bytes that the region can grow to; its length if missing */
  readonly capacityBytes?: number
  /** Makes the region at least `bytes` long in all, at the same address. */
  grow?(bytes: number): void
  /** Called after work on another stream was submitted that uses the memory. */
  recordUse?(stream: Stream): void
}

/**
 * Throws TypeError, in the name of `call`, for anything else than memory, and PoolError for memory that `context`
 * cannot reach, or that cannot be used now.
 */
export function checkRegion(call: string, region: unknown, context: Context): asserts region is DeviceRegion {
  const { ptr, byteLength, context: owner } = (region ?? {}) as Partial<DeviceRegion>
  if (typeof region !== 'object' || !Number.isSafeInteger(ptr) || !Number.isSafeInteger(byteLength)) {
    throw new WrongTypeError(
      `${call}: region must be device memory, such as pool.allocate(bytes), not ${describe(region)}`,
    )
  }
  const memory = region as DeviceRegion
  if (owner !== undefined && owner !== context && !memory.reachableFrom?.(context)) {
    throw unreachable(`${call}: the region`, context, owner)
  }
  memory.addressFor?.(call)
}

/**
 * Makes the region at least `bytes` long. Throws, in the name of `call`, RangeError for a wrong size, PoolError if it
 * cannot grow.
 */
export function growRegion(call: string, region: DeviceRegion, bytes: number): void {
  if (!Number.isSafeInteger(bytes) || bytes <= 0) {
    throw new OutOfRangeError(`${call}: bytes must be a whole number of bytes from 1, not ${describe(bytes)}`)
  }
  if (bytes <= region.byteLength) return
  if (region.grow === undefined) {
    throw new PoolError(`${call}: the region cannot grow; make it in a buffer of device.createGrowableBuffer()`)
  }
  region.grow(bytes)
}
