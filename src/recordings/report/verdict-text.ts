// Whether recordings fit the capacity that counts, as sentences, and how far a limit of the program must be raised.

import { formatBytes } from '../../core/base/bytes.js'
import { shown } from '../../core/base/shown-text.js'
import { shortPath } from '../trace/frames/short-path.js'
import type { TuneAtCapacity, TuneRecording, TuneReport, TuneRun } from '../trace/tune/tune-report.js'
import { formatCount } from './number-format.js'
import { placeText } from './place-text.js'

/** torch.cuda.set_per_process_memory_fraction takes shares; more digits than these tell nothing. */
const SHARE_STEPS = 1000
const NONE_SERVES = 'None of the settings tried serves it'

/** Whether the recordings fit the capacity that counts, and how far a limit of the program must be raised. */
export function verdictsOf(report: TuneReport): string[] {
  return report.recordings.flatMap(recording => {
    const limit = limitLines(recording, report)
    const isSaid = limit.length > 0 && recording.withinIs === 'failure'
    const isLimited = recording.withinIs === 'asked' || recording.withinIs === 'failure'
    return [
      ...(isLimited && !isSaid ? [verdictOf(recording, report)] : []),
      ...(isWithoutLimit(recording) ? [neededText(recording, report)] : []),
      ...limit,
    ]
  })
}

/** Whether a request failed within a limit that neither the recording nor the person tells. */
export function isWithoutLimit({ withinIs, lastFailure }: TuneRecording): boolean {
  return withinIs !== 'asked' && lastFailure?.verdict === 'unknown'
}

function neededText({ file, lowerBoundBytes, runs }: TuneRecording, { recordings, baseline }: TuneReport): string {
  const name = recordings.length === 1 ? 'The recording' : shown(shortPath(file))
  const least = formatBytes(runOf(runs, baseline).leastCapacityBytes ?? lowerBoundBytes)
  return (
    `${name} does not tell what the device had when its request failed. With today's settings at least ${least} ` +
    'serve all, that request too.'
  )
}

/** The settings, or the limit, that serve the failed requests of a recording; null if neither is known to. */
export function remedyOf(report: TuneReport): string | null {
  const [recording] = report.recordings
  const { withinBytes, lowerBoundBytes } = recording
  if (isWithoutLimit(recording)) return neededText(recording, report)
  if (isServedOnlyInReplay(recording, report)) return null
  const serving = servingText(recording, report)
  if (serving !== null) return serving
  const limit = raiseText("the program's own limit", recording, report)
  if (limit !== null) return limit
  return withinBytes !== null && lowerBoundBytes <= withinBytes ? `${NONE_SERVES}.` : null
}

function verdictOf(recording: TuneRecording, report: TuneReport): string {
  const { file, lowerBoundBytes, runs } = recording
  const withinBytes = recording.withinBytes!
  const name = report.recordings.length === 1 ? 'The recording' : shown(shortPath(file))
  const limit = limitOf(recording)
  if (lowerBoundBytes > withinBytes) return `${name} does not fit ${limit} with any setting: ${missingOf(recording)}`
  const before = runOf(runs, report.baseline)
  const least = before.leastCapacityBytes
  const needs = least === null ? '' : ` With today's settings it needs at least ${formatBytes(least)}.`
  if (before.within?.failures === 0) {
    if (isServedOnlyInReplay(recording, report)) return `${name} ${contradictionOf(recording)}`
    return `${name} fits ${limit} as recorded, ${withRetries(before.within.retries)}.${needs}`
  }
  const fails = `${name} does not fit ${limit} as recorded: ${failing(before.within)}.${needs}`
  return `${fails} ${servingText(recording, report) ?? `${NONE_SERVES} there.`}`
}

