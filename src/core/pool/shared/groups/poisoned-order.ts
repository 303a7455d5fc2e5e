// The order of a group that fills its idle scratch before each launch. The pool server knows which scratch is idle. It
// is asked before the lock of the order is taken, because it may wait for that lock itself. If a capture has ended
// meanwhile, it is asked again: a buffer of that capture may lie there.

import type { Clocks } from '../../../order/clocks.js'
import type { SharingGraph } from '../../../order/graph-memory.js'
import type { OrderedStream } from '../../../order/ordered-stream.js'
import { GroupOrder, type GroupOrderConfig } from '../../caching/captures/group-order.js'
import { fillWithPoison } from '../../caching/captures/poison.js'

/** A piece of idle scratch. */
export type Stretch = readonly [ptr: number, bytes: number]

/** The questions of the order about its group. */
interface Scratch {
  /** how many captures have ended so far */
  captures(): number
  idle(): readonly Stretch[]
}

/** A capture has ended since the pool server was asked. */
class ScratchChanged extends Error {}

export class PoisonedOrder extends GroupOrder {
  private captures = 0
  private stretches: readonly Stretch[] = []

  constructor(
    clocks: Clocks,
    config: Omit<GroupOrderConfig, 'poison'>,
    private readonly scratch: Scratch,
  ) {
    super(clocks, { ...config, poison: stream => this.fill(stream) })
  }

  override enter(call: string, graph: SharingGraph, stream: OrderedStream): void {
    for (;;) {
      this.captures = this.scratch.captures()
      this.stretches = this.scratch.idle()
      try {
        super.enter(call, graph, stream)
        return
      } catch (error) {
        if (!(error instanceof ScratchChanged)) throw error
      }
    }
  }

  private fill(stream: OrderedStream): void {
    if (this.captures !== this.scratch.captures()) throw new ScratchChanged()
    for (const [ptr, bytes] of this.stretches) fillWithPoison(stream, ptr, bytes)
  }
}
