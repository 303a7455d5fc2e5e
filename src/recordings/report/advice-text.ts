// The settings that `tune` advises as sentences: the gain and the price of each, or why none is advised.

import { formatBytes, GiB } from '../../core/base/bytes.js'
import { mergedSettings } from '../trace/pytorch/merged-settings.js'
import { isExpandable, isLess, isOwnLimit, takenBytes } from '../trace/tune/ranking.js'
import type { TuneAtCapacity, TuneReport, TuneRun } from '../trace/tune/tune-report.js'
import { formatCount, formatNs, formatShare } from './number-format.js'
import { settingLine } from './settings-text.js'
import { countOf, failing, isServedOnlyInReplay, isWithoutLimit, noneOr, runOf, verdictsOf } from './verdict-text.js'

/**
 * Idle memory up to this share of the reserved bytes counts as little. In three of the five programs of
 * `traces/settings/` the best of all settings leaves 2 to 5 % idle, by rounding and by segments of 20 MiB.
 */
export const LITTLE_IDLE = 0.05

/** A setting that helps: its gain and its price, and the line to copy. */
interface Advice {
  readonly text: string
  /** the last sentences of the text: the price, and a limit that it needs */
  readonly price: string
  readonly line: string
}

/** The result of `tune` with the lines to copy. */
export interface TuneAnswer extends TuneReport {
  /** a line for the shell for each of `advice`, which also sets what is `kept` */
  readonly lines: readonly string[]
}

export function tuneAnswer(report: TuneReport): TuneAnswer {
  return { ...report, lines: adviceOf(report).map(({ line }) => line) }
}

/** The advice as sentences, each with the line to copy behind it; `isTold` leaves it out. */
export function adviceLines(report: TuneReport, isTold = false): string[] {
  const advice = adviceOf(report)
  const said = isTold ? [] : advice.length === 0 ? noAdvice(report) : advice.flatMap(({ text, line }) => [text, line])
  return [...verdictsOf(report), ...said, ...conflictsOf(report), ...leftOutOf(report)]
}

/** The settings that were not tried. */
export function leftOutOf({ leftOut }: TuneReport): string[] {
  return leftOut.length === 0 ? [] : [`Not tried, because the time was over: ${leftOut.join('; ')}.`]
}

export function adviceOf(report: TuneReport): Advice[] {
  const platform = platformOf(report)
  return report.advice.map(run => ({
    text: [...gainOf(run, report), ...priceOf(run, report)].join(' '),
    price: priceOf(run, report).join(' '),
    line: settingLine(mergedSettings(report.kept, run.settings), platform),
  }))
}

/** The gain over the settings of today: figures that differ by less than 1 % are left out. */
function gainOf(run: TuneRun, report: TuneReport): string[] {
  const before = runOf(report.runs, report.baseline)
  const [served, reserved] = [servedText(run, before, report), reservedText(run, before, report)]
  const least = leastText(run, before, report)
  if (!report.isLimited) return [...reserved, ...served, ...least]
  return served.length > 0 ? [...served, ...reserved, ...least] : [...least, ...reserved]
}

function priceOf(run: TuneRun, report: TuneReport): string[] {
  return [
    ...timeText(run, runOf(report.runs, report.baseline), report),
    ...(run.settings.includes('garbage_collection_threshold') ? [limitNeeded(run, report)] : []),
  ]
}

/** Garbage is collected above a share of the program's own limit only. */
function limitNeeded({ within, leastCapacityBytes }: TuneRun, { recordings }: TuneReport): string {
  const needs = 'It has an effect only with a limit of the program'
  const [withinBytes, ...others] = new Set(recordings.map(recording => recording.withinBytes))
  const fails = (within?.failures ?? 0) > 0
  const bytes = fails ? leastCapacityBytes : withinBytes
  if (others.length > 0 || bytes === null || bytes === undefined) {
    return `${needs}: torch.cuda.set_per_process_memory_fraction.`
  }
  if (recordings.every(isOwnLimit)) return `${needs}, and serves the run from ${formatBytes(bytes)} on.`
  const share = `torch.cuda.set_per_process_memory_fraction(${(bytes / GiB).toFixed(2)} / G)`
  return `${needs}: ${share}, where G is the memory of the GPU in GiB.`
}

