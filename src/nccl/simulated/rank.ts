// One rank of a world: a communicator as the calls of NCCL see it. It keeps the state that ncclCommGetAsyncError tells,
// and the calls that all ranks make together.

import { NCCL_RESULT } from '../constants.js'
import type { Leaving, Member } from './journal.js'
import { type Mistakes, NcclRefusal } from './mistake.js'
import { isRunning } from './processes.js'
import type { RankDevice, RankQueue, RankWork } from './rank-device.js'
import { SimulatedRegistrations } from './registrations.js'
import { World } from './world.js'

/** A call that NCCL completes after it has returned. */
interface Pending {
  /** ncclCommGetAsyncError says so often that it is in progress, even if it could complete */
  delays: number
  readonly isDone: () => boolean
  readonly finish: () => void
}

/** by folder: the ranks that this thread drives */
const ranksOfThread = new Map<string, Set<SimulatedRank>>()

/** A communicator. */
export class SimulatedRank {
  readonly registrations: SimulatedRegistrations
  readonly world: World
  /** what was submitted or launched, and has not run, in this order */
  readonly runs: { readonly queue: RankQueue }[] = []
  /** its latest work, which later work of the same capture comes after */
  latest: RankWork | null = null
  /** batches of collectives so far, and messages by peer */
  batches = 0
  readonly sent: number[]
  readonly received: number[]
  /** whether all ranks have come */
  hasJoined = false
  isSuspended = false
  isAborted = false
  isFinalized = false
  /** by rank: how many calls of its journal are the same as here */
  private readonly compared: number[]
  private pending: Pending | null = null
  private failure: { readonly result: number; readonly text: string } | null = null

  constructor(
    folder: string,
    readonly rank: number,
    readonly ranks: number,
    readonly device: RankDevice,
    version: number,
    readonly mistakes: Mistakes,
  ) {
    this.world = new World(folder, rank, ranks)
    this.registrations = new SimulatedRegistrations(device, version, mistakes)
    this.sent = Array(ranks).fill(0)
    this.received = Array(ranks).fill(0)
    this.compared = Array(ranks).fill(0)
  }

  /** for messages */
  get name(): string {
    return `rank ${this.rank} of ${this.ranks}`
  }

  /** Why the communicator can only be aborted; '' if it can be used. */
  get failureText(): string {
    return this.failure?.text ?? ''
  }

  /** Whether a call has not completed. */
  get isInProgress(): boolean {
    return this.pending !== null
  }

  /** Joins the world; completes when all ranks have come. */
  join(member: Member): void {
    this.await(
      () => this.world.isComplete,
      () => this.checkMembers(),
    )
    try {
      if (this.world.join(member)) this.joinThread()
      else this.fail(NCCL_RESULT.ncclInvalidUsage, `${this.name} has joined before`)
    } catch (error) {
      if ((error as NodeJS.ErrnoException).code !== 'ENOENT') throw error
      this.fail(NCCL_RESULT.ncclSystemError, 'the process that made the id has ended, or all ranks have left')
    }
  }

  /** The result that ncclCommGetAsyncError tells. */
  poll(): number {
    this.device.progress()
    const isOver = this.isFinalized && this.pending === null
    if (this.failure === null && !isOver) {
      const loss = this.world.lost()
      if (loss !== null) this.fail(NCCL_RESULT.ncclRemoteError, loss)
    }
    if (this.failure !== null) return this.failure.result
    const { pending } = this
    if (pending === null) return NCCL_RESULT.ncclSuccess
    if (!pending.isDone() || pending.delays-- > 0) return NCCL_RESULT.ncclInProgress
    this.pending = null
    pending.finish()
    return this.poll()
  }

  /** Refuses a call before the last one has completed, after a failure, or while the communicator is suspended. */
  checkReady(): void {
    if (this.failure !== null) throw new NcclRefusal(this.failure.result, this.failure.text)
    if (this.pending === null) return
    const text = 'attempt to use a communicator before the previous operation returned ncclSuccess'
    throw new NcclRefusal(NCCL_RESULT.ncclInvalidArgument, text)
  }

