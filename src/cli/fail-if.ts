// The option --fail-if of `replay` and `convert`: a figure of the report, a comparison and a number, for scripts.

import { parseBytes } from '../base/bytes.js'
import { POLICIES, type Policy, type ReplayReport } from '../trace/replay-result.js'
import { UsageError } from './exit.js'

const COMPARISONS = {
  '>=': (figure: number, limit: number) => figure >= limit,
  '<=': (figure: number, limit: number) => figure <= limit,
  '==': (figure: number, limit: number) => figure === limit,
  '!=': (figure: number, limit: number) => figure !== limit,
  '>': (figure: number, limit: number) => figure > limit,
  '<': (figure: number, limit: number) => figure < limit,
} as const
const EXPRESSION = /^\s*(?:([\w-]+)\.)?([A-Za-z]+)\s*(>=|<=|==|!=|>|<)\s*(.+?)\s*$/
const NUMBER = /^\d+(\.\d+)?$/
const TRACE = 'trace'
const DEFAULT_POLICY = 'cuda-mempool'

/** Figures of `ReplayReport.runs` and of `ReplayReport.trace` that are numbers. */
const RUN_FIGURES = [
  'overhead',
  'peakReservedBytes',
  'peakRequestedBytes',
  'peakGrantedBytes',
  'leastCapacityBytes',
  'externalFragmentation',
  'fragmentationAtPeak',
  'fragmentationMean',
  'contiguity',
  'failures',
  'insertedWaits',
  'modelledDeviceSeconds',
] as const satisfies readonly (keyof ReplayReport['runs'][number])[]
const TRACE_FIGURES = [
  'events',
  'allocations',
  'streams',
  'spanSeconds',
  'peakRequestedBytes',
  'peakWithFailedBytes',
  'recordedPeakReservedBytes',
  'failedRequests',
] as const satisfies readonly (keyof ReplayReport['trace'])[]

/** A condition on a report. */
export interface Condition {
  /** as it was written */
  readonly text: string
  /** the policy that must be replayed; null for a figure of the trace */
  readonly policy: Policy | null
  /** the figure in a report; null if it has none */
  readonly figureOf: (report: ReplayReport) => number | null
  readonly holds: (figure: number) => boolean
}

/** Reads `overhead>1.2`, `pytorch.peakReservedBytes >= 3.9GiB` or `trace.failedRequests>0`. Throws UsageError. */
export function parseCondition(text: string): Condition {
  const [, owner = DEFAULT_POLICY, name, comparison, amount] = EXPRESSION.exec(text) ?? []
  if (name === undefined) throw wrong(text, 'write a figure, a comparison and a number, like overhead>1.2')
  const limit = NUMBER.test(amount) ? Number(amount) : bytesOf(text, amount)
  const holds = (figure: number) => COMPARISONS[comparison as keyof typeof COMPARISONS](figure, limit)
  if (owner === TRACE) {
    const figure = TRACE_FIGURES.find(each => each === name)
    if (figure === undefined) throw wrong(text, `trace has ${TRACE_FIGURES.join(', ')}`)
    return { text, policy: null, figureOf: ({ trace }) => trace[figure], holds }
  }
  const policy = POLICIES.find(each => each === owner)
  if (policy === undefined) throw wrong(text, `there is no '${owner}'; there are ${TRACE}, ${POLICIES.join(', ')}`)
  const figure = RUN_FIGURES.find(each => each === name)
  if (figure === undefined) throw wrong(text, `there is no figure '${name}'; there are ${RUN_FIGURES.join(', ')}`)
  const figureOf = ({ runs }: ReplayReport) => runs.find(run => run.policy === policy)?.[figure] ?? null
  return { text, policy, figureOf, holds }
}

/** Throws UsageError if a condition needs a policy that is not replayed. */
export function checkReplayed(conditions: readonly Condition[], policies: readonly Policy[]): void {
  const missing = conditions.find(({ policy }) => policy !== null && !policies.includes(policy))
  if (missing !== undefined) throw wrong(missing.text, `--policy leaves ${missing.policy} out`)
}

/** A line for each condition that holds. Throws UsageError for a figure that the report does not have. */
export function heldConditions(conditions: readonly Condition[], report: ReplayReport): string[] {
  return conditions.flatMap(({ text, figureOf, holds }) => {
    const figure = figureOf(report)
    if (figure === null) throw wrong(text, `${report.trace.file} has no such figure`)
    return holds(figure) ? [`${report.trace.file}: --fail-if '${text}' holds, it is ${figure}`] : []
  })
}

function bytesOf(text: string, amount: string): number {
  try {
    return parseBytes(amount)
  } catch {
    throw wrong(text, `'${amount}' is no number, and no size like 3.9GiB`)
  }
}

function wrong(text: string, reason: string): UsageError {
  return new UsageError(`--fail-if '${text}': ${reason}`)
}
