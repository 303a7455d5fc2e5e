// The order of settings: by the memory that they reserve without a limit; within a limit by failures and retries. The
// least capacity comes last: at it PyTorch has already been made to give its idle memory back again and again.

import type { TuneAtCapacity, TuneRecording, TuneRun } from './tune-report.js'

/** A difference of less than this share counts as none: PyTorch takes memory in steps of 2 and 20 MiB. */
export const WORTH = 0.01
const MOST_ADVICE = 3

/** The settings to compare with, and the kind of comparison. */
export interface Comparison {
  /** the settings of today */
  readonly before: TuneRun
  /** whether the program had to stay within a capacity: one was asked about, or a request failed */
  readonly isLimited: boolean
  /** whether a capacity was asked about */
  readonly isAsked: boolean
  /** whether a limit of the program was too low, which may be higher than its recording shows, and can be raised */
  readonly isOwnLimit: boolean
}

/** Most bytes reserved at once: within the capacity that counts, or without one. */
export function takenBytes(run: TuneRun, { isLimited }: Pick<Comparison, 'isLimited'>): number {
  return isLimited && run.within !== null ? run.within.peakReservedBytes : run.peakReservedBytes
}

/**
 * The best runs first. Without a limit those that reserve least, then those with the fewest retries; of runs that
 * reserve about the least, one with fewer retries comes first. Within a limit those that serve all, then those with
 * the fewest failures, with the fewest retries, and that reserve least. Where a limit of the program can be raised,
 * settings that fail within it are compared by their least capacity. Settings that reserve more than today's come
 * behind today's, unless they alone serve all.
 */
export function ranked(runs: readonly TuneRun[], comparison: Comparison): TuneRun[] {
  const taken = (run: TuneRun) => takenBytes(run, comparison)
  const few = Math.min(...runs.map(taken)) * (1 + WORTH)
  const byTaken = (run: TuneRun) => (taken(run) <= few ? 0 : taken(run))
  const keysOf = (run: TuneRun) => {
    const more = reservesMore(run, comparison) ? 1 : 0
    const served = [failuresOf(run), retriesOf(run)]
    const fails = failuresOf(run) > 0 ? 1 : 0
    const keys = !comparison.isLimited
      ? [more, byTaken(run), ...served]
      : comparison.isOwnLimit && fails === 1
        ? [fails, more, leastOf(run)]
        : [fails, more, ...served, byTaken(run)]
    return [...keys, leastOf(run), run.settings.length]
  }
  const keyed = runs.map(run => ({ run, keys: keysOf(run) }))
  return keyed.toSorted((a, b) => firstDifference(a.keys, b.keys)).map(({ run }) => run)
}

function firstDifference(a: readonly number[], b: readonly number[]): number {
  const at = a.findIndex((key, i) => key !== b[i])
  return at < 0 ? 0 : a[at] - b[at]
}

/**
 * Whether a run reserves more than today's without a limit, and also within the capacity, if one was asked about and
 * serves today's.
 */
function reservesMore(run: TuneRun, { before, isAsked }: Comparison): boolean {
  const limits = isAsked && failuresOf(before) === 0 ? [false, true] : [false]
  return limits.every(isLimited => isLess(takenBytes(before, { isLimited }), takenBytes(run, { isLimited })))
}

/** The settings to recommend: each gains something, and is better in some way than those of its kind before it. */
export function advised(best: readonly TuneRun[], comparison: Comparison): TuneRun[] {
  const kept: TuneRun[] = []
  for (const run of best) {
    if (gains(run, comparison) && !kept.some(other => standsFor(other, run, comparison))) kept.push(run)
  }
  return kept.slice(0, MOST_ADVICE)
}

/**
 * Whether a run serves more than today's, or is better in another way and takes no more memory. Under a limit that can
 * be raised, one that needs less is better.
 */
