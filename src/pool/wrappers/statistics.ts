// Counters for a part of a program. A scope counts all allocations and frees while it is open. RMM keeps a stack of
// counters: only the top counts, and a pop adds it to the one below. Here all open scopes count, which gives the same
// numbers. An outer scope can be read at any time, and scopes of asynchronous functions can overlap and close in any
// order.

import type { Stream } from '../../order/stream.js'
import type { DeviceBuffer } from '../buffer.js'
import type { Pool } from '../pool.js'
import { Counters } from './counters.js'
import { Wrapper } from './wrapper.js'

/**
 * Wraps `upstream` so that bytes and allocations are counted, since this call and in scopes: the value now, the peak,
 * and the total.
 */
export function statistics(upstream: Pool): StatisticsPool {
  return new StatisticsPool(upstream)
}

/** A pool that counts its allocations and frees. Made by `statistics()`. */
export class StatisticsPool extends Wrapper {
  /** counts since the wrapper was made */
  readonly counters = new Counters()
  private readonly counting = new Set([this.counters])

  /**
   * New counters that start at zero and count until they are closed, by `close()` or at the end of a `using` block.
   * They can be read at any time. A free of an older buffer counts, too, so `current` can be negative.
   */
  scope(): StatisticsScope {
    const scope = new StatisticsScope(closed => this.counting.delete(closed))
    this.counting.add(scope)
    return scope
  }

  override release(buffer: DeviceBuffer, stream?: Stream): void {
    const bytes = buffer.allocation.requestedBytesOf(buffer.record, buffer.tag, 'free')
    super.release(buffer, stream)
    for (const counters of this.counting) counters.noteFree(bytes)
  }

  protected override adopt(buffer: DeviceBuffer): DeviceBuffer {
    for (const counters of this.counting) counters.noteAllocation(buffer.byteLength)
    return super.adopt(buffer)
  }
}

/** Counters of a part of a program. Made by `pool.scope()`. */
export class StatisticsScope extends Counters implements Disposable {
  /** Made by `pool.scope()`. */
  constructor(private readonly stop: (scope: StatisticsScope) => void) {
    super()
  }

  /** Stops counting; the counters can still be read. A second close does nothing. */
  close(): void {
    this.stop(this)
  }

  /** The same as `close()`. */
  [Symbol.dispose](): void {
    this.close()
  }
}
