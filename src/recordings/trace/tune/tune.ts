// Searches PyTorch's settings over recordings: each setting is replayed, without a limit, within a capacity, and at
// falling capacities until it no longer serves everything.

import { OutOfRangeError, WrongTypeError } from '../../../core/base/argument-errors.js'
import { type FixedSize, limitOf } from '../../../core/base/byte-size.js'
import { describe } from '../../../core/base/bytes.js'
import { checkOptionNames } from '../../../core/base/option-names.js'
import { inUseOf, liveAfter } from '../analysis/curves.js'
import { type Holder, holdersOf } from '../failures/holders.js'
import { failedEvents } from '../failures/out-of-memory.js'
import {
  checkSettingsLine,
  keptOfRecordings,
  keptSettings,
  replacedSettings,
  triedSettings,
} from '../pytorch/merged-settings.js'
import { formatPytorchSettings, type PytorchSettings, parsePytorchSettings } from '../pytorch/model/pytorch-settings.js'
import { recordedPytorchSettings, settingsBeside } from '../pytorch/named-settings.js'
import { modelWithin } from '../pytorch/program-releases.js'
import { replayPytorchPolicy } from '../pytorch/pytorch-replay.js'
import { checkTrace, type Trace } from '../trace.js'
import { leastCapacity } from './least-capacity.js'
import { packedBytesOf } from './packing.js'
import type { TuneAtCapacity, TuneRecording, TuneReport, TuneRun } from './tune-report.js'

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

/** A setting is worth advice if it needs at least this share less. */
const WORTH = 0.01
const MOST_ADVICE = 3
const MOST_HOLDERS = 3

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
  const all = candidatesOf(baseline, [...recorded, ...own], given)
  const end = performance.now() + given.seconds * 1000
  const searches = traces.map(trace => new Search(trace, given.capacityBytes))
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
  const recordings = searches.map(search => search.result(performance.now() <= end))
  recordings.sort((a, b) => neededBy(b) - neededBy(a))
  const inOrder = tried.map((settings, i) =>
    combined(
      settings,
      searches.map(search => search.runs[i]),
    ),
  )
  const runs = ranked(inOrder)
  given.onProgress(1, 'done')
  return {
    capacityBytes: Number.isFinite(given.capacityBytes) ? given.capacityBytes : null,
    recordings,
    baseline,
    runs,
    advice: undominated(runs.filter(run => isWorth(run, inOrder[0]))).slice(0, MOST_ADVICE),
    leftOut: all.slice(tried.length),
    kept: given.merge === undefined ? keptOfRecordings(traces) : keptSettings(given.merge),
    replaced: replacedSettings(given.merge ?? ''),
    ...settingsBeside([...traces.map(({ settings }) => settings ?? ''), given.merge ?? '', ...given.settings]),
  }
}

/** The settings tried over one recording. */
class Search {
  readonly runs: TuneRun[] = []

  constructor(
    private readonly trace: Trace,
    private readonly capacityBytes: number,
  ) {}

  /** The first settings tried are those that the others are compared with. */
  async try(text: string): Promise<void> {
    const settings = parsePytorchSettings(text)
    const { peakReservedBytes, deviceCalls, modelledDeviceSeconds } = this.replay(settings, Infinity, false)
    const first = this.runs.at(0)?.leastCapacityBytes ?? Infinity
    const needed = this.trace.peakWithFailedBytes
    const least = await this.least(settings, Math.min(first, peakReservedBytes), needed, this.runs.length === 0)
    this.runs.push({
      settings: text,
      peakReservedBytes,
      deviceCalls: sum(deviceCalls),
      modelledDeviceSeconds: modelledDeviceSeconds ?? 0,
      leastCapacityBytes: least,
      leastCapacityRetries: least === null ? null : this.replay(settings, least, true).retries,
      atCapacity: Number.isFinite(this.capacityBytes) ? this.within(settings) : null,
    })
  }

  result(packs: boolean): TuneRecording {
    const { trace } = this
    return {
      file: trace.file,
      device: trace.device,
      otherDevices: trace.otherDevices,
      recordedSettings: trace.settings,
      recordedPeakReservedBytes: trace.recordedPeakReservedBytes,
      failedRequests: failedEvents(trace).length,
      blocksBefore: trace.blocks.initial,
      dropped: trace.dropped,
      lowerBoundBytes: trace.peakWithFailedBytes,
      packedBytes: packs ? packedBytesOf(trace) : null,
      holders: holdersAtPeak(trace),
      runs: this.runs,
    }
  }

  /** Null if the settings do not serve everything within `enough`, unless `growing` is set. */
  private async least(settings: PytorchSettings, enough: number, needed: number, growing: boolean) {
    const serves = async (bytes: number) => {
      await new Promise(resolve => setImmediate(resolve))
      return this.replay(settings, bytes, true).failures === 0
    }
    if (!growing && !(await serves(enough))) return null
    return leastCapacity(needed, enough, serves)
  }

