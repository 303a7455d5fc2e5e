import { WrongTypeError } from '../../base/argument-errors.js'
import type { ByteSize } from '../../base/byte-size.js'
import { describe } from '../../base/bytes.js'
import { isUnwantedPromise } from '../../base/thrown.js'
import type { Stream } from '../../order/stream.js'
import type { DeviceBuffer } from '../buffer.js'
import type { AllocateOptions } from '../long-form.js'
import type { Pool } from '../pool.js'
import { Wrapper } from './wrapper.js'

/**
 * Called when memory ran out for `bytes`. `attempt` counts the failures of this allocation from 1. Returns true to
 * try again, false to give up.
 */
export type OnFailure = (bytes: number, attempt: number) => boolean

/**
 * Wraps `upstream` so that `onFailure` is called when memory runs out. The allocation is tried again for as long as
 * it returns true. `onFailure` may free buffers, of this pool too, but should not allocate. Every other error is
 * thrown at once, also an error thrown by `onFailure`. Throws TypeError unless `onFailure` is a function; allocations
 * throw TypeError if it returns anything but a boolean.
 */
export function retrying(upstream: Pool, onFailure: OnFailure): RetryingPool {
  if (typeof onFailure !== 'function') {
    throw new WrongTypeError(`retrying: onFailure must be a function, not ${describe(onFailure)}`)
  }
  return new RetryingPool(upstream, onFailure)
}

/** A pool that asks a callback before it gives up. Made by `retrying()`. */
export class RetryingPool extends Wrapper {
  constructor(
    upstream: Pool,
    private readonly onFailure: OnFailure,
  ) {
    super(upstream)
  }

  /** As of `Pool`. Throws OutOfMemoryError once the callback gives up. */
  override allocate(bytes: ByteSize, stream?: Stream | AllocateOptions, alignment?: number): DeviceBuffer {
    // An error for each failure would cost more than the failure itself: only the last attempt makes one.
    return this.tryAllocate(bytes, stream, alignment) ?? super.allocate(bytes, stream, alignment)
  }

  /** As of `Pool`. Returns null once the callback gives up. */
  override tryAllocate(bytes: ByteSize, stream?: Stream | AllocateOptions, alignment?: number): DeviceBuffer | null {
    for (let attempt = 1; ; attempt++) {
      const buffer = super.tryAllocate(bytes, stream, alignment)
      if (buffer !== null || !this.mayRetry(this.bytesOf(bytes), attempt)) return buffer
    }
  }

  private mayRetry(bytes: number, attempt: number): boolean {
    const answer = this.onFailure(bytes, attempt)
    if (typeof answer === 'boolean') return answer
    isUnwantedPromise(answer) // would count as true for ever
    throw new WrongTypeError(`retrying: onFailure must return true or false at once, not ${describe(answer)}`)
  }
}
