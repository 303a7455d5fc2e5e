import { describe } from '../base/bytes.js'
import { PoolError } from '../base/errors.js'
import { type Context, unreachable } from '../driver/context.js'
import type { Stream } from '../order/stream.js'
import type { DevicePointer } from './kernel.js'

/**
 * Memory that kernels allocate from: a buffer of any pool, which the caller holds for as long as it is used. In a buffer
 * that grows in place (`device.createGrowableBuffer`) it can grow between launches.
 */
export interface DeviceRegion extends DevicePointer {
  /** size of the memory in bytes */
  readonly byteLength: number
  /** what it can grow to */
  readonly capacityBytes?: number
  /** Makes the memory larger at the same address; only of growable buffers. */
  grow?(bytes: number): void
  /** told after work on another stream that uses the memory */
  recordUse?(stream: Stream): void
}

/** Refuses in the name of `call` what is no memory, or not of the device of `context`. */
export function checkRegion(call: string, region: unknown, context: Context): asserts region is DeviceRegion {
  const { ptr, byteLength, context: owner } = (region ?? {}) as Partial<DeviceRegion>
  if (typeof region !== 'object' || !Number.isSafeInteger(ptr) || !Number.isSafeInteger(byteLength)) {
    throw new TypeError(`${call}: region must be device memory, such as pool.allocate(bytes), not ${describe(region)}`)
  }
  if (owner === undefined || owner === context || (region as DeviceRegion).reachableFrom?.(context)) return
  throw unreachable(`${call}: the region`, context, owner)
}

/** Has the region grown to `bytes` at least; refuses in the name of `call` one that cannot. */
export function growRegion(call: string, region: DeviceRegion, bytes: number): void {
  if (!Number.isSafeInteger(bytes) || bytes <= 0) {
    throw new RangeError(`${call}: bytes must be a whole number of bytes from 1, not ${describe(bytes)}`)
  }
  if (bytes <= region.byteLength) return
  if (region.grow === undefined) {
    throw new PoolError(`${call}: the region cannot grow; make it in a buffer of device.createGrowableBuffer()`)
  }
  region.grow(bytes)
}
