// The memory of a program at a size that it was not recorded with, from recordings with two other sizes: each block's
// bytes are extended from two to the third, and PyTorch's allocator is replayed over the result.

import { OutOfRangeError } from '../../../core/base/argument-errors.js'
import { liveAtPeak } from '../analysis/curves.js'
import { hasRetries } from '../analysis/give-backs.js'
import { stackNumbers } from '../columns/excerpt.js'
import { type Holder, holdersOf } from '../failures/holders.js'
import { failedEvents } from '../failures/out-of-memory.js'
import { formatPytorchSettings, type PytorchSettings, parsePytorchSettings } from '../pytorch/model/pytorch-settings.js'
import { recordedPytorchSettings } from '../pytorch/named-settings.js'
import { platformOf } from '../pytorch/platform.js'
import { type ModelOptions, replayPytorchPolicy } from '../pytorch/pytorch-replay.js'
import { StackTable } from '../stack-table.js'
import { NEVER, type Trace } from '../trace.js'
import { type Comparable, isPlausible, matchBlocks, UNMATCHED } from './match-blocks.js'
import type { Fit, Predicted, PredictRecording, PredictReport, PredictRun, PredictSite } from './predict-report.js'
import { withBytes } from './predicted-trace.js'
import { type GrownBytes, grownBytes, type Point, unmatchedBytes } from './size-growth.js'

/**
 * Two recordings with less of their bytes in common are not of one program. Those of one program on a GPU had 97 % and
 * more in common, those of two programs 74 % and less, by the parts of PyTorch that both use.
 */
const LEAST_COMMON = 0.8
/** Another setting is worth a word if it reserves at least this share less. */
const WORTH = 0.01

/**
 * The reserved memory depends on the addresses of the driver, too: of free blocks of one size PyTorch takes the lowest.
 * So replays are made with rising and with falling addresses of new segments. With the better of both, 51 recordings of
 * a GPU that have all blocks from the start were missed by up to 2.5 %.
 */
const LEAST_MISS = 1.03

/** The question. */
export interface PredictOptions {
  /** the sizes of the two recordings */
  readonly sizes: readonly [number, number]
  /** the size to predict */
  readonly size: number
  readonly capacityBytes?: number
  /** a recording of the size to predict */
  readonly check?: Trace | undefined
}

/** Settings tried besides those of the recordings, each together with them. Windows has no expandable segments. */
const OTHERS = ['expandable_segments:True', 'roundup_power2_divisions:8'].map(parsePytorchSettings)

/** Predicts from two recordings. Throws RangeError for one of another allocator, and for those of two programs. */
export function predict(traces: readonly [Trace, Trace], options: PredictOptions): PredictReport {
  const { size, capacityBytes = Infinity, check } = options
  const stacks = new StackTable()
  const comparable = traces.map((trace, i) => comparableOf(trace, options.sizes[i], stacks))
  const [first, second] = comparable.toSorted((a, b) => a.size - b.size)
  checkOrder(first, second)
  const bases = basesOf(first, second, size)
  const predictions = bases.map(base => new Prediction(base, base === first ? second : first, size, stacks))
  const [{ estimate, shares }] = predictions
  const all = predictions.flatMap(each => [each.estimate, each.low, each.high])
  const orders = addressOrders([first, second], stacks)
  const settings = recordedPytorchSettings(bases[0].trace)
  const run = (each: PytorchSettings) => runOf(all, each, capacityBytes, orders)
  const asRecorded = run(settings)
  const platform = platformOf(bases[0].trace)
  const others = OTHERS.filter(each => !(platform === 'Windows' && each.expandableSegments))
  const better = others.map(each => run({ ...settings, ...each })).sort(byFitAndReserved)[0]
  return {
    size,
    platform,
    capacityBytes: Number.isFinite(capacityBytes) ? capacityBytes : null,
    recordings: [figuresOf(first.trace, first.size), figuresOf(second.trace, second.size)],
    inUseBytes: rangeOf(
      all.map(trace => trace.peakRequestedBytes),
      1,
    ),
    asRecorded,
    better: isBetter(better, asRecorded) ? better : null,
    shares,
    isBeyond: size < first.size || size > second.size,
    sites: sitesOf([first.trace, second.trace], estimate),
    check: check === undefined ? null : figuresOf(check, size),
  }
}

