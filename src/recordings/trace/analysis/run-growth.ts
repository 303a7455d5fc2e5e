// How much more memory one recorded run needs than another, its base: the figures that a limit is set to, and where
// both peaks lie.

import { MiB } from '../../../core/base/bytes.js'
import { failedEvents } from '../failures/out-of-memory.js'
import { BEFORE, type Trace } from '../trace.js'
import { inUseOf } from './curves.js'
import { type SiteChange, siteChanges } from './stack-diff.js'
import { stepOf, stepsOf } from './steps.js'
import { peakWaitingBytes, reservedWithoutWaiting } from './without-waiting.js'

/** The least memory that PyTorch takes from a device at once. One such segment more comes by chance. */
const LEAST_SEGMENT_BYTES = 2 * MiB

/** How much a figure may grow: a share of the base, or bytes. */
export type GrowthLimit = { readonly percent: number } | { readonly bytes: number }

/** The figures that have a limit. */
export type FigureName = 'inUse' | 'reserved' | 'failedRequests'

/** A figure of a base and of a run. */
export interface GrowthFigure {
  /** bytes at the peak, in use or reserved, or a count */
  readonly name: FigureName
  /** null if the recording does not contain it */
  readonly base: number | null
  /** null if the recording does not contain it */
  readonly run: number | null
  /** the most that the run may have; null without a base */
  readonly most: number | null
  /** null if one of them does not contain it */
  readonly passed: boolean | null
  /** whether it is above `most`, but does not fail because freed blocks wait for other streams, by timing */
  readonly byTiming: boolean
}

/** Where most bytes are in use in a recording. */
export interface PeakPlace {
  /** number of the event; BEFORE if that was before the first event */
  readonly event: number
  readonly events: number
  /** the step that it is in, from 1; null behind the last step or without steps */
  readonly step: number | null
  /** how many steps there are; 0 without steps */
  readonly steps: number
}

/** A run compared with its base. */
export interface Growth {
  readonly limit: GrowthLimit
  /** whether no figure is above its limit */
  readonly passed: boolean
  readonly figures: readonly GrowthFigure[]
  /** the call sites that hold more at the peak of the run than at that of the base, most growth first */
  readonly grown: readonly SiteChange[]
  /** the bytes of all call sites that hold less than in the base, or nothing more */
  readonly shrunkBytes: number
  /** the most bytes that were freed and waited for another stream, in the base and in the run */
  readonly waitingBytes: readonly [base: number, run: number]
  readonly peaks: { readonly base: PeakPlace; readonly run: PeakPlace }
}

/** Compares the peaks of a run with those of its base. */
export function growthOf(base: Trace, run: Trace, limit: GrowthLimit): Growth {
  const inUse = figureOf('inUse', base.peakRequestedBytes, run.peakRequestedBytes, from => from + allowed(from, limit))
  const waitingBytes = [peakWaitingBytes(base), peakWaitingBytes(run)] as const
  const reserved = reservedOf(base, run, limit, waitingBytes)
  // Where the base failed already, the number of failures says nothing about memory.
  const failed = figureOf('failedRequests', failedEvents(base).length, failedEvents(run).length, from =>
    from === 0 ? 0 : Number.MAX_SAFE_INTEGER,
  )
  const figures = [inUse, reserved, failed]
  const places = [placeOf(base), placeOf(run)] as const
  const sites = siteChanges(base, places[0].event, run, places[1].event)
  const change = ({ bytes: [from, to] }: SiteChange) => to - from
  return {
    limit,
    passed: figures.every(({ passed }) => passed !== false),
    figures,
    grown: sites.filter(each => change(each) > 0).sort((a, b) => change(b) - change(a)),
    shrunkBytes: sites.reduce((sum, each) => sum + Math.max(0, -change(each)), 0),
    waitingBytes,
    peaks: { base: places[0], run: places[1] },
  }
}

/**
 * Reserved memory. Where blocks wait for other streams in both recordings, growth above the limit counts only if it
 * would also be above it without waiting. A model that tells exists for PyTorch only.
 */
function reservedOf(base: Trace, run: Trace, limit: GrowthLimit, waitingBytes: Growth['waitingBytes']): GrowthFigure {
  const mostOf = (from: number) => from + Math.max(allowed(from, limit), LEAST_SEGMENT_BYTES)
  const [inBase, inRun] = [base.recordedPeakReservedBytes, run.recordedPeakReservedBytes]
  const figure = figureOf('reserved', inBase, inRun, mostOf)
  if (figure.passed !== false || Math.min(...waitingBytes) === 0) return figure
  if ([base, run].some(({ recorder }) => recorder !== 'PyTorch')) return { ...figure, passed: null, byTiming: true }
  const grows = reservedWithoutWaiting(run, inRun!) > mostOf(reservedWithoutWaiting(base, inBase!))
  return grows ? figure : { ...figure, passed: true, byTiming: true }
}

/** How many bytes a figure of `from` bytes may grow. */
function allowed(from: number, limit: GrowthLimit): number {
  return 'bytes' in limit ? limit.bytes : Math.floor((from * limit.percent) / 100)
}

function figureOf(
  name: FigureName,
  base: number | null,
  run: number | null,
  mostOf: (base: number) => number,
): GrowthFigure {
  const most = base === null ? null : mostOf(base)
  return { name, base, run, most, passed: run === null || most === null ? null : run <= most, byTiming: false }
}

function placeOf(trace: Trace): PeakPlace {
  const { peakEvent: event } = inUseOf(trace)
  const found = stepsOf(trace)
  const step = event === BEFORE ? null : stepOf(found, event)
  return { event, events: trace.events, step, steps: found?.steps.length ?? 0 }
}
