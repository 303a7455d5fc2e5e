// Calls between ncclGroupStart and ncclGroupEnd, of all communicators of the thread. They are submitted together at the
// last ncclGroupEnd. A call outside of a group is a group of its own.

import { NCCL_RESULT } from '../constants.js'
import { Batch } from './batch.js'
import type { SimulatedRank } from './rank.js'

/** The open group of a thread. */
export class SimulatedGroup {
  private depth = 0
  /** the first refusal in the group, which ends it without effect */
  private refused: number = NCCL_RESULT.ncclSuccess
  private batches = new Map<SimulatedRank, Batch>()
  /** ranks that a call has made wait for others */
  private waiting = new Set<SimulatedRank>()

  get isOpen(): boolean {
    return this.depth > 0
  }

  start(): void {
    this.depth++
  }

  /** Ends the group; returns its result. A refusal within the group fails all communicators of the group. */
  end(): number {
    if (this.depth === 0) return NCCL_RESULT.ncclInvalidUsage
    if (--this.depth > 0) return NCCL_RESULT.ncclSuccess
    const { refused, batches, waiting } = this
    this.refused = NCCL_RESULT.ncclSuccess
    this.batches = new Map()
    this.waiting = new Set()
    if (refused !== NCCL_RESULT.ncclSuccess) {
      for (const rank of batches.keys()) rank.fail(refused, 'a call of its group was refused')
      return refused
    }
    const live = [...batches.values()].filter(({ rank }) => !rank.isAborted)
    for (const batch of live) batch.announce()
    for (const batch of live) batch.submit()
    const isInProgress = [...waiting].some(rank => rank.isInProgress)
    return isInProgress ? NCCL_RESULT.ncclInProgress : NCCL_RESULT.ncclSuccess
  }

  /** The group ends without effect, since a call of it was refused. */
  refuse(result: number): void {
    if (this.isOpen && this.refused === NCCL_RESULT.ncclSuccess) this.refused = result
  }

  /** A call of the group completes when other ranks have made it, too. */
  addWaiting(rank: SimulatedRank): void {
    this.waiting.add(rank)
  }

  /** The calls of `rank` in the group, for one more. */
  batchOf(rank: SimulatedRank): Batch {
    const batch = this.batches.get(rank) ?? new Batch(rank)
    this.batches.set(rank, batch)
    return batch
  }
}
