// Calls of NCCL that fail on purpose, for tests.

import type { NcclCall } from '../nccl.js'

/** A call that fails without an effect. */
export interface NcclFaultRule {
  readonly call: NcclCall
  /** fails at the n-th such call from now; 1, the default, is the next call */
  readonly nth?: number
  /** the ncclResult_t; ncclCommGetAsyncError writes it as the state, and returns success */
  readonly result: number
}

/** The active rules. */
export class NcclFaults {
  private rules: { readonly call: NcclCall; readonly result: number; left: number }[] = []

  add({ call, nth = 1, result }: NcclFaultRule): void {
    this.rules.push({ call, result, left: nth })
  }

  clear(): void {
    this.rules = []
  }

  /** The result of this call; 0 unless a rule says otherwise. */
  next(call: NcclCall): number {
    let result = 0
    for (const rule of this.rules) if (rule.call === call && --rule.left === 0) result = rule.result
    this.rules = this.rules.filter(rule => rule.left > 0)
    return result
  }
}
