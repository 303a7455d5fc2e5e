// The facts that `why` tells of a recording; its sentences and its JSON are made of them.

import { type CategoriesAt, categoriesAfter } from '../../trace/analysis/categories.js'
import { curvesOf, liveAfter } from '../../trace/analysis/curves.js'
import { growingSitesOf } from '../../trace/analysis/growing-sites.js'
import { idleMomentOf, memoryAfter } from '../../trace/analysis/idle-moment.js'
import { idleMemoryOf } from '../../trace/analysis/pinned-segments.js'
import { type PoolMemory, poolsOf } from '../../trace/analysis/pools.js'
import { stepLeaksOf } from '../../trace/analysis/step-leaks.js'
import { stepsOf } from '../../trace/analysis/steps.js'
import { waitingAfter, withWaiting } from '../../trace/analysis/waiting.js'
import { type Holder, holdersOf } from '../../trace/failures/holders.js'
import type { ReplayReport } from '../../trace/replay-result.js'
import { BEFORE, type Trace } from '../../trace/trace.js'
import { traceFigures } from '../../trace/trace-figures.js'
import type { Idle, MemoryAtEnd } from './idle-text.js'
import type { Growth } from './leak-text.js'
import type { Waiting } from './waiting-text.js'

/** The moment with most in use. */
interface Peak {
  readonly event: number
  /** null if unknown */
  readonly reservedBytes: number | null
  readonly holders: readonly Holder[]
  /** the memory at the end of the recording; null without events or segments */
  readonly atEnd: MemoryAtEnd | null
}

export interface WhyFacts {
  readonly trace: ReplayReport['trace']
  readonly peak: Peak
  /** of the memory at the last failed request, else at the peak; null if nothing tells them */
  readonly categories: CategoriesAt | null
  /** null if the recording does not say when frees complete */
  readonly waiting: Waiting | null
  /** null for a recording without segments */
  readonly idle: Idle | null
  /** by pool and stream: at the last failed request, else at the peak in use; empty without segments */
  readonly pools: readonly PoolMemory[]
  /** the same at the end of the recording, if there are private pools */
  readonly poolsAtEnd: readonly PoolMemory[]
  readonly growth: Growth
}

/** Steps are those that `stepsOf(trace, pattern)` finds. */
export function whyFacts(trace: Trace, pattern?: RegExp): WhyFacts {
  const peak = peakOf(trace)
  const figures = traceFigures(trace)
  const last = figures.outOfMemories.at(-1)
  const idle = idleOf(trace)
  const moment = idle?.moment ?? null
  const isOfPeak = moment?.isFailure === false && moment.event !== peak.event
  const ofPools = isOfPeak ? memoryAfter(trace, peak.event) : moment?.memory
  return {
    trace: figures,
    peak,
    categories: categoriesAfter(trace, last === undefined ? peak.event : last.event - 1),
    waiting: waitingOf(trace),
    idle,
    pools: ofPools === undefined ? [] : poolsOf(trace, ofPools),
    poolsAtEnd: trace.pools.length === 1 || moment === null ? [] : poolsOf(trace, memoryAfter(trace, trace.events - 1)),
    growth: growthOf(trace, pattern),
  }
}

/** The idle memory at the last failed request, else when most is reserved; null for a recording without segments. */
export function idleOf(trace: Trace): Idle | null {
  const moment = idleMomentOf(trace)
  return moment === null ? null : { moment, memory: idleMemoryOf(trace, moment.memory) }
}

/** The moment with most in use. */
export function peakOf(trace: Trace): Peak {
  const { peakEvent: event, reservedBytes: curve, inUseBytes } = curvesOf(trace)
  const initial = () => trace.initialSegments.reduce((sum, { bytes }) => sum + bytes, 0)
  const reservedBytes = curve === null ? null : event === BEFORE ? initial() : curve[event]
  const last = trace.events - 1
  const atEnd = curve === null || last < 0 ? null : { inUseBytes: inUseBytes[last], reservedBytes: curve[last] }
  return { event, reservedBytes, holders: holdersOf(trace, liveAfter(trace, event)), atEnd }
}

function waitingOf(trace: Trace): Waiting | null {
  const found = withWaiting(trace)
  if (found === null) return null
  const { peakBytes, peakEvent } = found
  const waiting = waitingAfter(trace, peakEvent)
  const waitingBytes = waiting.reduce((sum, number) => sum + trace.blocks.bytes[number], 0)
  return { peakBytes, peakEvent, waitingBytes, holders: holdersOf(trace, waiting) }
}

export function growthOf(trace: Trace, pattern?: RegExp): Growth {
  const steps = stepsOf(trace, pattern)
  return { steps, stepLeaks: steps === null ? null : stepLeaksOf(trace, steps), sites: growingSitesOf(trace) }
}
