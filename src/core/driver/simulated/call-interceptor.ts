// The first step of each driver call: counting, adding its modelled cost, and injected faults. All parts of the
// simulated driver share one interceptor, so that each part can refuse in the name of the current call. Counting is
// an array access, because tests make millions of calls a second.

import type { CudaError } from '../../base/errors.js'
import { RESULT } from '../constants.js'
import { StickyErrors } from '../sticky-errors.js'
import { type CallName, COST_US, costUs } from './cost-model.js'
import { FaultRules } from './faults.js'
import { ThreadState } from './thread-state.js'

const NO_CONTEXT = 0
const NAMES = Object.keys(COST_US) as CallName[]
const FLAT_US = Float64Array.from(NAMES, name => (typeof COST_US[name] === 'number' ? COST_US[name] : 0))

/** The index of each function in the counters. */
export const CALL = Object.fromEntries(NAMES.map((name, number) => [name, number])) as Record<CallName, number>

/** The current call, the thread that makes it, and the counters of all calls. */
export class CallInterceptor {
  readonly rules = new FaultRules()
  readonly stickyErrors = new StickyErrors()
  /** the thread that makes the call; errors belong to its current context */
  thread = new ThreadState()
  /** time that the program spent between its calls */
  passedSeconds = 0
  private readonly counts = new Float64Array(NAMES.length)
  /** modelled cost of all calls so far */
  private microseconds = 0
  /** index of the current call */
  private underWay = 0

  /** Counts the call and adds its cost. Throws the error of a fault rule. */
  enter(call: number): void {
    this.counts[call]++
    this.microseconds += FLAT_US[call]
    this.underWay = call
    const code = this.rules.next(NAMES[call])
    if (code !== RESULT.CUDA_SUCCESS) throw this.refuse(code, 'a fault rule of the simulated driver')
  }

  /** Adds a cost that depends on sizes. */
  pay(microseconds: number): void {
    this.microseconds += microseconds
  }

  /** Adds the cost of the current call for `bytes`. */
  payFor(bytes: number): void {
    this.microseconds += costUs(NAMES[this.underWay], bytes)
  }

  /** Refuses the call unless `bytes` is a size of at least `least`. */
  checkSize(bytes: number, least: number): void {
    if (Number.isSafeInteger(bytes) && bytes >= least) return
    throw this.refuse(RESULT.CUDA_ERROR_INVALID_VALUE, `a size must be a whole number from ${least}, not ${bytes}`)
  }

  /** The error for the current call. */
  refuse(code: number, detail = '', context = this.thread.current?.handle ?? NO_CONTEXT): CudaError {
    return this.stickyErrors.refuse(context, NAMES[this.underWay], code, nameOf(code), detail)
  }

  /** Calls so far, by function. */
  get calls(): ReadonlyMap<string, number> {
    return new Map(
      NAMES.map((name, call) => [name as string, this.counts[call]] as const).filter(([, count]) => count > 0),
    )
  }

  /** the modelled time of the calls, and the time between them */
  get clockSeconds(): number {
    return this.modelledSeconds + this.passedSeconds
  }

  get modelledSeconds(): number {
    return this.microseconds / 1e6
  }
}

function nameOf(code: number): string {
  return Object.entries(RESULT).find(([, value]) => value === code)![0]
}
