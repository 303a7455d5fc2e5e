// The settings tried over one recording: each is replayed without a limit, within the capacity that counts, and at
// falling capacities until it no longer serves everything.

import { activationsAfter } from '../analysis/categories.js'
import { inUseOf, liveAfter } from '../analysis/curves.js'
import { hasRetries } from '../analysis/give-backs.js'
import { withWaiting } from '../analysis/waiting.js'
import { holdersOf } from '../failures/holders.js'
import { failedEvents, recordedOutOfMemories } from '../failures/out-of-memory.js'
import { type PytorchSettings, parsePytorchSettings } from '../pytorch/model/pytorch-settings.js'
import { LARGE_SEGMENT_BYTES } from '../pytorch/model/setting-values.js'
import { platformOf } from '../pytorch/platform.js'
import { modelWithin } from '../pytorch/program-releases.js'
import { replayPytorchPolicy } from '../pytorch/pytorch-replay.js'
import { Action, BEFORE, type Trace } from '../trace.js'
import { LEAST_CAPACITY_BYTES, leastCapacity } from './least-capacity.js'
import { packedBytesOf } from './packing.js'
import type { TuneAtCapacity, TuneRecording, TuneRun } from './tune-report.js'

const MOST_HOLDERS = 3

type Within = Pick<TuneRecording, 'withinBytes' | 'withinIs' | 'lastFailure'>

/** The settings tried over one recording. */
export class Search {
  readonly runs: TuneRun[] = []
  readonly within: Within

  constructor(
    private readonly trace: Trace,
    capacityBytes: number,
  ) {
    this.within = withinOf(trace, capacityBytes)
  }

  /** The first settings tried are those that the others are compared with. */
  async try(text: string): Promise<void> {
    const settings = parsePytorchSettings(text)
    const { failures: _, retries: __, ...free } = this.replay(settings, Infinity)
    const { withinBytes, withinIs } = this.within
    const within = withinBytes === null ? null : this.replay(settings, withinBytes)
    this.runs.push({
      settings: text,
      ...free,
      ...(await this.least(settings, free.peakReservedBytes)),
      atCapacity: withinIs === 'asked' ? within : null,
      within,
    })
  }

  /** Finds the least capacity of settings that were tried, also if it is above that of the first settings. */
  async completeLeast(text: string): Promise<void> {
    const at = this.runs.findIndex(({ settings }) => settings === text)
    const run = this.runs[at]
    if (run.leastCapacityBytes !== null) return
    this.runs[at] = { ...run, ...(await this.leastUpTo(run.peakReservedBytes, parsePytorchSettings(text))) }
  }

  result(packs: boolean): TuneRecording {
    const { trace } = this
    const { peakEvent } = inUseOf(trace)
    const failed = failedEvents(trace).at(-1)
    return {
      file: trace.file,
      device: trace.device,
      otherDevices: trace.otherDevices,
      recordedSettings: trace.settings,
      platform: platformOf(trace),
      spanSeconds: trace.spanSeconds,
      recordedPeakReservedBytes: trace.recordedPeakReservedBytes,
      failedRequests: failedEvents(trace).length,
      ...this.within,
      blocksBefore: trace.blocks.initial,
      dropped: trace.dropped,
      contradictions: trace.contradictions,
      lowerBoundBytes: trace.peakWithFailedBytes,
      withWaitingBytes: withWaiting(trace)?.peakBytes ?? null,
      lowerBoundRequest: lowerBoundRequestOf(trace),
      packedBytes: packs ? packedBytesOf(trace) : null,
      holders: holdersOf(trace, liveAfter(trace, peakEvent)).slice(0, MOST_HOLDERS),
      activations: activationsAfter(trace, failed === undefined ? peakEvent : failed - 1),
      runs: this.runs,
    }
  }

