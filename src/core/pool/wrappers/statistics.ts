// Counters for a part of a program. A scope counts all allocations and frees while it is open. RMM keeps a stack of
// counters: only the top counts, and a pop adds it to the one below. Here all open scopes count, which gives the same
// numbers. An outer scope can be read at any time, and scopes of asynchronous functions can overlap and close in any
// order.

import type { DeviceBuffer } from '../buffer.js'
import type { Pool } from '../pool.js'
import { Counters } from './counters.js'
import { HandedOut } from './handed-out.js'
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
  readonly counters = new Counters(() => this.handedOut.settle())
  private readonly counting = new Set([this.counters])
  private readonly handedOut: HandedOut

  constructor(upstream: Pool) {
    super(upstream)
    this.handedOut = new HandedOut(
      upstream,
      bytes => this.noteFree(bytes),
      () => this.noteClose(),
    )
  }

  /**
   * New counters that start at zero and count until they are closed, by `close()` or at the end of a `using` block.
   * They can be read at any time. A free of an older buffer counts, too, so `current` can be negative.
   */
  scope(): StatisticsScope {
    this.handedOut.settle()
    const scope = new StatisticsScope(
      () => this.handedOut.settle(),
      closed => this.counting.delete(closed),
    )
    this.counting.add(scope)
    return scope
  }

  protected override noteGone(buffer: DeviceBuffer, bytes: number): void {
    this.handedOut.delete(buffer)
    this.noteFree(bytes)
  }

  protected override adopt(buffer: DeviceBuffer): DeviceBuffer {
    const { byteLength } = buffer
    if (this.handedOut.isListed) {
      this.handedOut.settle() // first, since the peak is taken now
      this.handedOut.add(buffer, byteLength)
    }
    for (const counters of this.counting) counters.noteAllocation(byteLength)
    return super.adopt(buffer)
  }

  private noteFree(bytes: number, count?: number): void {
    for (const counters of this.counting) counters.noteFree(bytes, count)
  }

  /** All live buffers are gone, with the upstream. */
  private noteClose(): void {
    const { bytes, allocations } = this.counters
    this.noteFree(bytes.current, allocations.current)
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

  /** The same as `close()`. */
  [Symbol.dispose](): void {
    this.close()
  }
}
