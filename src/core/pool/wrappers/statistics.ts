// Counters for a part of a program. A scope counts all allocations and frees while it is open. RMM keeps a stack of
// counters: only the top counts, and a pop adds it to the one below. Here all open scopes count, which gives the same
// numbers. An outer scope can be read at any time, and scopes of asynchronous functions can overlap and close in any
// order.

import { disposeOf } from '../../base/disposal.js'
import type { Pool } from '../pool.js'
import { Counters } from './counters.js'
import { CountingPool } from './counting-pool.js'

/**
 * Wraps `upstream` so that bytes and allocations are counted, since this call and in scopes: the value now, the peak,
 * and the total.
 */
export function statistics(upstream: Pool): StatisticsPool {
  return new StatisticsPool(upstream)
}

/** A pool that counts its allocations and frees. Made by `statistics()`. */
export class StatisticsPool extends CountingPool {
  private readonly scopes = new Set<StatisticsScope>()
  /** counts since the wrapper was made */
  readonly counters: Counters = new Counters(() => this.settle(), Infinity, undefined, this.scopes)

  /**
   * New counters that start at zero and count until they are closed, by `close()` or at the end of a `using` block.
   * They can be read at any time. A free of an older buffer counts, too, so `current` can be negative.
   */
  scope(): StatisticsScope {
    this.settle()
    const scope = new StatisticsScope(
      () => this.settle(),
      closed => this.scopes.delete(closed),
    )
    this.scopes.add(scope)
    return scope
  }

  protected account(): Counters {
    return this.counters
  }
}
/** Counters of a part of a program. Made by `pool.scope()`. */
export class StatisticsScope extends Counters implements Disposable {
  private isOpen = true

  /** Made by `pool.scope()`. */
  constructor(
    settle: () => void,
    private readonly stop: (scope: StatisticsScope) => void,
  ) {
    super(() => {
      if (this.isOpen) settle()
    })
  }

  /** Stops counting; the counters can still be read. A second close does nothing. */
  close(): void {
    void this.bytes.current // counts what was dropped so far
    this.isOpen = false
    this.stop(this)
  }

  /** `close()` at the end of a `using` block. Where that throws, this warns. */
  [Symbol.dispose](): void {
    disposeOf(this, () => this.close())
  }
}
