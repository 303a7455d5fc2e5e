// Many programs in a row, and their sums.

import type { Kind } from './kinds.js'
import { kindsOf, RULES, type Rule } from './mutants.js'
import { type Outcome, runProgram } from './program.js'

interface Campaign {
  readonly programs: number
  readonly operations: number
  readonly grants: number
  /** grants of memory that another stream used last */
  readonly takeovers: number
  /**
   * requests with a free block of their size, safe by the exact order; and how many were served without a driver call
   */
  readonly ready: number
  readonly recognised: number
  /** mapped blocks of more than 2 MiB, the least piece, and those of them that lay in views */
  readonly large: number
  readonly inViews: number
  /** the first program that failed, which is the last to run; null if none failed */
  readonly failing: Outcome | null
}

/** Runs the programs of `programs` seeds from `seed` on, or until one fails. */
export function runCampaign(kind: Kind, seed: number, programs: number, count: number, rule?: Rule): Campaign {
  const sums = { programs: 0, operations: 0, grants: 0, takeovers: 0, ready: 0, recognised: 0, large: 0, inViews: 0 }
  let failing: Outcome | null = null
  while (sums.programs < programs && failing === null) {
    const outcome = runProgram(kind, seed + sums.programs, count, rule)
    sums.programs++
    sums.operations += outcome.operations.length
    sums.grants += outcome.grants
    sums.takeovers += outcome.takeovers
    sums.ready += outcome.ready
    sums.recognised += outcome.recognised
    sums.large += outcome.large
    sums.inViews += outcome.inViews
    if (outcome.failure !== null) failing = outcome
  }
  return { ...sums, failing }
}

interface MutantCampaign extends Campaign {
  readonly rule: Rule
  readonly kind: Kind
}

/** For each rule and each kind that notices its mutant, the campaign that ends when a program does. */
export function runMutants(seed: number, programs: number, count: number): MutantCampaign[] {
  return RULES.flatMap(rule =>
    kindsOf(rule).map(kind => ({ rule, kind, ...runCampaign(kind, seed, programs, count, rule) })),
  )
}
