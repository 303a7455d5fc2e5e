// Tries PyTorch's settings over recordings, and says which are better than those that they were made with.

import { OutOfRangeError, WrongTypeError } from '../../../core/base/argument-errors.js'
import { type FixedSize, limitOf } from '../../../core/base/byte-size.js'
import { describe } from '../../../core/base/bytes.js'
import { checkOptionNames } from '../../../core/base/option-names.js'
import {
  checkSettingsLine,
  keptOfRecordings,
  keptSettings,
  replacedSettings,
  triedSettings,
} from '../pytorch/merged-settings.js'
import { formatPytorchSettings, type PytorchSettings, parsePytorchSettings } from '../pytorch/model/pytorch-settings.js'
import { recordedPytorchSettings, settingsBeside } from '../pytorch/named-settings.js'
import { platformOf } from '../pytorch/platform.js'
import { checkTrace, type Trace } from '../trace.js'
import { advised, combined, isExpandable, isOwnLimit, ranked } from './ranking.js'
import { Search } from './search.js'
import type { TuneRecording, TuneReport, TuneRun } from './tune-report.js'

/** Options of `tune()`; every one may be left out. */
export interface TuneOptions {
  /** the settings to try, each as PYTORCH_CUDA_ALLOC_CONF has them; default a list of usual ones */
  readonly settings?: readonly string[]
  /** the bytes that the program may reserve; default no limit. Settings that collect garbage are tried only with one */
  readonly capacityBytes?: FixedSize
  /**
   * the settings that the program has today, as PYTORCH_CUDA_ALLOC_CONF has them: the report says which of them a line
   * with advice keeps. Default those of the recordings
   */
  readonly merge?: string
  /** seconds after which no further setting is tried; default no limit */
  readonly seconds?: number
  /** called from time to time with the share that is done and the name of the current work */
  readonly onProgress?: (fraction: number, what: string) => void
}

/** The settings tried by default, as PYTORCH_CUDA_ALLOC_CONF has them. */
const CANDIDATES: readonly string[] = [
  '',
  'expandable_segments:True',
  'roundup_power2_divisions:4',
  'roundup_power2_divisions:8',
  'roundup_power2_divisions:16',
  'max_split_size_mb:64',
  'max_split_size_mb:128',
  'max_split_size_mb:256',
  'max_split_size_mb:512',
  'max_split_size_mb:1024',
  'max_split_size_mb:256,max_non_split_rounding_mb:256',
  'expandable_segments:True,roundup_power2_divisions:8',
  'max_split_size_mb:512,roundup_power2_divisions:8',
]

/** Those tried within a limit only. */
const LIMITED_CANDIDATES: readonly string[] = [
  'garbage_collection_threshold:0.6',
  'garbage_collection_threshold:0.8',
  'max_split_size_mb:256,garbage_collection_threshold:0.8',
]

type Given = Required<Omit<TuneOptions, 'merge'>> & Pick<TuneOptions, 'merge'> & { readonly capacityBytes: number }

/**
 * Tries settings over recordings of PyTorch. Rejects with TypeError or RangeError for a bad argument or option, and
 * with SlowReplayError for a replay that takes out of all proportion to its recording.
 */
export async function tune(traces: readonly Trace[], options: TuneOptions = {}): Promise<TuneReport> {
  const given = checked(traces, options)
  const recorded = traces.map(trace => formatPytorchSettings(recordedPytorchSettings(trace)))
  const baseline = recorded.every(each => each === recorded[0]) ? recorded[0] : ''
  const own = given.merge === undefined ? [] : [triedSettings(given.merge)]
  const searches = traces.map(trace => new Search(trace, given.capacityBytes))
  const isLimited = searches.some(({ within }) => within.withinIs === 'asked' || within.withinIs === 'failure')
  // A recording of Windows with expandable segments shows that they are available there.
  const isWindows = traces.some(trace => platformOf(trace) === 'Windows') && !isExpandable({ settings: baseline })
  const isReserveTooSmall = searches.some(({ within }) => within.lastFailure?.verdict === 'segmentTooSmall')
  const reserves = [...own, ...recorded].map(text => parsePytorchSettings(text).expandableReserveBytes)
  const expandableReserveBytes = isReserveTooSmall ? undefined : reserves.find(bytes => bytes !== undefined)
  const all = candidatesOf(baseline, [...recorded, ...own], given.settings, {
    isLimited,
    isWindows,
    ...(expandableReserveBytes === undefined ? {} : { expandableReserveBytes }),
  })
  const end = performance.now() + given.seconds * 1000
  const tried: string[] = []
  for (const [index, settings] of all.entries()) {
    // The base of all comparisons is always tried.
    if (index > 0 && performance.now() > end) break
    for (const [number, search] of searches.entries()) {
      given.onProgress((index + number / searches.length) / all.length, settings || 'defaults')
      await search.try(settings)
    }
    tried.push(settings)
  }
  const inTime = performance.now() <= end
  const recordings = searches.map(search => search.result(inTime)).sort((a, b) => neededBy(b) - neededBy(a))
  const compare = () => {
    const runsOf = (i: number) => searches.map(search => search.runs[i])
    const inOrder = tried.map((settings, i) => combined(settings, runsOf(i)))
    const isAsked = given.capacityBytes < Infinity
    const comparison = { before: inOrder[0], isLimited, isAsked, isOwnLimit: recordings.every(isOwnLimit) }
    const runs = ranked(inOrder, comparison)
    const isHelpless = recordings.every(isHopeless)
    return {
      runs,
      advice: isHelpless ? [] : advised(isWindows ? runs.filter(isOfWindows) : runs, comparison),
    }
  }
  const best = compare().advice.at(0)
  // The recording that needs most with the advice may be another one than today. Its runs get their least capacity.
  if (searches.length > 1 && best) for (const search of searches) await search.completeLeast(best.settings)
  const { runs, advice } = compare()
  given.onProgress(1, 'done')
  return {
    capacityBytes: Number.isFinite(given.capacityBytes) ? given.capacityBytes : null,
    isLimited,
    recordings,
    baseline,
    runs,
    advice,
    leftOut: all.slice(tried.length),
    kept: given.merge === undefined ? keptOfRecordings(traces) : keptSettings(given.merge),
    replaced: replacedSettings(given.merge ?? ''),
    ...settingsBeside([...traces.map(({ settings }) => settings ?? ''), given.merge ?? '', ...given.settings]),
  }
}

