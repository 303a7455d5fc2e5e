// Many programs in a row, and what they add up to.

import { kindOf, RULES, type Rule } from './mutants.js'
import { type Kind, type Outcome, runProgram } from './program.js'

export interface Campaign {
  readonly programs: number
  readonly operations: number
  readonly grants: number
  /** grants of memory that another stream used last */
  readonly takeovers: number
  /** requests for which a block of their size lay ready by the exact order; and those of them served without a driver call */
  readonly ready: number
  readonly recognised: number
  /** the first program that failed, after which nothing is run; null for none */
  readonly failing: Outcome | null
}

/** Runs the programs of `programs` seeds from `seed` on, or until one fails. */
export function runCampaign(kind: Kind, seed: number, programs: number, count: number, rule?: Rule): Campaign {
  const sums = { programs: 0, operations: 0, grants: 0, takeovers: 0, ready: 0, recognised: 0 }
  let failing: Outcome | null = null
  while (sums.programs < programs && failing === null) {
    const outcome = runProgram(kind, seed + sums.programs, count, rule)
    sums.programs++
    sums.operations += outcome.operations.length
    sums.grants += outcome.grants
    sums.takeovers += outcome.takeovers
    sums.ready += outcome.ready
    sums.recognised += outcome.recognised
    if (outcome.failure !== null) failing = outcome
  }
  return { ...sums, failing }
}

/** For each rule, how many programs it takes until its breaking is noticed; null when none of them does. */
export function runMutants(seed: number, programs: number, count: number): Map<Rule, Campaign> {
  return new Map(RULES.map(rule => [rule, runCampaign(kindOf(rule), seed, programs, count, rule)]))
}
