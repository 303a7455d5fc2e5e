// Calls in which NCCL waits for all ranks, such as that of a window. NCCL would block Node meanwhile, for ever if a
// rank is gone. So the ranks meet first, in an all-reduce of one byte that Node does not wait for. Then the ranks of
// this thread make the call in one group, which takes milliseconds.

import type { Device } from '../core/device/device.js'
import { untilDone } from '../core/order/polling.js'
import { relaxed } from '../core/order/relaxed.js'
import type { Stream } from '../core/order/stream.js'
import type { DeviceBuffer } from '../core/pool/buffer.js'
import { CommunicatorError } from './communicator-error.js'
import { ranksHere } from './communicators.js'
import { NCCL_OPS, NCCL_RESULT, NCCL_TYPES } from './constants.js'
import { inGroup } from './group.js'
import { type JoinedRank, MOST_POLL_MS, type Wait } from './joined-rank.js'

/** The call of NCCL that a rank makes; returns an ncclResult_t. */
type Work = () => number

/** The ranks of this thread that make one call together. */
class Party {
  private readonly calls = new Map<JoinedRank, Work>()
  hasBegun = false

  constructor(private readonly call: string) {}

  join(rank: JoinedRank, work: Work): void {
    this.calls.set(rank, work)
    if (this.calls.size === ranksHere(rank.world).length) this.begin(rank)
  }

  leave(rank: JoinedRank): void {
    this.calls.delete(rank)
  }

  private begin({ nccl }: JoinedRank): void {
    this.hasBegun = true
    const results: number[] = []
    const ended = inGroup(nccl, () => {
      for (const [rank, work] of this.calls) results.push(relaxed(rank.context.activate(), work))
    })
    results.push(ended)
    const refused = results.find(result => result !== NCCL_RESULT.ncclSuccess && result !== NCCL_RESULT.ncclInProgress)
    if (refused === undefined) return
    for (const rank of this.calls.keys()) rank.failure ??= rank.refused(this.call, refused)
  }
}

/** By world and call. */
const parties = new Map<string, Party>()

/** Where the ranks of a communicator meet. */
export class MeetingPlace {
  private stream: Stream | null = null
  private memory: DeviceBuffer | null = null

  constructor(
    private readonly device: Device,
    private readonly rank: JoinedRank,
  ) {}

  /** Makes a call with all ranks, once all have come. Rejects with CommunicatorError if one does not come in time. */
  async call(call: string, work: Work, wait: Wait): Promise<void> {
    if (this.rank.ranks > 1) await this.meet(call, wait)
    await this.together(call, work, wait)
  }

  /** After a refusal it can be repeated. */
  close(): void {
    if (this.memory?.freed === false) this.memory.free() // the close of the device has closed its pools
    this.memory = null
    this.stream?.close()
    this.stream = null
  }

  private async meet(call: string, wait: Wait): Promise<void> {
    const { rank, device } = this
    const { nccl } = rank
    this.stream ??= device.createStream()
    this.memory ??= device.createPlainPool().allocate(1, this.stream)
    const { stream, memory } = this
    const { ptr } = memory
    const work = () => nccl.ncclAllReduce(ptr, ptr, 1, NCCL_TYPES.uint8.type, NCCL_OPS.max, rank.handle, stream.handle)
    await this.together(`${call}, where all ranks meet`, work, wait)
    const end = performance.now() + wait.timeoutMs
    const haveMet = () => {
      rank.check(call, rank.ask())
      if (stream.query()) return true
      if (performance.now() > end) throw rank.timedOut(call, wait.timeoutMs)
      return false
    }
    await untilDone(haveMet, { signal: wait.signal, mostMs: MOST_POLL_MS })
  }

  /** Makes a call in one group with the other ranks of this thread, once all have asked for it. */
  private async together(call: string, work: Work, wait: Wait): Promise<void> {
    const { rank } = this
    const key = `${rank.world} ${call}`
    const party = parties.get(key) ?? new Party(call)
    parties.set(key, party)
    party.join(rank, work)
    if (party.hasBegun) parties.delete(key)
    const end = performance.now() + wait.timeoutMs
    const hasBegun = () => {
      rank.checkThere()
      if (!party.hasBegun && performance.now() > end) throw this.alone(call, wait.timeoutMs)
      return party.hasBegun
    }
    try {
      await untilDone(hasBegun, { signal: wait.signal, mostMs: MOST_POLL_MS })
    } finally {
      if (!party.hasBegun) party.leave(rank)
    }
    if (rank.failure !== null) throw rank.failure
    await rank.settle(call, NCCL_RESULT.ncclSuccess, wait)
  }

  /** The error for a rank of this thread that did not make the call. NCCL has not heard of it. */
  private alone(call: string, timeoutMs: number): CommunicatorError {
    const others = ranksHere(this.rank.world).filter(rank => rank !== this.rank.rank)
    return new CommunicatorError(
      call,
      NCCL_RESULT.ncclInProgress,
      'ncclInProgress',
      '',
      `rank ${others.join(', ')} of this thread has not made this call within ${timeoutMs} ms (timeoutMs); make it for all ranks, and await all results together`,
    )
  }
}
