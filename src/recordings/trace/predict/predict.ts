// The memory of a program at a size that it was not recorded with, from recordings with two other sizes: each block's
// bytes are extended from two to the third, and PyTorch's allocator is replayed over the result.

import { OutOfRangeError } from '../../../core/base/argument-errors.js'
import { liveAtPeak } from '../analysis/curves.js'
import { stackNumbers } from '../columns/excerpt.js'
import { type Holder, holdersOf } from '../failures/holders.js'
import { failedEvents } from '../failures/out-of-memory.js'
import { parsePytorchSettings } from '../pytorch/model/pytorch-settings.js'
import { recordedPytorchSettings } from '../pytorch/named-settings.js'
import { platformOf } from '../pytorch/platform.js'
import { StackTable } from '../stack-table.js'
import { NEVER, type Trace } from '../trace.js'
import { type Comparable, isPlausible, matchBlocks, UNMATCHED } from './match-blocks.js'
import type { PredictRecording, PredictReport, PredictSite } from './predict-report.js'
import { addressOrders, PredictedRuns, ranFull, rangeOf, WORTH } from './predicted-runs.js'
import { withBytes } from './predicted-trace.js'
import { type GrownBytes, grownBytes, type Point, unmatchedBytes } from './size-growth.js'

/**
 * Two recordings with less of their bytes in common are not of one program. Those of one program on a GPU had 97 % and
 * more in common, those of two programs 74 % and less, by the parts of PyTorch that both use.
 */
const LEAST_COMMON = 0.8

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
  const all = [...new Set(predictions.flatMap(each => [each.estimate, each.low, each.high]))]
  const settings = recordedPytorchSettings(bases[0].trace)
  const platform = platformOf(bases[0].trace)
  const runs = new PredictedRuns(all, addressOrders([first, second], stacks), capacityBytes)
  const asRecorded = runs.run(settings)
  const others = OTHERS.filter(each => !(platform === 'Windows' && each.expandableSegments)).map(each => {
    return { ...settings, ...each }
  })
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
    better: runs.better(asRecorded, others),
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
    const isSure = grown.every(({ low, high }) => low === high)
    this.estimate = traceOf(({ estimate }) => estimate)
    this.low = isSure ? this.estimate : traceOf(({ low }) => low)
    this.high = isSure ? this.estimate : traceOf(({ high }) => high)
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
    throughAll: holder.throughAll,
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
