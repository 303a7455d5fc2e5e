// What every driver call passes first: it is counted and paid, a fault rule may fail it, and a refusal inside it becomes
// an error that names it. The parts of the simulated driver share one interceptor, so that each can refuse in the name of the
// call that is under way. Counting is an array access, since millions of calls a second pass here.

import type { CudaError } from '../../base/errors.js'
import { RESULT } from '../constants.js'
import { StickyErrors } from '../sticky-errors.js'
import { type CallName, COST_US, costUs } from './cost-model.js'
import { FaultRules } from './faults.js'
import { ThreadState } from './thread-state.js'

const NO_CONTEXT = 0
const NAMES = Object.keys(COST_US) as CallName[]
const FLAT_US = Float64Array.from(NAMES, name => (typeof COST_US[name] === 'number' ? COST_US[name] : 0))

/** The number of each function, for counting. */
export const CALL = Object.fromEntries(NAMES.map((name, number) => [name, number])) as Record<CallName, number>

export class CallInterceptor {
  readonly rules = new FaultRules()
  readonly stickyErrors = new StickyErrors()
  /** for which thread of the program the call is made; refusals belong to its current context */
  thread = new ThreadState()
  private readonly counts = new Float64Array(NAMES.length)
  private microseconds = 0
  private underWay = 0

  /** Counts and pays the call, and fails it where a fault rule says so. */
  enter(call: number): void {
    this.counts[call]++
    this.microseconds += FLAT_US[call]
    this.underWay = call
    const code = this.rules.next(NAMES[call])
    if (code !== RESULT.CUDA_SUCCESS) throw this.refuse(code, 'a fault rule of the simulated driver')
  }

  /** Pays what depends on the size. */
  pay(microseconds: number): void {
    this.microseconds += microseconds
  }

  /** Pays the call under way for `bytes`. */
  payFor(bytes: number): void {
    this.microseconds += costUs(NAMES[this.underWay], bytes)
  }

  /** Refuses what is no size of at least `least` bytes. */
  checkSize(bytes: number, least: number): void {
    if (Number.isSafeInteger(bytes) && bytes >= least) return
    throw this.refuse(RESULT.CUDA_ERROR_INVALID_VALUE, `a size must be a whole number from ${least}, not ${bytes}`)
  }

  /** The error for the call under way. */
  refuse(code: number, detail = '', context = this.thread.current?.handle ?? NO_CONTEXT): CudaError {
    return this.stickyErrors.refuse(context, NAMES[this.underWay], code, nameOf(code), detail)
  }

  get calls(): ReadonlyMap<string, number> {
    return new Map(
      NAMES.map((name, call) => [name as string, this.counts[call]] as const).filter(([, count]) => count > 0),
    )
  }

  get modelledSeconds(): number {
    return this.microseconds / 1e6
  }
}

function nameOf(code: number): string {
  return Object.entries(RESULT).find(([, value]) => value === code)![0]
}
