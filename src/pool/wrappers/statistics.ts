// Counters for a part of a program. A scope counts whatever the pool hands out and takes back while it is open. RMM keeps
// a stack of counters, of which only the top counts, and adds it to the one below when it is popped; here all that are open
// count, which gives the same numbers, lets an outer scope be read at any time, and lets scopes of asynchronous functions
// overlap and close in any order.

import type { Stream } from '../../order/stream.js'
import type { DeviceBuffer } from '../buffer.js'
import type { Pool } from '../pool.js'
import { Counters } from './counters.js'
import { Wrapper } from './wrapper.js'

/** `upstream`, with bytes and allocations counted: now, at most and in all, since this call and in scopes. */
export function statistics(upstream: Pool): StatisticsPool {
  return new StatisticsPool(upstream)
}

/** Made by `statistics`. */
export class StatisticsPool extends Wrapper {
  /** since the wrapper was made */
  readonly counters = new Counters()
  private readonly counting = new Set([this.counters])

  /**
   * Counters that begin at zero now and count until they are closed, at the end of a `using` block or by `close()`; they
   * can be read then, too. What was allocated before and is freed meanwhile lets `current` fall below zero.
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

export class StatisticsScope extends Counters implements Disposable {
  /** Made by `pool.scope()`. */
  constructor(private readonly stop: (scope: StatisticsScope) => void) {
    super()
  }

  /** Counts no further. A second close does nothing. */
  close(): void {
    this.stop(this)
  }

  /** The same as `close()`. */
  [Symbol.dispose](): void {
    this.close()
  }
}
