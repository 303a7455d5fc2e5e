// The option --fail-if of `replay` and `convert`: a figure of the report, a comparison and a number, for scripts.

import { parseBytes } from '../core/base/bytes.js'
import { shown } from '../core/base/shown-text.js'
import { RUN_NUMBERS, TRACE_NUMBERS } from '../recordings/report/figures.js'
import { pytorchSettingsOf } from '../recordings/trace/pytorch/named-settings.js'
import { DEFAULT_POLICIES, POLICIES, type Policy, type ReplayReport } from '../recordings/trace/replay-result.js'
import { UsageError } from './exit.js'
import { note } from './terminal.js'

const COMPARISONS = {
  '>=': (figure: number, limit: number) => figure >= limit,
  '<=': (figure: number, limit: number) => figure <= limit,
  '==': (figure: number, limit: number) => figure === limit,
  '!=': (figure: number, limit: number) => figure !== limit,
  '>': (figure: number, limit: number) => figure > limit,
  '<': (figure: number, limit: number) => figure < limit,
} as const
// The settings in a policy's name may have dots and comparisons, so the last dot before a figure ends it.
const EXPRESSION = /^\s*(?:(.+)\.)?([A-Za-z]+)\s*(>=|<=|==|!=|>|<)\s*(.+?)\s*$/
const NUMBER = /^-?\d+(\.\d+)?(e[+-]?\d+)?$/i
const TRACE = 'trace'
const DEFAULT_POLICY = 'cuda-mempool'

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

/**
 * Reads `overhead>1.2`, `pytorch.peakReservedBytes >= 3.9GiB`, `pytorch:max_split_size_mb:128.failures>0` or
 * `trace.failedRequests>0`. Throws UsageError.
 */
export function parseCondition(text: string): Condition {
  const [, owner = DEFAULT_POLICY, name, comparison, amount] = EXPRESSION.exec(text) ?? []
  if (name === undefined) throw wrong(text, 'write a figure, a comparison and a number, like overhead>1.2')
  const limit = NUMBER.test(amount) ? Number(amount) : bytesOf(text, amount)
  const holds = (figure: number) => COMPARISONS[comparison as keyof typeof COMPARISONS](figure, limit)
  if (owner === TRACE) {
    const figure = TRACE_NUMBERS.find(each => each === name)
    if (figure === undefined) throw wrong(text, `trace has ${TRACE_NUMBERS.join(', ')}`)
    return { text, policy: null, figureOf: ({ trace }) => trace[figure], holds }
  }
  const policy = policyOf(text, owner)
  const figure = RUN_NUMBERS.find(each => each === name)
  if (figure === undefined) throw wrong(text, `there is no figure '${name}'; there are ${RUN_NUMBERS.join(', ')}`)
  const figureOf = ({ runs }: ReplayReport) => runs.find(run => run.policy === policy)?.[figure] ?? null
  return { text, policy, figureOf, holds }
}

/** Throws UsageError if a condition of `replay` needs a policy that is not replayed. */
export function checkReplayed(conditions: readonly Condition[], policies: readonly Policy[]): void {
  const missing = missingIn(conditions, policies)
  if (missing !== undefined) throw wrong(missing.text, `${missing.policy} is not replayed; add it to --policy`)
}

/** Throws UsageError if a condition of `convert` needs a policy that only `replay` can be asked for. */
export function checkReplayedByDefault(conditions: readonly Condition[]): void {
  const missing = missingIn(conditions, DEFAULT_POLICIES)
  if (missing === undefined) return
  throw wrong(missing.text, `convert does not replay ${missing.policy}; use replay --policy`)
}

function missingIn(conditions: readonly Condition[], policies: readonly Policy[]): Condition | undefined {
  return conditions.find(({ policy }) => policy !== null && !policies.includes(policy))
}

/**
 * Says on stderr which conditions hold, and returns whether any does. Throws UsageError for a figure that the report
 * does not have.
 */
export function sayHeld(conditions: readonly Condition[], report: ReplayReport): boolean {
  const { file } = report.trace
  const lines = conditions.flatMap(({ text, figureOf, holds }) => {
    const figure = figureOf(report)
    if (figure === null) throw wrong(text, `${file} has no such figure`)
    return holds(figure) ? [`${shown(file)}: --fail-if '${text}' holds, it is ${figure}`] : []
  })
  for (const line of lines) note(line)
  return lines.length > 0
}

function policyOf(text: string, name: string): Policy {
  try {
    if (pytorchSettingsOf(name) !== null) return name as Policy
  } catch (error) {
    throw wrong(text, (error as Error).message)
  }
  const policy = POLICIES.find(each => each === name)
  if (policy !== undefined) return policy
  throw wrong(text, `there is no '${name}'; there are ${TRACE}, ${POLICIES.join(', ')}, and pytorch:SETTINGS`)
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
