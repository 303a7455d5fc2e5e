// Many programs in a row, and their sums.

import type { Kind } from './kinds.js'
import { kindsOf, RULES, type Rule } from './mutants.js'
import { type Outcome, runProgram } from './program.js'
import { NO_COUNTS, type SystemCounts } from './system.js'

interface Campaign extends SystemCounts {
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
  /** what the operations do, each once */
  readonly verbs: ReadonlySet<string>
  /** streams that one program opened */
  readonly mostStreams: number
  /** the first program that failed, which is the last to run; null if none failed */
  readonly failing: Outcome | null
}

const NOTHING = { grants: 0, takeovers: 0, ready: 0, recognised: 0, large: 0, inViews: 0, ...NO_COUNTS }

/** Runs the programs of `programs` seeds from `seed` on, or until one fails. */
export async function runCampaign(
  kind: Kind,
  seed: number,
  programs: number,
  count: number,
  rule?: Rule,
): Promise<Campaign> {
  const sums = { programs: 0, operations: 0, ...NOTHING }
  const verbs = new Set<string>()
  let mostStreams = 0
  let failing: Outcome | null = null
  while (sums.programs < programs && failing === null) {
    const outcome = await runProgram(kind, seed + sums.programs, count, rule)
    sums.programs++
    sums.operations += outcome.operations.length
    for (const operation of outcome.operations) verbs.add(operation.do)
    mostStreams = Math.max(mostStreams, outcome.operations.filter(operation => operation.do === 'open').length)
    for (const name of Object.keys(NOTHING) as (keyof typeof NOTHING)[]) sums[name] += outcome[name]
    if (outcome.failure !== null) failing = outcome
  }
  return { ...sums, verbs, mostStreams, failing }
}

interface MutantCampaign extends Campaign {
  readonly rule: Rule
  readonly kind: Kind
}

/** For each rule and each kind that notices its mutant, the campaign that ends when a program does. */
export async function* runMutants(seed: number, programs: number, count: number): AsyncGenerator<MutantCampaign> {
  for (const rule of RULES) {
    for (const kind of kindsOf(rule)) yield { rule, kind, ...(await runCampaign(kind, seed, programs, count, rule)) }
  }
}