/** The events of one recording, with the bytes that its blocks have at the predicted size. */
class Prediction {
  readonly low: Trace
  readonly estimate: Trace
  readonly high: Trace
  readonly shares: PredictReport['shares']

  constructor(base: Comparable, other: Comparable, size: number, stacks: StackTable) {
    const matched = matchBlocks(other, base)
    checkCommon(base, other, matched)
    const kept = keptBytes(base.trace)
    const grown = Array.from(matched, (partner, number) => grownOf(base, number, other, partner, size, kept))
    const traceOf = (of: (bytes: GrownBytes) => number) => withBytes(base.trace, grown.map(of), stacks, base.stacks)
    this.low = traceOf(({ low }) => low)
    this.estimate = traceOf(({ estimate }) => estimate)
    this.high = traceOf(({ high }) => high)
    this.shares = sharesAtPeak(this.estimate, grown, matched)
  }
}

/**
 * The recordings whose events are replayed with other bytes, first that of the nearer size. A run that failed is left
 * out, since it stopped early.
 */
function basesOf(first: Comparable, second: Comparable, size: number): Comparable[] {
  const isNearer = Math.abs(size - first.size) < Math.abs(size - second.size)
  const inOrder = isNearer ? [first, second] : [second, first]
  const whole = inOrder.filter(({ trace }) => failedEvents(trace).length === 0)
  return whole.length === 1 ? whole : inOrder
}

function comparableOf(trace: Trace, size: number, stacks: StackTable): Comparable {
  if (trace.recorder !== 'PyTorch') {
    throw new OutOfRangeError(`${trace.file} is not a recording of PyTorch; predict needs two of one program`)
  }
  return { trace, size, stacks: stackNumbers(trace.stacks, stacks) }
}

/** A larger batch never holds less, unless its run failed and stopped early. */
function checkOrder(first: Comparable, second: Comparable): void {
  const [less, more] = [first.trace.peakRequestedBytes, second.trace.peakRequestedBytes]
  if (less <= more * (1 + WORTH) || failedEvents(second.trace).length > 0) return
  throw new OutOfRangeError(
    `the recording at ${first.size} holds more than the one at ${second.size}; name the sizes in the order of the files`,
  )
}

/** Where the two are of one program, all of the shorter recording is in the other, but for a few blocks. */
function checkCommon(base: Comparable, other: Comparable, matched: Int32Array): void {
  const [bytes, others] = [base.trace.blocks.bytes, other.trace.blocks.bytes]
  let [common, otherCommon] = [0, 0]
  matched.forEach((partner, number) => {
    const isNamed = base.trace.blocks.stack[number] > 0
    if (partner === UNMATCHED || !(isNamed || isPlausible(base, bytes[number], other, others[partner]))) return
    common += bytes[number]
    otherCommon += others[partner]
  })
  const share = Math.max(common / Math.max(1, sum(bytes)), otherCommon / Math.max(1, sum(others)))
  if (share >= LEAST_COMMON) return
  throw new OutOfRangeError(
    `${base.trace.file} and ${other.trace.file} are not of the same program: only ${Math.round(share * 100)} % of the ` +
      'bytes were allocated at the same places; record one program with two sizes',
  )
}

/** The sizes of blocks that are never freed: parameters, and thereby their gradients, which have the same sizes. */
function keptBytes({ blocks: { bytes, freeRequestedAt } }: Trace): ReadonlySet<number> {
  return new Set(bytes.filter((_, number) => freeRequestedAt[number] === NEVER))
}

function grownOf(
  base: Comparable,
  number: number,
  other: Comparable,
  partner: number,
  size: number,
  kept: ReadonlySet<number>,
): GrownBytes {
  const { bytes, allocatedAt, freeRequestedAt } = base.trace.blocks
  if (partner === UNMATCHED) return unmatchedBytes(base.size, bytes[number], size)
  const point: Point = [base.size, bytes[number]]
  const otherPoint: Point = [other.size, other.trace.blocks.bytes[partner]]
  const points = base.size < other.size ? ([point, otherPoint] as const) : ([otherPoint, point] as const)
  const isBrief = freeRequestedAt[number] === allocatedAt[number] + 1
  return grownBytes(...points, size, { isBrief, isOfModel: kept.has(bytes[number]) })
}

/** The order of the addresses of new segments, and the error of replays in this order, as a factor from 1 on. */
interface AddressOrder {
  readonly segmentsFall: boolean
  readonly miss: number
}