/** The settings with which the recording fits; null if no tried one serves it. */
function servingText({ runs }: TuneRecording, { advice }: TuneReport): string | null {
  const serving = advice.find(({ settings }) => runOf(runs, settings).within?.failures === 0)
  if (serving === undefined) return null
  const { retries } = runOf(runs, serving.settings).within!
  return `With ${settingsName(serving.settings)} it fits, ${withRetries(retries)}.`
}

/** The capacity, with its origin. */
function limitOf({ withinBytes, withinIs, lastFailure }: TuneRecording): string {
  const bytes = formatBytes(withinBytes ?? 0)
  if (withinIs !== 'failure') return bytes
  return `the ${bytes} that the program could have when its request failed (event ${formatCount(lastFailure?.event ?? 0)})`
}

/** The bytes above the capacity, and who holds most. */
function missingOf({ lowerBoundBytes, lowerBoundRequest, withinBytes, holders }: TuneRecording): string {
  const over = formatBytes(lowerBoundBytes - withinBytes!)
  const what =
    lowerBoundRequest === null
      ? 'what is in use at its peak is'
      : `the request of ${formatBytes(lowerBoundRequest.bytes)} at event ${formatCount(lowerBoundRequest.event)} ` +
        'and what was in use then are'
  return `${what} ${over} above it.${holdersOf(holders)}`
}

function holdersOf(holders: TuneRecording['holders']): string {
  const held = holders.map(
    holder => `${formatBytes(holder.bytes)} by ${holder.site === null ? 'blocks ' : ''}${placeText(holder)}`,
  )
  return held.length === 0 ? '' : ` At the peak most is held: ${held.join('; ')}.`
}

/** Whether a replay of today's settings serves what failed in the recording within as much memory. */
export function isServedOnlyInReplay(
  { runs, withinBytes, lastFailure }: TuneRecording,
  { baseline }: TuneReport,
): boolean {
  const couldHave = lastFailure?.capacityBytes ?? null
  return couldHave !== null && withinBytes! <= couldHave && runOf(runs, baseline).within?.failures === 0
}

/** A replay that serves what failed: only the GPU's work in the recorded run can tell why. */
function contradictionOf(recording: TuneRecording): string {
  const { lastFailure } = recording
  const waiting = lastFailure?.waitingBytes ?? 0
  const why =
    waiting > 0
      ? `: there PyTorch waits for the other streams, which still used ${formatBytes(waiting)} of freed memory`
      : ', though a request failed when it was recorded'
  return `is served by a replay within ${limitOf(recording)}${why}.`
}

export function failing(within: TuneAtCapacity | null): string {
  const failures = within?.failures ?? 0
  return failures === 1 ? 'a request fails' : `${formatCount(failures)} requests fail`
}

export function withRetries(retries: number): string {
  return retries === 0 ? 'without a retry' : `with ${countOf(retries)}`
}

export function countOf(retries: number): string {
  return retries === 1 ? '1 retry' : `${formatCount(retries)} retries`
}

export function noneOr(retries: number): string {
  return retries === 0 ? 'no retry' : countOf(retries)
}

/** Empty unless the last failed request was stopped by a limit of the program, while the device had room. */
function limitLines(recording: TuneRecording, report: TuneReport): string[] {
  const { lastFailure, runs, lowerBoundBytes } = recording
  const raise = raiseText('it', recording, report)
  if (lastFailure === null || raise === null) return []
  const had = lastFailure.capacityBytes ?? 0
  const below = lastFailure.capacityBelowBytes
  // The recording does not show the requests that would have followed the failed one.
  const then = lastFailure.isLast ? ' No allocation follows the failed request; a run that goes on may need more.' : ''
  const isAsked = recording.withinIs === 'asked'
  const between = isAsked || below === null ? '' : `, which lies between ${formatBytes(had)} and ${formatBytes(below)}`
  const names = isAsked
    ? ''
    : " PyTorch's message names the limit: give it to tune as --capacity, and the answer is certain."
  const isServed = runs.some(({ leastCapacityBytes }) => (leastCapacityBytes ?? Infinity) < (below ?? Infinity))
  const none = isAsked || isServed ? '' : ' Without raising it, no setting tried serves it.'
  const bound =
    lowerBoundBytes > had
      ? ` Below ${formatBytes(lowerBoundBytes)} no setting serves it.${isAsked ? '' : holdersOf(recording.holders)}`
      : ''
  return [`The program's own limit stopped it${between}. ${raise}${none}${bound}${names}${then}`]
}

