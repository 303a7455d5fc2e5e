// The moment with most in use, and who held the memory then.

import { formatBytes } from '../../../core/base/bytes.js'
import { type Steps, stepOf } from '../../trace/analysis/steps.js'
import { BEFORE, type Trace } from '../../trace/trace.js'
import { WORTH } from '../../trace/tune/ranking.js'
import { formatCount } from '../number-format.js'
import { holderLines, isUnknown } from '../place-text.js'
import { sentences } from '../trace-lines.js'
import type { WhyFacts } from './why-facts.js'

const HOLDERS = 8
/** A failed request has a list of its own. */
const HOLDERS_BESIDE_FAILURE = 5
/** The title of a list of holders at the peak. */
export const HELD = 'Held then, by call site:'

/** `at event 148, in step 8 of 8` */
export function whenText({ events }: Pick<Trace, 'events'>, event: number, steps: Steps | null): string {
  if (events === 0) return 'in the snapshot'
  if (event === BEFORE) return 'before the first event'
  const at = `at event ${formatCount(event)}`
  if (steps === null) return at
  const step = stepOf(steps, event)
  if (step === null) return `${at}, after the last step`
  return `${at}, in step ${formatCount(step)} of ${formatCount(steps.steps.length)}`
}

type PeakFacts = Pick<WhyFacts, 'peak'> & {
  readonly trace: Pick<WhyFacts['trace'], 'recordedPeakReservedBytes' | 'peakRequestedBytes' | 'outOfMemories'>
}

export function peakText(facts: PeakFacts, when: string, width: number): string {
  const { trace, peak } = facts
  const first = peakSentence(facts, when)
  if (isListedAtFailure(facts)) return sentences([first], width)
  if (peak.holders.every(isUnknown)) return sentences([first, 'Who held it is not recorded.'], width)
  const most = trace.outOfMemories.length > 0 ? HOLDERS_BESIDE_FAILURE : HOLDERS
  const lines = holderLines(peak.holders.slice(0, most), trace.peakRequestedBytes, width)
  return [sentences([first, HELD], width), ...lines].join('\n')
}

/** How much was in use at most, when, and how much was reserved then. */
export function peakSentence({ trace, peak }: PeakFacts, when: string): string {
  const { recordedPeakReservedBytes: atMost, peakRequestedBytes } = trace
  const atAnyTime = atMost === null ? '' : `; at most ${formatBytes(atMost)} were reserved`
  const beside = peak.reservedBytes === null ? atAnyTime : `, ${formatBytes(peak.reservedBytes)} reserved then`
  return `Most in use: ${formatBytes(peakRequestedBytes)} ${when}${beside}.`
}

/** Whether the failed request has the list of holders: most of a run that fails at its peak is held there. */
export function isListedAtFailure({ trace: { peakRequestedBytes, outOfMemories } }: PeakFacts): boolean {
  return peakRequestedBytes <= (outOfMemories.at(-1)?.inUseBytes ?? 0) * (1 + WORTH)
}
