// The answer at the head of a page, by the worst that holds: out of memory, growth, or the ratio of reserved to in use.
// Then the holders of the peak. The facts and the words are those of `why` and `tune`.

import { formatBytes } from '../../../core/base/bytes.js'
import { recordedOutOfMemories } from '../../trace/failures/out-of-memory.js'
import type { ReplayReport } from '../../trace/replay-result.js'
import { Action, type Trace } from '../../trace/trace.js'
import { WORTH } from '../../trace/tune/ranking.js'
import type { TuneReport } from '../../trace/tune/tune-report.js'
import { formatRatio } from '../number-format.js'
import { holderRows, isUnknown } from '../place-text.js'
import { counted } from '../trace-lines.js'
import { remedyOf } from '../verdict-text.js'
import { growthSentence } from '../why/leak-text.js'
import { shortRemedyOf, VERDICTS } from '../why/out-of-memory-text.js'
import { HELD, isListedAtFailure, peakSentence, whenText } from '../why/peak-text.js'
import { growthOf, peakOf } from '../why/why-facts.js'
import type { PageRecording } from './page-data.js'
import type { ReportedTrace } from './reported-trace.js'

/** In the first screen; the table of the page has all. */
const HOLDERS = 3

type Answer = Pick<PageRecording, 'verdict' | 'held'>

/** The lines at the head, the worst first, and the holders of the peak. */
export function answerOf({ trace, replay, tuned }: Pick<ReportedTrace, 'trace' | 'replay' | 'tuned'>): Answer {
  const growth = growthOf(trace)
  const grown = growthSentence(growth)
  const isWorth = grown !== null && grown.bytes >= WORTH * trace.peakRequestedBytes
  const memory = verdictLines(trace, replay)
  const grows = grown === null ? [] : [grown.text]
  const peak = peakOf(trace)
  const outOfMemories = recordedOutOfMemories(trace)
  const { recordedPeakReservedBytes, peakRequestedBytes } = trace
  const facts = { trace: { recordedPeakReservedBytes, peakRequestedBytes, outOfMemories }, peak }
  const isListed = isListedAtFailure(facts) || peak.holders.every(isUnknown)
  return {
    verdict: [
      ...failureLines(outOfMemories.at(-1), tuned),
      ...(isWorth ? [...grows, ...memory] : [...memory, ...grows]),
    ],
    held: isListed
      ? null
      : {
          title: `${peakSentence(facts, whenText(trace, peak.event, growth.steps))} ${HELD}`,
          rows: holderRows(peak.holders.slice(0, HOLDERS), trace.peakRequestedBytes),
        },
  }
}

function failureLines(last: ReturnType<typeof recordedOutOfMemories>[number] | undefined, tuned: TuneReport | null) {
  if (last === undefined) return []
  const remedy = (tuned === null ? null : remedyOf(tuned)) ?? shortRemedyOf(last)
  return [`Out of memory: ${VERDICTS[last.verdict]}.`, ...(remedy === '' ? [] : [remedy])]
}

/** A line about the recording, and one about cuda-mempool if it was replayed. */
export function verdictLines(trace: Trace, replay: ReplayReport | null): string[] {
  const { peakRequestedBytes, recordedPeakReservedBytes: recorded } = trace
  const inUse = formatBytes(peakRequestedBytes)
  const failed = trace.action.includes(Action.outOfMemory)
  const who = trace.recorder === 'cuda-mempool' ? 'The pool' : trace.recorder
  const first =
    recorded === null || peakRequestedBytes === 0
      ? `The program had ${inUse} in use at the peak.`
      : `${who} reserved at most ${formatBytes(recorded)} for at most ${inUse} in use: ${formatRatio(recorded / peakRequestedBytes)} ×.`
  const ours = replay?.runs.find(({ policy }) => policy === 'cuda-mempool')
  if (ours?.peakReservedBytes == null || ours.overhead === null) return [first]
  if (ours.failures > 0) return [first, `cuda-mempool could not serve ${counted(ours.failures, 'request')}.`]
  const took = `${formatBytes(ours.peakReservedBytes)}: ${formatRatio(ours.overhead)} ×`
  if (!failed) return [first, `cuda-mempool serves the same run in ${took}.`]
  const what = 'this run, with the requests that failed,'
  const least = ours.leastCapacityBytes
  const within = least === null ? 'in' : `within a limit of ${formatBytes(least)}; without a limit it reserves`
  return [first, `cuda-mempool serves ${what} ${within} ${took} the least possible.`]
}
