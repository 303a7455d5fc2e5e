// Replays of predicted traces on the model of PyTorch's allocator, for its reserved memory under some settings, and
// for whether that fits a capacity. They take most of the time of `predict`, so only those that can change its answer
// are made.

import { hasRetries } from '../analysis/give-backs.js'
import { failedEvents } from '../failures/out-of-memory.js'
import { formatPytorchSettings, type PytorchSettings } from '../pytorch/model/pytorch-settings.js'
import { recordedPytorchSettings } from '../pytorch/named-settings.js'
import { replayPytorchPolicy } from '../pytorch/pytorch-replay.js'
import type { StackTable } from '../stack-table.js'
import type { Trace } from '../trace.js'
import type { Comparable } from './match-blocks.js'
import type { Fit, Predicted, PredictRun } from './predict-report.js'
import { withBytes } from './predicted-trace.js'

/** A smaller share of the memory is not worth a word. */
export const WORTH = 0.01

/**
 * The reserved memory depends on the addresses of the driver, too: of free blocks of one size PyTorch takes the lowest.
 * So replays are made with rising and with falling addresses of new segments. With the better of both, 51 recordings of
 * a GPU that have all blocks from the start were missed by up to 2.5 %.
 */
const LEAST_MISS = 1.03

/** The order of the addresses of new segments, and the error of replays in this order, as a factor from 1 on. */
interface AddressOrder {
  readonly segmentsFall: boolean
  readonly miss: number
}

/** Both orders of addresses, the better one for the recordings first. */
export function addressOrders(recordings: readonly Comparable[], stacks: StackTable): AddressOrder[] {
  const rebuilt = recordings
    .filter(({ trace }) => !ranFull(trace) && (trace.recordedPeakReservedBytes ?? 0) > 0)
    .map(({ trace, stacks: numbers }) => [trace, withBytes(trace, trace.blocks.bytes, stacks, numbers)] as const)
  const missOf = (segmentsFall: boolean) =>
    Math.max(
      LEAST_MISS,
      ...rebuilt.map(([trace, each]) => {
        const { peakReservedBytes } = replayPytorchPolicy(each, {
          settings: recordedPytorchSettings(trace),
          segmentsFall,
        })
        const share = peakReservedBytes / trace.recordedPeakReservedBytes!
        return Math.max(share, 1 / share)
      }),
    )
  return [false, true]
    .map(segmentsFall => ({ segmentsFall, miss: missOf(segmentsFall) }))
    .sort((one, other) => one.miss - other.miss)
}

/** Whether the program, or its allocator, met a limit: the replays of a prediction have none. */
export function ranFull(trace: Trace): boolean {
  return failedEvents(trace).length > 0 || hasRetries(trace)
}

export class PredictedRuns {
  private readonly miss: number
  /** each trace in each order of addresses, first the estimate in the better order */
  private readonly replayed: readonly { readonly trace: Trace; readonly segmentsFall: boolean }[]

  /** `traces` are the estimate, then the others of its range. */
  constructor(
    traces: readonly Trace[],
    orders: readonly AddressOrder[],
    private readonly capacityBytes: number,
  ) {
    this.miss = orders[0].miss
    this.replayed = orders.flatMap(({ segmentsFall }) => traces.map(trace => ({ trace, segmentsFall })))
  }

  run(settings: PytorchSettings): PredictRun {
    const peaks = this.replayed.map((_, i) => this.replay(i, { settings }).peakReservedBytes)
    const run = { settings: formatPytorchSettings(settings), reservedBytes: rangeOf(peaks, this.miss) }
    return { ...run, ...(Number.isFinite(this.capacityBytes) ? this.fit(settings) : { fits: null, retries: null }) }
  }

  /** The best of `others`; null if they are hardly better than the run with the settings of the recordings. */
  better(recorded: PredictRun, others: readonly PytorchSettings[]): PredictRun | null {
    const mostBytes = recorded.reservedBytes.estimate * (1 - WORTH)
    // A run that fits, or that has no capacity to fit, is beaten by fewer bytes only.
    const isSure = recorded.fits === null || recorded.fits === 'yes'
    const mayBeat = (settings: PytorchSettings) =>
      !isSure || this.replay(0, { settings }).peakReservedBytes <= mostBytes
    const runs = others.filter(mayBeat).map(settings => this.run(settings))
    const [best] = runs.sort((a, b) => byFit(a, b) || a.reservedBytes.estimate - b.reservedBytes.estimate)
    if (best === undefined) return null
    const isBetter =
      byFit(best, recorded) < 0 || (best.fits === recorded.fits && best.reservedBytes.estimate <= mostBytes)
    return isBetter ? best : null
  }

  private fit(settings: PytorchSettings): Pick<PredictRun, 'fits' | 'retries'> {
    const { capacityBytes, miss, replayed } = this
    const limitBytes = settings.garbageCollectionThreshold === undefined ? Infinity : capacityBytes
    const { failures, retries } = this.replay(0, { settings, capacityBytes, limitBytes })
    // The range is wider than its replays by the error of those of the recordings.
    const isServedIn = (bytes: number) => (_: unknown, i: number) => {
      return this.replay(i, { settings, capacityBytes: bytes, limitBytes, stopsAtFailure: true }).failures === 0
    }
    const fitsIf = (): Fit => (replayed.every(isServedIn(capacityBytes / miss)) ? 'yes' : 'likely')
    const failsIf = (): Fit => (replayed.some(isServedIn(capacityBytes * miss)) ? 'unlikely' : 'no')
    return { fits: failures === 0 ? fitsIf() : failsIf(), retries }
  }

  private replay(index: number, options: Parameters<typeof replayPytorchPolicy>[1]) {
    const { trace, segmentsFall } = this.replayed[index]
    return replayPytorchPolicy(trace, { ...options, segmentsFall })
  }
}

/** The first figure is the estimate. */
export function rangeOf(figures: readonly number[], miss: number): Predicted {
  return {
    low: Math.round(Math.min(...figures) / miss),
    estimate: figures[0],
    high: Math.round(Math.max(...figures) * miss),
  }
}

const FITS: readonly (Fit | null)[] = ['yes', 'likely', 'unlikely', 'no']

function byFit(a: PredictRun, b: PredictRun): number {
  return FITS.indexOf(a.fits) - FITS.indexOf(b.fits)
}