/** Failures, retries and reserved memory within the capacity that counts. */
function servedText(run: TuneRun, before: TuneRun, report: TuneReport): string[] {
  const [now, was] = [run.within, before.within]
  if (now === null || was === null) return []
  // The least capacity tells how far a limit must be raised.
  if (now.failures > 0 && now.failures >= was.failures) return []
  const parts: string[] = []
  if (now.failures !== was.failures) {
    const none = now.failures === 0 ? 'no request fails' : failing(now)
    parts.push(`${none} instead of ${formatCount(was.failures)}`)
  }
  if (now.retries !== was.retries) parts.push(`${noneOr(now.retries)} instead of ${formatCount(was.retries)}`)
  else if (parts.length > 0 && now.retries > 0) parts.push(`${countOf(now.retries)} as before`)
  // Settings that fail reserve less because they fail.
  const isAlike = report.isLimited && now.failures === was.failures
  if (isAlike && differs(now.peakReservedBytes, was.peakReservedBytes)) {
    parts.push(`reserved ${changeOf(now.peakReservedBytes, was.peakReservedBytes)}`)
  }
  return parts.length === 0 ? [] : [`Within ${withinText(report)}: ${parts.join('; ')}.`]
}

/** The capacities that counted, of several recordings the largest. */
function withinText({ recordings, isLimited }: TuneReport): string {
  const sizes = capacitiesOf(recordings)
  if (sizes.length > 1) return isLimited ? 'what each recording could have' : 'what each recording had reserved'
  return isLimited ? sizes[0] : `${sizes[0]}, a segment of 20 MiB above the recorded peak`
}

/** The capacities that counted, as text, each once. */
export function capacitiesOf(recordings: TuneReport['recordings']): string[] {
  return [...new Set(recordings.flatMap(({ withinBytes }) => (withinBytes === null ? [] : [formatBytes(withinBytes)])))]
}

function reservedText(run: TuneRun, before: TuneRun, { isLimited }: TuneReport): string[] {
  const [now, was] = [run.peakReservedBytes, before.peakReservedBytes]
  const isSaid = isLimited && now === run.within?.peakReservedBytes && was === before.within?.peakReservedBytes
  if (isSaid) return []
  if (differs(now, was)) return [`It reserves ${changeOf(now, was)} without a limit.`]
  return isLimited ? [] : [`It reserves as much without a limit, ${formatBytes(now)}.`]
}

function changeOf(now: number, was: number): string {
  const share = was === 0 ? '' : ` (${formatShare(Math.abs(1 - now / was))} ${now < was ? 'less' : 'more'})`
  return `${formatBytes(now)} instead of ${formatBytes(was)}${share}`
}

function leastText(run: TuneRun, before: TuneRun, { recordings }: TuneReport): string[] {
  const [now, was] = [run.leastCapacityBytes, before.leastCapacityBytes]
  if (was === null) return now === null ? [] : [`The least that serves the run is ${formatBytes(now)}.`]
  if (now === null && recordings.length > 1) return []
  if (now === null) return [`The least that serves the run is more than the ${formatBytes(was)} of today.`]
  if (!differs(now, was)) return []
  const isAlike = run.leastCapacityRetries === before.leastCapacityRetries
  const [there, thereBefore] = [run, before].map(each =>
    isAlike ? '' : ` (${noneOr(each.leastCapacityRetries ?? 0)})`,
  )
  return [`The least that serves the run is ${formatBytes(now)}${there} instead of ${formatBytes(was)}${thereBefore}.`]
}

/** Whether the driver's time is that within the limit: there is one, and some setting serves it. */
export function isTimedWithin({ runs, isLimited }: TuneReport): boolean {
  return isLimited && runs.some(({ within }) => within?.failures === 0)
}

/** The replay of a run whose driver time is said. */
export function timedRun(run: TuneRun, report: TuneReport): TuneRun | TuneAtCapacity {
  return (isTimedWithin(report) ? run.within : null) ?? run
}