/** The least limit of a program that serves a recording. */
export interface RaisedLimit {
  readonly bytes: number
  /** of the memory that the device had for the program; null if that is less */
  readonly share: number | null
  readonly deviceBytes: number
}

/** The limit that serves a recording with some settings; null unless a limit of the program stopped it. */
export function raisedLimit(recording: TuneRecording, settings: string): RaisedLimit | null {
  const limit = leastLimit(recording, settings)
  // Within less than it had, only work of other streams can have stopped it.
  return limit === null || limit.bytes <= (recording.lastFailure?.capacityBytes ?? 0) ? null : limit
}

function leastLimit({ lastFailure, runs }: TuneRecording, settings: string): RaisedLimit | null {
  const bytes = runs.find(run => run.settings === settings)?.leastCapacityBytes ?? null
  if (lastFailure?.deviceHadRoom !== true || bytes === null) return null
  // The device has at least what was reserved and free. So a share of that is enough.
  const deviceBytes = (lastFailure.reservedBytes ?? 0) + (lastFailure.deviceFreeBytes ?? 0)
  const share = bytes > deviceBytes ? null : Math.ceil((bytes / deviceBytes) * SHARE_STEPS) / SHARE_STEPS
  return { bytes, share, deviceBytes }
}

/** How far to raise `limit`, with today's settings and the best ones; null unless a limit of the program stopped it. */
function raiseText(limit: string, recording: TuneRecording, report: TuneReport): string | null {
  const { lastFailure, withinBytes, withinIs } = recording
  const today = raisedLimit(recording, report.baseline)
  if (today === null) return null
  const best = report.advice.at(0)
  const least = best === undefined ? null : leastLimit(recording, best.settings)
  const isBetter = least !== null && least.bytes < today.bytes
  const what = lastFailure!.isLast ? 'what is recorded' : 'the run'
  const asked = withinIs === 'asked' ? withinBytes! : 0
  const withToday = limitText(today)
  const withBest = isBetter ? `with ${settingsName(best!.settings)}` : ''
  if (today.bytes <= asked) {
    const enough = `The least is ${withToday}${isBetter ? `, or ${withBest} ${limitText(least)}` : ''}.`
    return `To serve ${what}, a limit of ${formatBytes(asked)} is enough with today's settings. ${enough}`
  }
  const raise = `To serve ${what}, raise ${limit} with today's settings to ${withToday}`
  if (!isBetter) return `${raise}.`
  const isUnclear = asked === 0 && least.bytes < (lastFailure!.capacityBelowBytes ?? 0)
  const already = isUnclear ? ' If the limit is already as large, the setting alone is enough.' : ''
  if (least.bytes <= asked) return `${raise}; ${withBest} ${formatBytes(asked)} is enough.`
  return `${raise}, or ${withBest} to ${limitText(least)}.${already}`
}

function limitText({ bytes, share, deviceBytes }: RaisedLimit): string {
  const size = formatBytes(bytes)
  if (share === null) return `${size}, more than the ${formatBytes(deviceBytes)} that the device had for it`
  return `${size} (set_per_process_memory_fraction(${share}) is enough)`
}

export function settingsName(settings: string): string {
  return settings || "PyTorch's defaults"
}

/** The run of some settings, which were tried. */
export function runOf(runs: readonly TuneRun[], settings: string): TuneRun {
  return runs.find(run => run.settings === settings)!
}
