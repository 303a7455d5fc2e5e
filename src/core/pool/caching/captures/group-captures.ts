// The captures of one thread in a group of graphs, and the outputs of the one that is under way. The memory is in this
// thread, or in the pool server of a pool that several threads share.

import type { Capture, CaptureGroup } from '../../../order/capture.js'
import type { GroupOrder } from './group-order.js'
import type { BlockUse, GroupStore } from './group-store.js'

/** A graph group for other threads of this process, to be cloned into any message; made by `group.share()`. */
export interface SharedGraphGroup {
  /** number of the pool */
  readonly pool: number
  /** number of the group in its pool */
  readonly group: number
  /** @internal */
  readonly place: number
  /** @internal */
  readonly refuses: boolean
  /** @internal */
  readonly poison: boolean
}

/** An output whose memory the capture gives back at its end. */
interface SharedOutput {
  /** The capture ends: the memory is scratch from now on. */
  becomeScratch(): void
}

/** groups that this thread has made in pools of its own */
let groups = 0

export class GroupCaptures implements CaptureGroup {
  /** tells the groups of a thread apart, or those of a pool that threads share */
  readonly number: number
  /** the capture that is under way */
  capture: Capture | null = null
  /** what the next block of the capture is for */
  nextUse: BlockUse = 'scratch'
  private readonly outputs: SharedOutput[] = []

  constructor(
    readonly store: GroupStore,
    /** makes the memory a part of a capture, and then of its graph */
    private readonly hold: (capture: Capture) => void,
    /** of a group that other threads can attach */
    readonly shared: SharedGraphGroup | null = null,
    number = shared?.group ?? ++groups,
  ) {
    this.number = number
  }

  get order(): GroupOrder {
    return this.store.order
  }

  begin(capture: Capture, call: string): number {
    const graph = this.store.begin(call)
    this.capture = capture
    this.hold(capture)
    return graph
  }

  checkEnd(capture: Capture): void {
    if (this.capture === capture && !this.store.lost) this.store.checkEnd()
  }

  end(capture: Capture, hasGraph: boolean): void {
    if (this.capture !== capture) return
    // If this is cut short, an abort of the capture ends it.
    for (let output = this.outputs.at(-1); output !== undefined; output = this.outputs.at(-1)) {
      if (!this.store.lost) output.becomeScratch()
      this.outputs.length--
    }
    if (!this.store.lost) this.store.end(capture.number, hasGraph)
    this.capture = null
  }

  /** The memory of an output is scratch once the capture has ended. */
  share(output: SharedOutput): void {
    this.outputs.push(output)
  }
}
