import { describe } from '../../base/bytes.js'
import { checkOptionNames } from '../../base/option-names.js'
import { RESULT } from '../constants.js'
import { type CallName, COST_US } from './cost-model.js'

/** Which driver call fails, and how. The failing call has no effect; it is counted like any other. */
export interface FaultRule {
  /** the driver function, or '*' for any */
  readonly call: CallName | '*'
  /** the n-th such call from now, the next one being 1, which is the default */
  readonly nth?: number
  /** the driver's result code, default 2, CUDA_ERROR_OUT_OF_MEMORY; one that kills the context does so here too */
  readonly code?: number
  /** true: every such call from the n-th on; default: the n-th alone */
  readonly onwards?: boolean
}

interface ArmedRule extends Required<FaultRule> {
  seen: number
}

const CODES: readonly number[] = Object.values(RESULT)

/** The rules in force, asked at each call. */
export class FaultRules {
  private rules: ArmedRule[] = []

  /** Puts a rule in force; TypeError or RangeError names what is wrong with it. */
  add(rule: FaultRule): void {
    checkOptionNames('a fault rule', rule, ['call', 'nth', 'code', 'onwards'])
    const { call, nth = 1, code = RESULT.CUDA_ERROR_OUT_OF_MEMORY, onwards = false } = rule
    if (call !== '*' && !Object.hasOwn(COST_US, call)) {
      throw new RangeError(`call must be a function of the driver contract or '*', not ${describe(call)}`)
    }
    if (!Number.isSafeInteger(nth) || nth < 1)
      throw new RangeError(`nth must be a whole number from 1, not ${describe(nth)}`)
    if (code === RESULT.CUDA_SUCCESS || !CODES.includes(code)) {
      throw new RangeError(`code must be one of the driver's error codes in RESULT, not ${describe(code)}`)
    }
    if (typeof onwards !== 'boolean') throw new TypeError(`onwards must be true or false, not ${describe(onwards)}`)
    this.rules.push({ call, nth, code, onwards, seen: 0 })
  }

  clear(): void {
    this.rules = []
  }

  /** The code that this call fails with, or success. Every rule counts the call, whichever one fails it. */
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