  private within(settings: PytorchSettings): TuneAtCapacity {
    const { failures, retries, peakReservedBytes, deviceCalls, modelledDeviceSeconds } = this.replay(
      settings,
      this.capacityBytes,
      false,
    )
    const calls = { deviceCalls: sum(deviceCalls), modelledDeviceSeconds: modelledDeviceSeconds ?? 0 }
    return { failures, retries, peakReservedBytes, ...calls }
  }

  private replay(settings: PytorchSettings, capacityBytes: number, stopsAtFailure: boolean) {
    const model = modelWithin(this.trace, settings, capacityBytes)
    return replayPytorchPolicy(this.trace, { ...model, stopsAtFailure, failedFrom: 0 })
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

/** The settings to try, first those that the others are compared with. */
function candidatesOf(baseline: string, recorded: readonly string[], given: Given): string[] {
  const usual = given.capacityBytes === Infinity ? CANDIDATES : [...CANDIDATES, ...LIMITED_CANDIDATES]
  const asked = given.settings.length > 0 ? given.settings : [...recorded, ...usual]
  const written = asked.map(text => formatPytorchSettings(parsePytorchSettings(text)))
  const withLimit = (text: string) => given.capacityBytes < Infinity || !text.includes('garbage_collection_threshold')
  return [...new Set([baseline, '', ...written])].filter((text, i) => i === 0 || withLimit(text))
}

function combined(settings: string, runs: readonly TuneRun[]): TuneRun {
  const most = (of: (run: TuneRun) => number) => Math.max(...runs.map(of))
  const total = (of: (run: TuneRun) => number) => runs.reduce((all, run) => all + of(run), 0)
  const isKnown = runs.every(run => run.leastCapacityBytes !== null)
  const atCapacity = runs.every(run => run.atCapacity !== null)
  return {
    settings,
    peakReservedBytes: most(run => run.peakReservedBytes),
    deviceCalls: total(run => run.deviceCalls),
    modelledDeviceSeconds: total(run => run.modelledDeviceSeconds),
    leastCapacityBytes: isKnown ? most(run => run.leastCapacityBytes!) : null,
    leastCapacityRetries: isKnown ? total(run => run.leastCapacityRetries!) : null,
    atCapacity: atCapacity
      ? {
          failures: total(run => run.atCapacity!.failures),
          retries: total(run => run.atCapacity!.retries),
          peakReservedBytes: most(run => run.atCapacity!.peakReservedBytes),
          deviceCalls: total(run => run.atCapacity!.deviceCalls),
          modelledDeviceSeconds: total(run => run.atCapacity!.modelledDeviceSeconds),
        }
      : null,
  }
}

/**
 * The best runs first: those that serve most at the capacity, then those with the least need. Among runs of about the
 * least need, a run that reserves less without a limit comes first: PyTorch has a smaller cache and fewer retries.
 */
function ranked(runs: readonly TuneRun[]): TuneRun[] {
  const leastOf = (run: TuneRun) => run.leastCapacityBytes ?? Number.MAX_VALUE
  const best = Math.min(...runs.map(leastOf)) * (1 + WORTH)
  const rank = (run: TuneRun) => (leastOf(run) <= best ? 0 : leastOf(run))
  return runs.toSorted(
    (a, b) =>
      (a.atCapacity?.failures ?? 0) - (b.atCapacity?.failures ?? 0) ||
      rank(a) - rank(b) ||
      a.peakReservedBytes - b.peakReservedBytes ||
      a.settings.length - b.settings.length,
  )
}

function isWorth(run: TuneRun, before: TuneRun): boolean {
  if (run === before) return false
  if (run.atCapacity !== null && before.atCapacity !== null) {
    const fewer = before.atCapacity.failures - run.atCapacity.failures
    if (fewer !== 0) return fewer > 0
  }
  if (run.leastCapacityBytes === null || before.leastCapacityBytes === null) return false
  return before.leastCapacityBytes > 0 && run.leastCapacityBytes <= before.leastCapacityBytes * (1 - WORTH)
}

/**
 * Leaves out a run if a better run needs and reserves as little. Runs with expandable segments do not stand for runs
 * without them, because not every platform has expandable segments.
 */
function undominated(ranked: readonly TuneRun[]): TuneRun[] {
  const kept: TuneRun[] = []
  for (const run of ranked) {
    const least = (run.leastCapacityBytes ?? Infinity) * (1 + WORTH)
    const isDominated = kept.some(
      other =>
        isExpandable(other) === isExpandable(run) &&
        (other.leastCapacityBytes ?? Infinity) <= least &&
        other.peakReservedBytes <= run.peakReservedBytes,
    )
    if (!isDominated) kept.push(run)
  }
  return kept
}

function isExpandable({ settings }: TuneRun): boolean {
  return settings.includes('expandable_segments:True')
}

function neededBy({ lowerBoundBytes, runs }: TuneRecording): number {
  return runs[0].leastCapacityBytes ?? lowerBoundBytes
}

function holdersAtPeak(trace: Trace): Holder[] {
  return holdersOf(trace, liveAfter(trace, inUseOf(trace).peakEvent)).slice(0, MOST_HOLDERS)
}

function sum(calls: Readonly<Record<string, number>>): number {
  return Object.values(calls).reduce((all, each) => all + each, 0)
}
