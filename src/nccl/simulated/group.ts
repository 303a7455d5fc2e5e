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
  /** the ranks whose first collective of a kind is in the group */
  private connecting = new Set<SimulatedRank>()

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
    const { refused, batches, waiting, connecting } = this
    this.refused = NCCL_RESULT.ncclSuccess
    this.batches = new Map()
    this.waiting = new Set()
    this.connecting = new Set()
    if (refused !== NCCL_RESULT.ncclSuccess) {
      for (const rank of batches.keys()) rank.fail(refused, 'a call of its group was refused')
      return refused
    }
    this.submit([...batches.values()], connecting.size > 0)
    const isInProgress = [...waiting, ...batches.keys()].some(rank => rank.isInProgress)
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

  /** The calls of `rank` in the group, for one more of a kind such as 'ncclAllReduce'. */
  batchOf(rank: SimulatedRank, kind: string): Batch {
    if (!rank.kinds.has(kind)) this.connecting.add(rank)
    rank.kinds.add(kind)
    const batch = this.batches.get(rank) ?? new Batch(rank)
    this.batches.set(rank, batch)
    return batch
  }

  /** Submits the work, or lets a thread of NCCL do it, which may connect the ranks first. */
  private submit(batches: readonly Batch[], isConnecting: boolean): void {
    const live = () => batches.filter(({ rank }) => !rank.isAborted)
    for (const batch of live()) batch.announce()
    let isSubmitted = false
    const submit = () => {
      if (isSubmitted) return
      isSubmitted = true
      for (const batch of live()) batch.submit()
    }
    if (!isConnecting && !batches.some(({ rank }) => rank.hasLaunchThread)) submit()
    else for (const { rank } of batches) rank.submitLater(submit, isConnecting)
  }
}
