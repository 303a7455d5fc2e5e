// The memory of a graph group, as the captures of a thread use it. In a pool of one thread it is group-memory.ts; in a
// shared pool the thread asks the pool server for it.

import type { GroupOrder } from './group-order.js'

/**
 * The purpose of a block of a capture: the captured work alone, an output that is overwritten by other graphs, or an
 * output of its own.
 */
export type BlockUse = 'scratch' | 'shared' | 'own'

/** The memory and the graphs of a group. */
export interface GroupFigures {
  readonly scratchBytes: number
  readonly ownBytes: number
  /** bytes of live blocks between scratch, of captures that have ended */
  readonly pinnedBytes: number
  /** graphs that can be launched */
  readonly graphs: number
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
  /**
   * A capture is about to begin, in the name of `call`. Returns the number of its graph. Throws PoolError while another
   * thread captures.
   */
  begin(call: string): number
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
