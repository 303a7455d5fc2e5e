// The first step of each driver call: counting, adding its modelled cost, and injected faults. All parts of the
// simulated driver share one interceptor, so that each part can refuse in the name of the current call. Counting is
// an array access, because tests make millions of calls a second.

import { type CudaError, DescriptorError } from '../../base/errors.js'
import { RESULT } from '../constants.js'
import type { CallName } from '../driver.js'
import { StickyErrors } from '../sticky-errors.js'
import { CALL_NAMES } from '../table.js'
import { costUs, fixedCostUs } from './cost-model.js'
import { FaultRules } from './faults.js'
import { ThreadState } from './thread-state.js'

/** Results for errors of the system; for all others CUDA_ERROR_OPERATING_SYSTEM. */
const SYSTEM_RESULTS: Readonly<Record<string, number>> = {
  EBADF: RESULT.CUDA_ERROR_INVALID_VALUE,
  ENOSPC: RESULT.CUDA_ERROR_OUT_OF_MEMORY,
  EDQUOT: RESULT.CUDA_ERROR_OUT_OF_MEMORY,
  ENOMEM: RESULT.CUDA_ERROR_OUT_OF_MEMORY,
  EFBIG: RESULT.CUDA_ERROR_OUT_OF_MEMORY,
}

const NO_CONTEXT = 0
const FIXED_US = Float64Array.from(CALL_NAMES, fixedCostUs)

/** The index of each function in the counters. */
export const CALL = Object.fromEntries(CALL_NAMES.map((name, number) => [name, number])) as Record<CallName, number>

/** The current call, the thread that makes it, and the counters of all calls. */
export class CallInterceptor {
  readonly rules = new FaultRules()
  readonly stickyErrors = new StickyErrors()
  /** the thread that makes the call; errors belong to its current context */
  thread = new ThreadState()
  /** time that the program spent between its calls */
  passedSeconds = 0
  private readonly counts = new Float64Array(CALL_NAMES.length)
  /** modelled cost of all calls so far */
  private microseconds = 0
  /** index of the current call */
  private underWay = 0

  /** Counts the call and adds its cost. Throws the error of a fault rule. */
  enter(call: number): void {
    this.counts[call]++
    this.microseconds += FIXED_US[call]
    this.underWay = call
    const code = this.rules.next(CALL_NAMES[call])
    if (code !== RESULT.CUDA_SUCCESS) throw this.refuse(code, 'a fault rule of the simulated driver')
  }

  /** Adds a cost that depends on sizes. */
  pay(microseconds: number): void {
    this.microseconds += microseconds
  }

  /** Adds the cost of the current call for `bytes`. */
  payFor(bytes: number): void {
    this.microseconds += costUs(CALL_NAMES[this.underWay], bytes)
  }

  /** Refuses the call unless `bytes` is a size of at least `least`. */
  checkSize(bytes: number, least: number): void {
    if (Number.isSafeInteger(bytes) && bytes >= least) return
    throw this.invalid(`a size must be a whole number from ${least}, not ${bytes}`)
  }

  /** The error for the current call. */
  refuse(
    code: number,
    detail = '',
    context = this.thread.current?.handle ?? NO_CONTEXT,
    options?: ErrorOptions,
  ): CudaError {
    return this.stickyErrors.refuse(context, CALL_NAMES[this.underWay], code, nameOf(code), detail, options)
  }

  /** The error for a wrong argument of the current call. */
  invalid(detail: string): CudaError {
    return this.refuse(RESULT.CUDA_ERROR_INVALID_VALUE, detail)
  }

  /** Calls `work`, which uses files. What the system refuses is refused as by a GPU's driver. */
  onSystem<T>(work: () => T): T {
    try {
      return work()
    } catch (error) {
      const { code, resultName } = error as { code?: string; resultName?: string }
      const name = error instanceof DescriptorError ? resultName! : code
      if (name === undefined || name.startsWith('ERR_')) throw error
      throw this.refuse(SYSTEM_RESULTS[name] ?? RESULT.CUDA_ERROR_OPERATING_SYSTEM, (error as Error).message)
    }
  }

  /** Calls so far, by function. */
  get calls(): ReadonlyMap<string, number> {
    return new Map(
      CALL_NAMES.map((name, call) => [name as string, this.counts[call]] as const).filter(([, count]) => count > 0),
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
