// The words of a page: the verdict, the facts, the failed requests.

import { listed } from '../../../core/base/readable.js'
import { shortened } from '../../../core/base/shown-text.js'
import { stepsOf } from '../../trace/analysis/steps.js'
import { type FailedRequest, failedRequests } from '../../trace/failures/out-of-memory.js'
import type { Policy, ReplayReport } from '../../trace/replay-result.js'
import { recordedRun } from '../../trace/run-figures.js'
import type { Trace } from '../../trace/trace.js'
import { initialOf } from '../../trace/trace-figures.js'
import { adviceLines } from '../advice-text.js'
import { isUnclear, MAYBE, MEMORY_FIGURES } from '../figures.js'
import { formatCount, formatNs, MISSING } from '../number-format.js'
import { holderRows, isUnknown } from '../place-text.js'
import { nameOf } from '../policy-names.js'
import { RECORDERS, type Recorder } from '../recorders.js'
import { helpfulSetting, isSettingLine, recordedSettings } from '../settings-text.js'
import { counted, gapsOf, initialLines } from '../trace-lines.js'
import { idleSentences } from '../why/idle-text.js'
import { factsOf, verdictOf } from '../why/out-of-memory-text.js'
import { whenText } from '../why/peak-text.js'
import { idleOf } from '../why/why-facts.js'
import { answerOf } from './headline.js'
import { outsideOf } from './outside-text.js'
import type { PageData, PageDifference, PageFailure, PageRecording } from './page-data.js'
import { pageRanks } from './page-ranks.js'
import { remediesOf } from './remedies.js'
import { MOST_EVENTS_WITH_ALL, type ReportedTrace } from './reported-trace.js'

/** All data of a page but its pictures. */
export function pageData(recordings: readonly ReportedTrace[], difference?: PageDifference): PageData {
  const compared =
    difference !== undefined ? { difference } : recordings.length > 1 ? { ranks: pageRanks(recordings) } : {}
  return { version: 1, recordings: recordings.map(pageRecording), ...compared }
}

/** The words of a page about a trace, and about its replay. */
export function pageRecording({ trace, replay, tuned, tab, givenUp, leftOut = [] }: ReportedTrace): PageRecording {
  const requests = failedRequests(trace)
  const names = RECORDERS[trace.recorder]
  const remedies = tuned === null ? null : remediesOf(tuned)
  return {
    tab: shortened(tab),
    file: shortened(trace.file),
    device: trace.device > 0 || trace.otherDevices.length > 0 ? `device ${trace.device}` : '',
    ...answerOf({ trace, replay, tuned }),
    facts: factsLine(trace, replay),
    notes: [
      ...(givenUp === undefined ? [] : [`${shortened(givenUp)}.`]),
      ...idleNotes(trace),
      ...notesOf(trace, replay),
      ...leftOutOf(leftOut),
    ],
    ...policiesOf(trace, replay),
    inUseBytes: trace.peakRequestedBytes,
    leastBytes: replay === null ? trace.peakRequestedBytes : trace.peakWithFailedBytes,
    failures: requests.map(request => failureOf(request, names)),
    outside: outsideOf(requests.map(({ failed }) => failed)),
    advice: [
      ...triedPolicies(replay),
      ...(tuned !== null ? adviceLines(tuned, remedies !== null) : replay === null ? [] : helpfulSetting(replay)),
    ].map(text => ({ text, isSetting: isSettingLine(text) })),
    remedies,
  }
}

/** Whether each policy would have served the request that failed last. */
function triedPolicies(replay: ReplayReport | null): string[] {
  const runs = replay?.runs.filter(run => run.servesAtFailure !== null || isUnclear(run)) ?? []
  if (replay === null || runs.length === 0) return []
  const answers = runs.map(run => {
    return `${nameOf(run.policy, replay.trace)} ${isUnclear(run) ? 'maybe' : run.servesAtFailure ? 'yes' : 'no'}`
  })
  const unclear = runs.some(isUnclear) ? ` ${MAYBE}` : ''
  return [`Would have served the last failed request, by replay: ${answers.join(' · ')}.${unclear}`]
}

/** The figures of all policies, the recorded one first. */
function policiesOf(trace: Trace, replay: ReplayReport | null): Pick<PageRecording, 'columns' | 'policies'> {
  const replayed = (replay?.runs ?? []).filter(run => run.policy !== 'recorded' || run.peakReservedBytes !== null)
  const isKnown = trace.recordedPeakReservedBytes === null || replayed.some(({ policy }) => policy === 'recorded')
  const runs = isKnown ? replayed : [recordedRun(trace), ...replayed]
  const figures = replay === null ? MEMORY_FIGURES : MEMORY_FIGURES.filter(({ isShown }) => isShown?.(replay) ?? true)
  const columns = figures.flatMap(({ text, page }) => (page === undefined ? [] : [{ text, ...page }]))
  const shown = columns.filter(({ text }) => runs.some(run => text(run) !== MISSING))
  return {
    columns: shown.map(({ title, tip }) => ({ title, tip })),
    policies: runs.map(run => ({
      policy: run.policy,
      label: nameOf(run.policy, trace),
      peakBytes: run.peakReservedBytes,
      cells: shown.map(({ text }) => text(run)),
    })),
  }
}

function factsLine(trace: Trace, replay: ReplayReport | null): string {
  const { events, allocations, spanSeconds, eventStreams } = trace
  const facts = [
    counted(events, 'event'),
    counted(allocations, 'allocation'),
    ...(eventStreams > 1 ? [`${formatCount(eventStreams)} streams`] : []),
    ...(spanSeconds > 0 ? [formatNs(spanSeconds * 1e9)] : []),
  ]
  const settings = replay === null ? null : recordedSettings(replay)
  return [facts.join(' · '), ...(settings === null ? [] : [settings])].join('. ')
}

/** The panel of a failed request has the idle memory of that moment. */
function idleNotes(trace: Trace): string[] {
  const idle = idleOf(trace)
  if (idle === null || idle.moment.isFailure) return []
  return idleSentences(idle, whenText(trace, idle.moment.event, stepsOf(trace)))
}

function notesOf(trace: Trace, replay: ReplayReport | null): string[] {
  const onSimulated = 'Other policies than the recorded one were replayed on a simulated GPU.'
  return [...gapsOf(trace), ...initialLines(initialOf(trace)), ...(replay?.device.simulated ? [onSimulated] : [])]
}

/** A sentence about the policies that a large recording was not replayed under. */
function leftOutOf(policies: readonly Policy[]): string[] {
  if (policies.length === 0) return []
  const most = formatCount(MOST_EVENTS_WITH_ALL)
  return [`Above ${most} events some policies are replayed only if report's --policy names them: ${listed(policies)}.`]
}

function failureOf({ failed, largestIdle }: FailedRequest, names: Recorder): PageFailure {
  const { event, askedBytes, isLast } = failed
  return {
    event,
    title: `Out of memory at event ${formatCount(event)}${isLast ? ', and no allocation follows' : ''}`,
    verdict: verdictOf(failed, names),
    facts: factsOf(failed),
    askedBytes,
    pieces: largestIdle,
    holders: failed.holders.every(isUnknown) ? [] : holderRows(failed.holders, failed.inUseBytes),
  }
}