function gains(run: TuneRun, comparison: Comparison): boolean {
  const { before, isLimited, isOwnLimit } = comparison
  if (run.settings === before.settings) return false
  const needsLess = isLess(leastOf(run), leastOf(before))
  const fewerFailures = failuresOf(before) - failuresOf(run)
  const fewerRetries = retriesOf(before) - retriesOf(run)
  if (reservesMore(run, comparison)) return isLimited && fewerFailures > 0 && failuresOf(run) === 0
  if (isLimited && failuresOf(before) > 0) {
    return fewerFailures > 0 || (isOwnLimit && needsLess)
  }
  if (fewerFailures < 0 || (isLimited && fewerRetries < 0)) return false
  if (isLess(takenBytes(run, comparison), takenBytes(before, comparison))) return true
  return fewerRetries > 0 || (fewerRetries === 0 && needsLess)
}

/**
 * Whether a run is at least as good in everything. Runs with expandable segments do not stand for runs without them,
 * because not every platform has expandable segments.
 */
function standsFor(other: TuneRun, run: TuneRun, comparison: Comparison): boolean {
  return (
    isExpandable(other) === isExpandable(run) &&
    failuresOf(other) <= failuresOf(run) &&
    retriesOf(other) <= retriesOf(run) &&
    takenBytes(other, comparison) <= takenBytes(run, comparison) * (1 + WORTH) &&
    leastOf(other) <= leastOf(run) * (1 + WORTH)
  )
}

/** Whether it is less by a share that counts. */
export function isLess(bytes: number, than: number): boolean {
  return bytes < than && bytes <= than * (1 - WORTH)
}

/** Whether the capacity that counts is a limit of the program, by its last failed request. */
export function isOwnLimit({ withinIs, lastFailure }: TuneRecording): boolean {
  return withinIs === 'failure' && lastFailure?.deviceHadRoom === true && lastFailure.verdict !== 'segmentTooSmall'
}

export function isExpandable({ settings }: Pick<TuneRun, 'settings'>): boolean {
  return settings.includes('expandable_segments:True')
}

function failuresOf({ within }: TuneRun): number {
  return within?.failures ?? 0
}

function retriesOf({ within }: TuneRun): number {
  return within?.retries ?? 0
}

function leastOf({ leastCapacityBytes }: TuneRun): number {
  return leastCapacityBytes ?? Number.MAX_VALUE
}

/** One run over several recordings: sizes are the largest, counts and times sums. */
export function combined(settings: string, runs: readonly TuneRun[]): TuneRun {
  const most = (of: (run: TuneRun) => number) => Math.max(...runs.map(of))
  const total = (of: (run: TuneRun) => number) => runs.reduce((all, run) => all + of(run), 0)
  const isKnown = runs.every(run => run.leastCapacityBytes !== null)
  return {
    settings,
    peakReservedBytes: most(run => run.peakReservedBytes),
    deviceCalls: total(run => run.deviceCalls),
    modelledDeviceSeconds: total(run => run.modelledDeviceSeconds),
    laterDeviceSeconds: total(run => run.laterDeviceSeconds),
    leastCapacityBytes: isKnown ? most(run => run.leastCapacityBytes!) : null,
    leastCapacityRetries: isKnown ? total(run => run.leastCapacityRetries!) : null,
    atCapacity: allWithin(runs, run => run.atCapacity),
    within: allWithin(runs, run => run.within),
  }
}

/** Recordings without a known capacity count as replayed without a limit. Null if all are. */
function allWithin(runs: readonly TuneRun[], of: (run: TuneRun) => TuneAtCapacity | null): TuneAtCapacity | null {
  if (runs.every(run => of(run) === null)) return null
  const all = runs.map(run => of(run) ?? { ...run, failures: 0, retries: 0 })
  const total = (figure: (replay: TuneAtCapacity) => number) => all.reduce((sum, each) => sum + figure(each), 0)
  return {
    failures: total(each => each.failures),
    retries: total(each => each.retries),
    peakReservedBytes: Math.max(...all.map(each => each.peakReservedBytes)),
    deviceCalls: total(each => each.deviceCalls),
    modelledDeviceSeconds: total(each => each.modelledDeviceSeconds),
    laterDeviceSeconds: total(each => each.laterDeviceSeconds),
  }
}
