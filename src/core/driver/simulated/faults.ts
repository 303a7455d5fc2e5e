// Injected faults: rules that make driver calls fail, for tests. call-interceptor.ts asks them at each call.

import { OutOfRangeError, WrongTypeError } from '../../base/argument-errors.js'
import { describe } from '../../base/bytes.js'
import { checkFlag, checkOptionNames } from '../../base/option-names.js'
import { RESULT } from '../constants.js'
import type { CallName } from '../driver.js'
import { CALL_NAMES } from '../table.js'

/** A driver call that fails on purpose. The failing call has no effect, and is counted like any other call. */
export interface FaultRule {
  /** the driver function, or '*' for all of them */
  readonly call: CallName | '*'
  /** fails at the n-th such call from now; 1, the default, is the next call */
  readonly nth?: number
  /**
   * the CUresult or its name; default 2, 'CUDA_ERROR_OUT_OF_MEMORY'. A sticky error ends the context, as on a GPU.
   */
  readonly code?: number | `CUDA_ERROR_${string}`
  /** true: each such call from the n-th on fails; default false: only the n-th */
  readonly onwards?: boolean
}

/** A rule with its defaults, and the number of matching calls so far. */
interface ArmedRule extends Required<FaultRule> {
  readonly code: number
  seen: number
}

/** The active rules. */
export class FaultRules {
  private rules: ArmedRule[] = []

  /** Activates a rule; throws TypeError or RangeError that names a wrong field. */
  add(rule: FaultRule): void {
    if (typeof rule === 'string') {
      throw new WrongTypeError(`failCall: write failCall({ call: ${describe(rule)}, code: 'CUDA_ERROR_…' })`)
    }
    checkOptionNames('a fault rule', rule, ['call', 'nth', 'code', 'onwards'])
    const { call, nth = 1, code = 'CUDA_ERROR_OUT_OF_MEMORY', onwards = false } = rule
    if (call !== '*' && !CALL_NAMES.includes(call)) {
      throw new OutOfRangeError(`call must be a function of the driver contract or '*', not ${describe(call)}`)
    }
    if (!Number.isSafeInteger(nth) || nth < 1)
      throw new OutOfRangeError(`nth must be a whole number from 1, not ${describe(nth)}`)
    checkFlag('onwards', onwards)
    this.rules.push({ call, nth, code: numberOf(code), onwards, seen: 0 })
  }

  /** Removes all rules. */
  clear(): void {
    this.rules = []
  }

  /**
   * The result code of this call, 0 for success. All matching rules count the call, even if another rule fails it.
   */
  next(call: CallName): number {
    if (this.rules.length === 0) return RESULT.CUDA_SUCCESS
    let code: number = RESULT.CUDA_SUCCESS
    for (const rule of this.rules) {
      if (rule.call !== '*' && rule.call !== call) continue
      rule.seen++
      const fails = rule.onwards ? rule.seen >= rule.nth : rule.seen === rule.nth
      if (fails && code === RESULT.CUDA_SUCCESS) code = rule.code
    }
    if (code !== RESULT.CUDA_SUCCESS) this.rules = this.rules.filter(rule => rule.onwards || rule.seen < rule.nth)
    return code
  }
}

/** The CUresult of an error, given as it is or by name. */
function numberOf(code: number | string): number {
  const errors = Object.entries(RESULT).filter(([, result]) => result !== RESULT.CUDA_SUCCESS)
  const found = errors.find(([name, result]) => name === code || result === code)
  if (found !== undefined) return found[1]
  const names = errors.map(([name]) => name).join(', ')
  throw new OutOfRangeError(
    `code must be an error of the driver or its name, not ${describe(code)}; there are ${names}`,
  )
}