  /** Nulls if the settings do not serve everything within the least capacity of the first settings. */
  private async least(
    settings: PytorchSettings,
    peakReservedBytes: number,
  ): Promise<Pick<TuneRun, 'leastCapacityBytes' | 'leastCapacityRetries'>> {
    const isFirst = this.runs.length === 0
    const enough = Math.min(this.runs.at(0)?.leastCapacityBytes ?? Infinity, peakReservedBytes)
    if (!isFirst && this.replay(settings, enough, true).failures > 0) {
      return { leastCapacityBytes: null, leastCapacityRetries: null }
    }
    return this.leastUpTo(enough, settings)
  }

  private async leastUpTo(
    enough: number,
    settings: PytorchSettings,
  ): Promise<Pick<TuneRun, 'leastCapacityBytes' | 'leastCapacityRetries'>> {
    const retries = new Map<number, number>()
    const serves = async (bytes: number) => {
      await new Promise(resolve => setImmediate(resolve))
      const replayed = this.replay(settings, bytes, true)
      retries.set(bytes, replayed.retries)
      return replayed.failures === 0
    }
    const leastCapacityBytes = await leastCapacity(this.trace.peakWithFailedBytes, enough, serves)
    const leastCapacityRetries = leastCapacityBytes === null ? null : (retries.get(leastCapacityBytes) ?? 0)
    return { leastCapacityBytes, leastCapacityRetries }
  }

  private replay(settings: PytorchSettings, capacityBytes: number, stopsAtFailure = false): TuneAtCapacity {
    const model = modelWithin(this.trace, settings, capacityBytes)
    const replayed = replayPytorchPolicy(this.trace, { ...model, stopsAtFailure, failedFrom: 0 })
    const { failures, retries, peakReservedBytes, modelledDeviceSeconds, laterDeviceSeconds } = replayed
    const deviceCalls = Object.values(replayed.deviceCalls).reduce((all, each) => all + each, 0)
    const seconds = { modelledDeviceSeconds: modelledDeviceSeconds ?? 0, laterDeviceSeconds }
    return { failures, retries, peakReservedBytes, deviceCalls, ...seconds }
  }
}

/**
 * The capacity that counts: as asked, or that of the last failed request. Else, if PyTorch ran full, the recorded peak
 * and one segment: the limit was above the peak, by less than PyTorch then asked for.
 */
function withinOf(trace: Trace, askedBytes: number): Within {
  const lastFailure = recordedOutOfMemories(trace).at(-1) ?? null
  if (Number.isFinite(askedBytes)) return { withinBytes: askedBytes, withinIs: 'asked', lastFailure }
  if (lastFailure?.verdict === 'unknown') return { withinBytes: null, withinIs: null, lastFailure }
  const couldHave = lastFailure?.capacityBytes ?? 0
  if (couldHave >= LEAST_CAPACITY_BYTES) return { withinBytes: couldHave, withinIs: 'failure', lastFailure }
  const had = trace.recordedPeakReservedBytes ?? 0
  if (had >= LEAST_CAPACITY_BYTES && hasRetries(trace)) {
    return { withinBytes: had + LARGE_SEGMENT_BYTES, withinIs: 'recorded', lastFailure }
  }
  return { withinBytes: null, withinIs: null, lastFailure }
}

/** The failed request that needs most memory together with what is in use; null if more is in use at another time. */
function lowerBoundRequestOf(trace: Trace): TuneRecording['lowerBoundRequest'] {
  const { action, bytes, peakRequestedBytes, peakWithFailedBytes } = trace
  if (peakRequestedBytes === peakWithFailedBytes) return null
  const { inUseBytes } = inUseOf(trace)
  const initial = liveAfter(trace, BEFORE).reduce((all, block) => all + trace.blocks.bytes[block], 0)
  const neededAt = (event: number) => (event === 0 ? initial : inUseBytes[event - 1]) + bytes[event]
  const event = action.findIndex((code, at) => code === Action.outOfMemory && neededAt(at) === peakWithFailedBytes)
  return event < 0 ? null : { event, bytes: bytes[event] }
}
