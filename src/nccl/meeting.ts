// Calls in which NCCL waits for all ranks, such as that of a window. NCCL would block Node meanwhile, for ever if a
// rank is gone. So the ranks meet first, in an all-reduce of one byte that Node does not wait for. Then the ranks of
// this thread make the call in one group, which takes milliseconds.

import type { Device } from '../core/device/device.js'
import { untilDone } from '../core/order/polling.js'
import { relaxed } from '../core/order/relaxed.js'
import type { Stream } from '../core/order/stream.js'
import type { PlainPool } from '../core/pool/driver-owned/plain-pool.js'
import { CommunicatorError } from './communicator-error.js'
import { ranksHere } from './communicators.js'
import { NCCL_OPS, NCCL_RESULT, NCCL_TYPES } from './constants.js'
import { inOneGroup, isRefusal } from './group.js'
import { type JoinedRank, MOST_POLL_MS, type Wait } from './joined-rank.js'

/** The call of NCCL that a rank makes; returns an ncclResult_t. */
type Work = () => number

/** The ranks of this thread that make one call together. */
class Party {
  readonly refusals = new Map<JoinedRank, CommunicatorError>()
  private readonly calls = new Map<JoinedRank, Work>()
  hasBegun = false

  constructor(private readonly call: string) {}

  join(rank: JoinedRank, work: Work): void {
    for (const other of this.calls.keys()) if (!other.isWell) this.leave(other)
    this.calls.set(rank, work)
    if (this.calls.size === ranksHere(rank.world).length) this.begin(rank)
  }

  leave(rank: JoinedRank): void {
    this.calls.delete(rank)
  }

  private begin({ nccl }: JoinedRank): void {
    this.hasBegun = true
    const { results, ended } = inOneGroup(nccl, [...this.calls], ([rank, work]) =>
      relaxed(rank.context.activate(), work),
    )
    const refused = [...results, ended].find(isRefusal)
    if (refused === undefined) return
    for (const rank of this.calls.keys()) this.refusals.set(rank, rank.refused(this.call, refused))
  }
}

/** By world and call. */
const parties = new Map<string, Party>()

/** Where the ranks of a communicator meet. */
export class MeetingPlace {
  private latest: Promise<void> = Promise.resolve()
  private stream: Stream | null = null
  private pool: PlainPool | null = null
  /** a byte of the pool */
  private ptr = 0

  constructor(
    private readonly device: Device,
    private readonly rank: JoinedRank,
  ) {}

  /**
   * Makes a call with all ranks, once all have come. Rejects with CommunicatorError if one does not come in time. A
   * call waits for earlier ones of this rank, since ranks meet for one call at a time. A suspended communicator has no
   * collectives to meet by, and NCCL blocks until all have come.
   */
  async call(call: string, work: Work, wait: Wait, isSuspended = false): Promise<void> {
    const own = this.latest.then(async () => {
      this.rank.stateFor(call)
      if (this.rank.ranks > 1 && !isSuspended) await this.meet(call, wait)
      await this.together(call, work, wait)
    })
    this.latest = own.catch(() => {})
    await own
  }

  /** Resolves when no call is under way, however they end. */
  async idle(): Promise<void> {
    await this.latest
  }

  /** The device may have closed all pools and streams before. After a refusal it can be repeated. */
  close(): void {
    this.pool?.close()
    this.pool = null
    this.stream?.close()
    this.stream = null
  }

  private takeByte(stream: Stream): void {
    const pool = this.device.createPlainPool()
    pool.warnOnHeld = false
    try {
      this.ptr = pool.allocate(1, stream).ptr
      this.pool = pool
    } catch (error) {
      pool.close()
      throw error
    }
  }

  private async meet(call: string, wait: Wait): Promise<void> {
    const { rank, device } = this
    const { nccl } = rank
    this.stream ??= device.createStream()
    if (this.pool === null) this.takeByte(this.stream)
    const { stream, ptr } = this
    const work = () => nccl.ncclAllReduce(ptr, ptr, 1, NCCL_TYPES.uint8.type, NCCL_OPS.max, rank.handle, stream.handle)
    await this.together(`${call}, where all ranks meet`, work, wait)
    const end = performance.now() + wait.timeoutMs
    const haveMet = () => {
      rank.stateFor(call)
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
      rank.stateFor(call)
      if (!party.hasBegun && performance.now() > end) throw this.alone(call, wait.timeoutMs)
      return party.hasBegun
    }
    try {
      await untilDone(hasBegun, { signal: wait.signal, mostMs: MOST_POLL_MS })
    } finally {
      if (!party.hasBegun) party.leave(rank)
    }
    const refusal = party.refusals.get(rank)
    if (refusal !== undefined) throw refusal
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
