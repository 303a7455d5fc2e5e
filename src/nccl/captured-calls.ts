// Graphs with collectives of a communicator. NCCL ends a communicator only when no such graph is left, and blocks the
// thread until then, also in an abort. So they are closed first. No launch of them could work afterwards.

import { PoolError } from '../core/base/errors.js'
import type { Capture } from '../core/order/capture.js'
import type { Clocks } from '../core/order/clocks.js'
import type { Holding } from '../core/order/holding.js'
import type { Stream } from '../core/order/stream.js'

export class CapturedCalls {
  /** captures whose graphs may be launched, or that are under way */
  private readonly captures = new Map<Capture, Holding>()

  constructor(private readonly clocks: Clocks) {}

  /** A collective is about to be submitted to the stream. */
  note({ capture }: Stream): void {
    if (capture === null || this.captures.has(capture)) return
    const holding: Holding = { lost: false, asleep: false, release: () => this.captures.delete(capture) }
    this.captures.set(capture, holding)
    capture.holdings.add(holding)
  }

  /** Throws PoolError while a collective is being captured. */
  check(call: string): void {
    if ([...this.captures.keys()].every(capture => capture.ended)) return
    throw new PoolError(`${call}: its collectives are being captured; end the capture first`, 'ERR_STREAM_CAPTURED')
  }

  /** Whether another library has graphs of them, once the device has closed its own. */
  get hasForeignGraphs(): boolean {
    return this.captures.size > 0
  }

  /** Ends captures that are under way. Throws PoolError for graphs that another library has captured. */
  close(call: string): void {
    for (const [capture, holding] of [...this.captures]) {
      if (!capture.ended) capture.abort()
      for (const graph of [...this.clocks.graphs]) if (graph.keeps(holding)) graph.close()
    }
    if (this.captures.size === 0) return
    throw new PoolError(
      `${call}: another library has graphs with collectives of this communicator, and NCCL would wait for them; ` +
        'destroy them, and close their GraphMemory, first',
      'ERR_POOL_IN_USE',
    )
  }
}