/** Both orders of addresses, the better one for the recordings first. */
function addressOrders(recordings: readonly Comparable[], stacks: StackTable): AddressOrder[] {
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
function ranFull(trace: Trace): boolean {
  return failedEvents(trace).length > 0 || hasRetries(trace)
}

function runOf(
  traces: readonly Trace[],
  settings: PytorchSettings,
  capacityBytes: number,
  orders: readonly AddressOrder[],
): PredictRun {
  const limitBytes = settings.garbageCollectionThreshold === undefined ? Infinity : capacityBytes
  const replays = (options: ModelOptions) =>
    orders.flatMap(({ segmentsFall }) =>
      traces.map(trace => replayPytorchPolicy(trace, { ...options, settings, segmentsFall })),
    )
  const reservedBytes = rangeOf(
    replays({}).map(each => each.peakReservedBytes),
    orders[0].miss,
  )
  const run = { settings: formatPytorchSettings(settings), reservedBytes }
  if (!Number.isFinite(capacityBytes)) return { ...run, fits: null, retries: null }
  const [estimate] = replays({ capacityBytes, limitBytes })
  // The range is wider than its replays by the error of those of the recordings.
  const served = (bytes: number) => replays({ capacityBytes: bytes, limitBytes }).map(({ failures }) => failures === 0)
  const { miss } = orders[0]
  const fitsIf = (): Fit => (served(capacityBytes / miss).every(Boolean) ? 'yes' : 'likely')
  const failsIf = (): Fit => (served(capacityBytes * miss).some(Boolean) ? 'unlikely' : 'no')
  return { ...run, fits: estimate.failures === 0 ? fitsIf() : failsIf(), retries: estimate.retries }
}

/** The first figure is the estimate. */
function rangeOf(figures: readonly number[], miss: number): Predicted {
  return {
    low: Math.round(Math.min(...figures) / miss),
    estimate: figures[0],
    high: Math.round(Math.max(...figures) * miss),
  }
}

const FITS: readonly (Fit | null)[] = ['yes', 'likely', 'unlikely', 'no']

function byFitAndReserved(a: PredictRun, b: PredictRun): number {
  return FITS.indexOf(a.fits) - FITS.indexOf(b.fits) || a.reservedBytes.estimate - b.reservedBytes.estimate
}

function isBetter(run: PredictRun, recorded: PredictRun): boolean {
  if (run.fits !== recorded.fits) return byFitAndReserved(run, recorded) < 0
  return run.reservedBytes.estimate <= recorded.reservedBytes.estimate * (1 - WORTH)
}

function sharesAtPeak(predicted: Trace, grown: readonly GrownBytes[], matched: Int32Array) {
  const bytes = { line: 0, otherwise: 0, unmatched: 0 }
  // The predicted trace allocates the blocks in the order of the base, those from before it first.
  for (const number of liveAtPeak(predicted)) {
    const kind = matched[number] === UNMATCHED ? 'unmatched' : grown[number].isLine ? 'line' : 'otherwise'
    bytes[kind] += predicted.blocks.bytes[number]
  }
  const all = Math.max(1, bytes.line + bytes.otherwise + bytes.unmatched)
  return { line: bytes.line / all, otherwise: bytes.otherwise / all, unmatched: bytes.unmatched / all }
}

function sitesOf(recorded: readonly Trace[], predicted: Trace): PredictSite[] {
  // The predicted run allocates what the recorded ones have from before them.
  const key = ({ site }: Holder) => site ?? ''
  const atPeak = (trace: Trace) => holdersOf(trace, liveAtPeak(trace))
  const known = recorded.map(trace => new Map(atPeak(trace).map(holder => [key(holder), holder.bytes])))
  return atPeak(predicted).map(holder => ({
    site: holder.site,
    through: holder.through,
    recordedBytes: known.map(bytes => bytes.get(key(holder)) ?? 0),
    predictedBytes: holder.bytes,
  }))
}

function figuresOf(trace: Trace, size: number): PredictRecording {
  const { file, peakRequestedBytes: inUseBytes, recordedPeakReservedBytes: reservedBytes } = trace
  return { file, size, inUseBytes, reservedBytes, ranFull: ranFull(trace), contradictions: trace.contradictions }
}

function sum(values: Float64Array): number {
  return values.reduce((all, each) => all + each, 0)
}
