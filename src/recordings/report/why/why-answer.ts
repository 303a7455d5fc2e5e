// The answers of `why` as data: about a recording, an error message, or a snapshot without events.

import type { CategoriesAt } from '../../trace/analysis/categories.js'
import { liveAfter } from '../../trace/analysis/curves.js'
import type { GrowingSite } from '../../trace/analysis/growing-sites.js'
import type { IdleMemory } from '../../trace/analysis/pinned-segments.js'
import type { PoolMemory } from '../../trace/analysis/pools.js'
import type { StepLeaks } from '../../trace/analysis/step-leaks.js'
import type { Steps } from '../../trace/analysis/steps.js'
import { type Holder, holdersOf } from '../../trace/failures/holders.js'
import type { RecordedOutOfMemory, Verdict } from '../../trace/failures/out-of-memory.js'
import type { MemorySummary } from '../../trace/messages/memory-summary.js'
import { answerOf, type MessageAnswer, type OutOfMemoryMessage } from '../../trace/messages/out-of-memory-message.js'
import { ofOneDevice, type TextFigures } from '../../trace/messages/read-text.js'
import type { TraceFigures } from '../../trace/replay-result.js'
import type { Trace } from '../../trace/trace.js'
import { traceFigures } from '../../trace/trace-figures.js'
import type { TuneReport } from '../../trace/tune/tune-report.js'
import { type TuneAnswer, tuneAnswer } from '../advice-text.js'
import { outsideBytes } from './device-memory-text.js'
import type { Idle, MemoryAtEnd } from './idle-text.js'
import { type SnapshotState, snapshotState } from './state-text.js'
import { type SummaryAnswer, summaryAnswer } from './summary-text.js'
import type { Waiting } from './waiting-text.js'
import type { WhyFacts } from './why-facts.js'

/** Events and facts that a recording lacks; `contradictions` of the trace counts those that cannot be. */
interface RecordingGaps {
  /** how many events the recorder lost; null if unknown */
  readonly dropped: number | null
  /** how many events were left out: of other memory, of unknown kinds or out of order */
  readonly skippedEvents: number
  /** how often the clock goes back */
  readonly timesGoBack: number
  /** whether it has call stacks */
  readonly hasStacks: boolean
}

/** Why a recorded run ran out of memory, or who held its memory. */
export interface WhyAnswer {
  /** why the last failed request failed; null without one */
  readonly verdict: Verdict | null
  /** the last failed request; null if none failed */
  readonly failed: RecordedOutOfMemory | null
  readonly trace: TraceFigures
  readonly gaps: RecordingGaps
  /** settings of PyTorch's allocator, tried by replays; null without a failed request, and if settings cannot help */
  readonly tuned: TuneAnswer | null
  /** the moment with most in use */
  readonly peak: {
    /** number of the event; -1 for before the first event */
    readonly event: number
    /** null if unknown */
    readonly reservedBytes: number | null
  }
  /** at the peak, by call site, most bytes first */
  readonly holders: readonly Holder[]
  /** by purpose, at the last failed request, else at the peak; null if unknown */
  readonly categories: CategoriesAt | null
  /** null if the recording has no steps */
  readonly steps: Steps | null
  /** the memory that steps leave behind; null without steps */
  readonly stepLeaks: StepLeaks | null
  /** call sites that grow through the whole recording */
  readonly growingSites: readonly GrowingSite[]
  /** freed memory that other streams still used; null if the recording does not say when frees complete */
  readonly waiting: Waiting | null
  /** idle memory, and who keeps it: at the last failed request, else when most was reserved; null without segments */
  readonly idle: IdleAnswer | null
  /** by pool and stream, at the last failed request, else at the peak; empty without segments */
  readonly pools: readonly PoolMemory[]
  /** the same at the end of the recording; empty without private pools */
  readonly poolsAtEnd: readonly PoolMemory[]
  /** the memory at the end; null without events or segments */
  readonly atEnd: MemoryAtEnd | null
  /** the option --device-memory; null without it */
  readonly deviceBytes: number | null
  /** of these, outside of the recorded allocator; null if unknown */
  readonly outsideBytes: number | null
}

/** Idle memory at a moment. */
interface IdleAnswer extends IdleMemory {
  /** number of the event */
  readonly event: number
  /** whether that is the last failed request */
  readonly isFailure: boolean
  /** null if unknown */
  readonly reservedBytes: number | null
  readonly inUseBytes: number
}

/** The answer to an error message, or to the totals of an allocator. */
export interface WhyTextAnswer {
  /** of the last message; null without one */
  readonly verdict: Verdict | null
  readonly file: string
  /** in their order; --gpu chooses those of one device */
  readonly messages: readonly (OutOfMemoryMessage & MessageAnswer)[]
  readonly summaries: readonly (MemorySummary & SummaryAnswer)[]
  /** the option --device-memory; null without it */
  readonly deviceBytes: number | null
}

/** The answer to a snapshot without events. */
export interface WhyStateAnswer {
  readonly trace: TraceFigures
  readonly state: SnapshotState
  /** by call site, most bytes first */
  readonly holders: readonly Holder[]
}

/** The answer for a recording. `tuned` is null if no settings were tried. */
export function whyAnswer(
  trace: Trace,
  facts: WhyFacts,
  tuned: TuneReport | null,
  deviceBytes: number | null,
): WhyAnswer {
  const { peak, categories, waiting, idle, pools, poolsAtEnd, growth } = facts
  const { dropped, skippedEvents, timesGoBack, stacks } = trace
  const failed = facts.trace.outOfMemories.at(-1) ?? null
  return {
    verdict: failed?.verdict ?? null,
    failed,
    trace: facts.trace,
    gaps: { dropped, skippedEvents, timesGoBack, hasStacks: stacks.count > 1 },
    tuned: tuned === null ? null : tuneAnswer(tuned),
    peak: { event: peak.event, reservedBytes: peak.reservedBytes },
    holders: peak.holders,
    categories,
    steps: growth.steps,
    stepLeaks: growth.stepLeaks,
    growingSites: growth.sites,
    waiting,
    idle: idle === null ? null : { ...momentOf(idle), ...idle.memory },
    pools,
    poolsAtEnd,
    atEnd: peak.atEnd,
    deviceBytes,
    outsideBytes: deviceBytes === null ? null : outsideBytes(trace, failed, deviceBytes),
  }
}

function momentOf({ moment: { event, isFailure, memory } }: Idle) {
  return { event, isFailure, reservedBytes: memory.reservedBytes, inUseBytes: memory.liveBytes }
}

/** The answer for a log; `device` chooses among its devices. */
export function whyTextAnswer(
  { file, messages, summaries, other }: TextFigures,
  device: number | undefined,
  deviceBytes: number | null,
): WhyTextAnswer {
  const { chosen } = ofOneDevice(messages, device)
  const all = device === undefined ? messages : chosen
  const answered = (other === null ? all : [other.message]).map(message => ({ ...message, ...answerOf(message) }))
  const last = other === null ? chosen.at(-1) : other.message
  return {
    verdict: last === undefined ? null : answerOf(last).verdict,
    file,
    messages: answered,
    summaries: summaries
      .filter(summary => device === undefined || summary.device === device)
      .map(summary => ({ ...summary, ...summaryAnswer(summary) })),
    deviceBytes,
  }
}

/** The answer for a trace without events of memory. */
export function whyStateAnswer(trace: Trace): WhyStateAnswer {
  const holders = holdersOf(trace, liveAfter(trace, trace.events))
  return { trace: traceFigures(trace), state: snapshotState(trace), holders }
}
