// The captures of one thread in a group of graphs, and the outputs of the one that is under way. The memory is in this
// thread, or in the pool server of a pool that several threads share.

import type { Capture, CaptureGroup } from '../../../order/capture.js'
import type { BlockUse, GroupFigures } from './group-memory.js'
import type { GroupOrder } from './group-order.js'

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

/** The memory of a group, as a thread sees it. */
export interface GroupStore {
  /** the order of the launches of all threads */
  readonly order: GroupOrder
  /** this thread's pool is closed */
  readonly lost: boolean
  /** the group is closed */
  readonly closed: boolean
  /** whether a limit of the group has refused the reserve whose error is being made */
  isFull: boolean
  /** A capture is about to begin. Returns the number of its graph. */
  begin(): number
  /** Throws PoolError for a buffer that the capture holds where other graphs write. */
  checkEnd(): void
  /** The capture of a graph ends; without a graph it has failed. */
  end(graph: number, hasGraph: boolean): void
  /** Takes scratch until there are `bytes`. False if limit or device do not allow it. */
  reserve(bytes: number): boolean
  /** Gives back what nothing uses, if no graph can be launched; returns the bytes. */
  giveBack(): number
  /** Ends the group. Throws PoolError while graphs can be launched, or a capture is under way. */
  close(): void
  figures(): GroupFigures
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
  ) {
    this.number = shared?.group ?? ++groups
  }

  get order(): GroupOrder {
    return this.store.order
  }

  begin(capture: Capture): number {
    const graph = this.store.begin()
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