/** The driver's time, if it is more than today's. */
function timeText(run: TuneRun, before: TuneRun, report: TuneReport): string[] {
  const { recordings } = report
  const [timed, timedBefore] = [run, before].map(each => timedRun(each, report))
  const [now, was] = [timed.modelledDeviceSeconds, timedBefore.modelledDeviceSeconds]
  if (now <= was) return []
  const span = recordings.every(each => each.spanSeconds > 0)
    ? recordings.reduce((sum, each) => sum + each.spanSeconds, 0)
    : null
  // A recording cut out of a run may be shorter than the calls that its blocks would have needed.
  const share = span === null || now > span ? '' : ` (${shareOfRun((now - was) / span)})`
  const later = timed.laterDeviceSeconds - timedBefore.laterDeviceSeconds
  const [more, moreLater, all, today] = [now - was, later, now, was].map(seconds => formatNs(seconds * 1e9))
  const together = recordings.length > 1 ? ' in all recordings together' : ''
  const when = later > 0 ? `${moreLater} of it in the second half of the events` : 'all in the first half, so once'
  return [
    `It costs ${more} more time${together}${share}, ${when}, by a model of the driver: calls that take and give back ` +
      `memory last ${all} instead of ${today}. Nothing else gets slower.`,
  ]
}

function shareOfRun(share: number): string {
  return share < 0.0005 ? 'below 0.1 % of the run' : `${formatShare(share)} of the run`
}

/** Why nothing is advised. Empty where the verdict says all. */
export function noAdvice(report: TuneReport): string[] {
  const { runs, recordings, isLimited } = report
  const { failures, retries, share, idleBytes, reservedBytes } = idleOf(report)
  if (failures > 0 || recordings.some(recording => isServedOnlyInReplay(recording, report))) return []
  if (runs.length === 1) return ['Only the recorded settings were tried.']
  if (needsNothing(report)) {
    return [`Nothing needs to be set: no retry, and ${formatShare(share)} of what is reserved is never in use.`]
  }
  const calls = retries === 0 ? '' : `, and there ${retries === 1 ? 'is' : 'are'} ${countOf(retries)}`
  const of = `Of ${formatBytes(reservedBytes)} reserved${isLimited ? ' there' : ''}`
  return [
    `None of ${formatCount(runs.length)} settings tried is better than today's. ${of}, ${formatBytes(idleBytes)} ` +
      `(${formatShare(share)}) are never in use${calls}.`,
  ]
}

function needsNothing(report: TuneReport): boolean {
  const { failures, retries, share } = idleOf(report)
  if (report.recordings.some(isWithoutLimit)) return false
  return failures === 0 && retries === 0 && share <= LITTLE_IDLE
}

/** How today's settings serve, and the memory that is idle even at the peak; of several recordings the most idle. */
function idleOf(report: TuneReport) {
  const { failures = 0, retries = 0 } = runOf(report.runs, report.baseline).within ?? {}
  const all = report.recordings.map(({ lowerBoundBytes, runs }) => {
    const reservedBytes = takenBytes(runOf(runs, report.baseline), report)
    const idleBytes = Math.max(0, reservedBytes - lowerBoundBytes)
    return { reservedBytes, idleBytes, share: reservedBytes === 0 ? 0 : idleBytes / reservedBytes }
  })
  return { failures, retries, ...all.reduce((most, each) => (each.share > most.share ? each : most)) }
}

/** Conflicts of the advised settings with other libraries, and settings that the platform lacks. */
export function conflictsOf(report: TuneReport): string[] {
  if (platformOf(report) === 'Windows' && !isExpandable({ settings: report.baseline })) {
    if (report.advice.length === 0 && needsNothing(report)) return []
    return ['The recording is of Windows, where PyTorch has no expandable segments: they are not advised.']
  }
  if (!report.advice.some(isExpandable) || isExpandable({ settings: report.baseline })) return []
  return [
    'Expandable segments do not go together with libraries that need plain memory of cudaMalloc: custom all-reduce and ' +
      'sleep modes of serving engines. Older versions of PyTorch cannot share their memory with other processes.',
  ]
}

export function platformOf({ recordings }: TuneReport): 'Windows' | null {
  return recordings.some(({ platform }) => platform === 'Windows') ? 'Windows' : null
}

function differs(a: number, b: number): boolean {
  return isLess(a, b) || isLess(b, a)
}