  /** The same for calls that need memory of NCCL's, and come before the end. */
  checkActive(): void {
    this.checkReady()
    if (this.isSuspended) throw new NcclRefusal(NCCL_RESULT.ncclInvalidUsage, 'the communicator is suspended')
    if (this.isFinalized) throw new NcclRefusal(NCCL_RESULT.ncclInvalidUsage, 'the communicator was finalized')
  }

  /** Waits on the host for all submitted work. */
  finishWork(): void {
    const last = this.runs.at(-1)
    if (last !== undefined) this.device.finish(this.device.submitted(last.queue))
  }

  /** Completes a call later: once `isDone` holds. */
  await(isDone: () => boolean, finish: () => void): void {
    this.pending = { delays: 1, isDone, finish }
  }

  /** From now on, the communicator can only be aborted. */
  fail(result: number, text: string): void {
    this.failure ??= { result, text }
    this.pending = null
  }

  /** Does what fails the communicator if NCCL refuses it. */
  failing<T>(work: () => T): T {
    try {
      return work()
    } catch (error) {
      if (error instanceof NcclRefusal) this.fail(error.result, error.message)
      throw error
    }
  }

  /** Notes a call that all ranks make in this order. Reports a mistake if another rank has made another call. */
  announce(call: string): void {
    this.world.own.append(call)
    this.compareCalls()
  }

  /** The same for a call that completes when all ranks have made it, and its own earlier work is complete. */
  together(call: string, finish: () => void): void {
    this.announce(call)
    const { journals, own } = this.world
    const count = own.calls.length
    this.await(() => {
      this.compareCalls()
      const haveCome = journals.every(({ calls, left }) => calls.length >= count || left === 'destroyed')
      return haveCome && this.runs.length === 0
    }, finish)
  }

  /** Why a rank can never come while this thread waits; null if it may come. */
  absence(rank: number): string | null {
    const { member, left } = this.world.journals[rank].refresh()
    if (left !== '') return `rank ${rank}, which was ${left}`
    if (member !== null && !isRunning(member)) return `rank ${rank}, whose process has ended`
    const here = [...(ranksOfThread.get(this.world.folder) ?? [])].find(other => other.rank === rank)
    if (here === undefined) return null
    return `rank ${rank}, which this thread drives, too, and which has not called`
  }

  /** Leaves the world. Work that has not run passes without effect. */
  leave(how: Leaving): void {
    this.isAborted = true
    this.registrations.clear()
    const here = ranksOfThread.get(this.world.folder)
    if (here?.delete(this) !== true) return // it had never joined
    if (here.size === 0) ranksOfThread.delete(this.world.folder)
    this.world.leave(how)
  }

  private joinThread(): void {
    const here = ranksOfThread.get(this.world.folder) ?? new Set()
    ranksOfThread.set(this.world.folder, here.add(this))
  }

  private compareCalls(): void {
    const { own, journals } = this.world
    own.refresh()
    for (const [rank, journal] of journals.entries()) {
      const { calls } = journal.refresh()
      const end = Math.min(own.calls.length, calls.length)
      for (; this.compared[rank] < end; this.compared[rank]++) {
        const index = this.compared[rank]
        if (own.calls[index] === calls[index]) continue
        const difference = `call ${index + 1} of ${this.name} is ${own.calls[index]}, but of rank ${rank} ${calls[index]}`
        this.mistakes.report(`the ranks call NCCL in different orders: ${difference}`)
      }
    }
  }

  private checkMembers(): void {
    this.hasJoined = true
    const members = this.world.journals.map(({ member }) => member!)
    const own = members[this.rank]
    for (const [rank, { ranks, device }] of members.entries()) {
      const fail = (text: string) => this.fail(NCCL_RESULT.ncclInvalidUsage, text)
      if (ranks !== own.ranks) fail(`${this.name}, but rank ${rank} is one of ${ranks}`)
      else if (rank !== this.rank && device === own.device) {
        fail(`duplicate GPU: rank ${this.rank} and rank ${rank} have ${device}`)
      }
    }
  }
}