function checked(traces: readonly Trace[], options: TuneOptions): Given {
  if (!Array.isArray(traces) || traces.length === 0) {
    throw new WrongTypeError(
      `tune: traces must be a list of at least one Trace of readRecording, not ${describe(traces)}`,
    )
  }
  for (const trace of traces) {
    checkTrace('tune', trace)
    const { recorder, file } = trace
    if (recorder !== 'PyTorch') throw new OutOfRangeError(`${file} is not a recording of PyTorch; tune needs one`)
  }
  checkOptionNames('tune', options, ['settings', 'capacityBytes', 'merge', 'seconds', 'onProgress'])
  const { settings = [], merge, seconds = Infinity, onProgress = () => {} } = options
  if (!Array.isArray(settings)) throw new WrongTypeError(`settings must be a list of texts, not ${describe(settings)}`)
  const capacityBytes = limitOf(options.capacityBytes ?? Infinity, 'capacityBytes', null)
  for (const text of settings) checkSetting(text, capacityBytes)
  if (typeof seconds !== 'number' || !(seconds > 0)) {
    throw new OutOfRangeError(`seconds must be a number above 0, not ${describe(seconds)}`)
  }
  if (typeof onProgress !== 'function')
    throw new WrongTypeError(`onProgress must be a function, not ${describe(onProgress)}`)
  if (merge !== undefined) checkSettingsLine(merge)
  return { settings, capacityBytes, ...(merge === undefined ? {} : { merge }), seconds, onProgress }
}

/** Throws RangeError if `tune` cannot try a setting within this capacity. */
export function checkSetting(text: string, capacityBytes: number): void {
  const { backend, garbageCollectionThreshold } = parsePytorchSettings(text)
  if (backend === 'cudaMallocAsync') {
    throw new OutOfRangeError(
      `setting '${text}' cannot be tried exactly; replay has the driver's pool as 'driver-pool'`,
    )
  }
  if (garbageCollectionThreshold !== undefined && capacityBytes === Infinity) {
    throw new OutOfRangeError(`setting '${text}' has an effect only with a limit; give capacityBytes (--capacity)`)
  }
}

interface Circumstances extends Pick<PytorchSettings, 'expandableReserveBytes'> {
  readonly isLimited: boolean
  readonly isWindows: boolean
}

/**
 * The settings to try, first those that the others are compared with. Usual ones have the reserve of today, if there is
 * one: a program sets it because it has too few addresses.
 */
function candidatesOf(
  baseline: string,
  recorded: readonly string[],
  given: readonly string[],
  { isLimited, isWindows, ...reserve }: Circumstances,
): string[] {
  const usual = [...CANDIDATES, ...(isLimited ? LIMITED_CANDIDATES : [])]
    .filter(settings => !isWindows || !isExpandable({ settings }))
    .map(settings => formatPytorchSettings({ ...parsePytorchSettings(settings), ...reserve }))
  const asked = given.length > 0 ? given : [...recorded, ...usual]
  const written = asked.map(text => formatPytorchSettings(parsePytorchSettings(text)))
  const withLimit = (text: string) => isLimited || !text.includes('garbage_collection_threshold')
  return [...new Set([baseline, '', ...written])].filter((text, i) => i === 0 || withLimit(text))
}

/** Whether no setting can serve a recording. A limit of the program itself can be raised. */
function isHopeless(recording: TuneRecording): boolean {
  const { lowerBoundBytes, withinBytes, withinIs } = recording
  if (withinIs !== 'asked' && withinIs !== 'failure') return false
  return lowerBoundBytes > withinBytes! && !isOwnLimit(recording)
}

function isOfWindows(run: TuneRun): boolean {
  return !isExpandable(run)
}

function neededBy({ lowerBoundBytes, runs }: TuneRecording): number {
  return runs[0].leastCapacityBytes ?? lowerBoundBytes
}
