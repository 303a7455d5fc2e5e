import { describe } from '../../base/bytes.js'
import { OutOfMemoryError } from '../../base/errors.js'
import type { Stream } from '../../order/stream.js'
import type { DeviceBuffer } from '../buffer.js'
import type { Pool } from '../pool.js'
import { Wrapper } from './wrapper.js'

/** Asked when there is no room for `bytes`, for the `attempt`-th time (from 1): true to try again, false to give up. */
export type OnFailure = (bytes: number, attempt: number) => boolean

/**
 * `upstream`; when it runs out of memory, `onFailure` is called, and the allocation tried again as long as that answers
 * true. The pool is in the middle of nothing then: `onFailure` may free buffers, of this pool too; it should allocate
 * nothing. Any other error is thrown at once, also one that `onFailure` throws.
 */
export function retrying(upstream: Pool, onFailure: OnFailure): RetryingPool {
  if (typeof onFailure !== 'function') {
    throw new TypeError(`retrying: onFailure must be a function, not ${describe(onFailure)}`)
  }
  return new RetryingPool(upstream, onFailure)
}

export class RetryingPool extends Wrapper {
  constructor(
    upstream: Pool,
    private readonly onFailure: OnFailure,
  ) {
    super(upstream)
  }

  override allocate(bytes: number, stream?: Stream, alignment?: number): DeviceBuffer {
    for (let attempt = 1; ; attempt++) {
      try {
        return super.allocate(bytes, stream, alignment)
      } catch (error) {
        if (!(error instanceof OutOfMemoryError) || !this.mayRetry(bytes, attempt)) throw error
      }
    }
  }

  override tryAllocate(bytes: number, stream?: Stream, alignment?: number): DeviceBuffer | null {
    for (let attempt = 1; ; attempt++) {
      const buffer = super.tryAllocate(bytes, stream, alignment)
      if (buffer !== null || !this.mayRetry(bytes, attempt)) return buffer
    }
  }

  private mayRetry(bytes: number, attempt: number): boolean {
    const answer = this.onFailure(bytes, attempt)
    if (typeof answer === 'boolean') return answer
    // Above all a Promise, which would count as true for ever.
    throw new TypeError(`retrying: onFailure must return true or false at once, not ${describe(answer)}`)
  }
}
