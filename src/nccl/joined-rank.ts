// A rank of NCCL in this thread: NCCL's handle of it, its state, and the waits for calls that NCCL completes later.

import { PoolError } from '../core/base/errors.js'
import type { Context } from '../core/driver/context.js'
import { untilDone } from '../core/order/polling.js'
import { CommunicatorError } from './communicator-error.js'
import { NCCL_RESULT } from './constants.js'
import { Cell, type Nccl } from './nccl.js'

/** The most milliseconds between two looks at the state of a call. */
export const MOST_POLL_MS = 10

const NAMES = Object.fromEntries(Object.entries(NCCL_RESULT).map(([name, result]) => [result, name]))
const ABORT = 'abort() is all that this communicator can do now; then join again, without a rank that is gone'
const JOIN_AGAIN = 'join again on all ranks, with a new id'

/** How long to wait, and what ends the wait. */
export interface Wait {
  readonly timeoutMs: number
  readonly signal?: AbortSignal | undefined
}

export class JoinedRank {
  /** NCCL's handle, which NCCL writes at the join */
  readonly cell = new Cell()
  /** set by a failure, after which only `abort` is left */
  failure: CommunicatorError | null = null
  /** the join is over, so that the program has a communicator */
  hasArrived = false
  /** after an abort or a close NCCL has forgotten the rank, and what it has registered */
  isOver = false
  private readonly state = new Cell()

  constructor(
    readonly nccl: Nccl,
    readonly context: Context,
    /** names the world: the id's bytes */
    readonly world: string,
    readonly rank: number,
    readonly ranks: number,
  ) {}

  get handle(): number {
    return this.cell.value
  }

  /** Whether NCCL takes calls of the rank. */
  get isWell(): boolean {
    return this.failure === null && !this.isOver
  }

  /**
   * Runs `work`, which gives NCCL something back. Does nothing for a rank that can only be aborted, as may show
   * meanwhile: NCCL forgets all of it then, and the memory must not wait for that.
   */
  whileWell(work: () => void): void {
    if (!this.isWell) return
    try {
      work()
    } catch (error) {
      if (this.isWell) throw error
    }
  }

  /** The state of the rank by NCCL: an ncclResult_t. NCCL must not be asked about a rank that is over. */
  ask(): number {
    this.checkNotOver('ask')
    const result = this.nccl.ncclCommGetAsyncError(this.handle, this.state)
    return result === NCCL_RESULT.ncclSuccess ? this.state.value : result
  }

  /** The state, for a call that waits. Throws if NCCL knows of a failure, or if the rank has ended meanwhile. */
  stateFor(call: string): number {
    this.checkNotOver(call)
    const state = this.ask()
    this.check(call, state)
    return state
  }

  /** Throws PoolError once the rank has ended. */
  checkNotOver(call: string): void {
    if (!this.isOver) return
    throw new PoolError(`${call}: the communicator was closed or aborted meanwhile; join again`, 'ERR_POOL_CLOSED')
  }

  /** Throws CommunicatorError for a result that says neither success nor that the call goes on. */
  check(call: string, result: number): void {
    if (result === NCCL_RESULT.ncclSuccess || result === NCCL_RESULT.ncclInProgress) return
    throw this.refused(call, result)
  }

  /** The error for a refused call. Unless NCCL says that the rank is well, it can only be aborted from now on. */
  refused(call: string, result: number): CommunicatorError {
    const isWell = this.handle !== 0 && this.ask() === NCCL_RESULT.ncclSuccess
    const error = errorOf(
      this.nccl,
      this.handle,
      call,
      result,
      isWell ? 'the communicator can be used further' : this.remedy,
    )
    if (!isWell) this.failure = error
    return error
  }

  /**
   * Waits until NCCL has completed the call that returned `result`; Node goes on. Some calls return success while they
   * are in progress, so the state is asked in any case.
   */
  async settle(call: string, result: number, { timeoutMs, signal }: Wait): Promise<void> {
    this.check(call, result)
    const end = performance.now() + timeoutMs
    const isSettled = () => {
      if (!this.isBusy(call)) return true
      if (performance.now() > end) throw this.timedOut(call, timeoutMs)
      return false
    }
    await untilDone(isSettled, { signal, mostMs: MOST_POLL_MS })
  }

  /** Whether a call is in progress. Throws CommunicatorError if it has failed. */
  private isBusy(call: string): boolean {
    return this.stateFor(call) === NCCL_RESULT.ncclInProgress
  }

  /** The remedy of a failure. A join that fails leaves no communicator to abort. */
  private get remedy(): string {
    return this.hasArrived ? ABORT : JOIN_AGAIN
  }

  /** The error for ranks that did not come in time. */
  timedOut(call: string, timeoutMs: number): CommunicatorError {
    const others = `the other ranks of ${this.ranks} have not made this call within ${timeoutMs} ms (timeoutMs)`
    const group = this.hasArrived ? 'several ranks of one thread call in Communicator.group; ' : ''
    const remedy = `${others}; ${group}${this.remedy}`
    this.failure = new CommunicatorError(call, NCCL_RESULT.ncclInProgress, 'ncclInProgress', '', remedy)
    return this.failure
  }
}

/** The error for a result of NCCL. */
export function errorOf(nccl: Nccl, handle: number, call: string, result: number, remedy: string): CommunicatorError {
  const last = nccl.ncclGetLastError(handle).trim()
  return new CommunicatorError(call, result, NAMES[result] ?? nccl.ncclGetErrorString(result), last, remedy)
}
