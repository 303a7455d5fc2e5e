// A recording of a page, and what is found out about it: replays under all policies, and settings that would have
// helped. Node and the page without data both take it from here.

import { SlowReplayError } from '../../../core/base/errors.js'
import { fileName } from '../../../core/base/shown-text.js'
import { replay } from '../../trace/replay.js'
import type { ReplayDevice } from '../../trace/replay-device.js'
import { DEFAULT_POLICIES, type Policy, type ReplayReport } from '../../trace/replay-result.js'
import { Action, type Trace } from '../../trace/trace.js'
import { remediesFor } from '../../trace/tune/remedies.js'
import type { TuneReport } from '../../trace/tune/tune-report.js'
import { nameOf } from '../policy-names.js'

/** A recording of a page, and what was found out about it. */
export interface ReportedTrace {
  readonly trace: Trace
  /** null for a page of the recording only, or if it took too long */
  readonly replay: ReplayReport | null
  /** the settings that were tried because requests failed; null without failures */
  readonly tuned: TuneReport | null
  /** its name among several */
  readonly tab: string
  /** the default policies that were not replayed, because the recording is large */
  readonly leftOut?: readonly Policy[]
  /** why the replay was given up */
  readonly givenUp?: string
}

/**
 * Above this number of events some policies are replayed only if they are named. Of a million they take half of the
 * time and of the page, and few programs can choose them.
 */
export const MOST_EVENTS_WITH_ALL = 500_000
const LEFT_OUT_OF_LARGE: readonly Policy[] = ['driver-malloc', 'driver-pool', 'power-of-two']

/** Options of `reportedTrace`. */
interface ReportedOptions {
  /** default: those of `replay`; of large recordings without those of `LEFT_OUT_OF_LARGE` */
  readonly policies?: readonly Policy[]
  /** gets the done part, from 0 to 1, and the name of the work under way */
  readonly onProgress?: (fraction: number, what: string) => void
}

/**
 * Replays a recording on devices that `open` opens, and tries settings if requests failed. If that takes too long, the
 * recording itself is still worth a page.
 */
export async function reportedTrace(
  trace: Trace,
  open: (capacityBytes?: number) => ReplayDevice,
  tab: string,
  { policies: named, onProgress = () => {} }: ReportedOptions = {},
): Promise<ReportedTrace> {
  const leftOut = named === undefined && trace.events > MOST_EVENTS_WITH_ALL ? LEFT_OUT_OF_LARGE : []
  const policies = named ?? DEFAULT_POLICIES.filter(policy => !leftOut.includes(policy))
  const leastCapacity = trace.action.includes(Action.outOfMemory)
  try {
    const onReplay = (fraction: number, what: string) =>
      onProgress(fraction, policies.includes(what as Policy) ? nameOf(what as Policy, trace) : what)
    const report = await replay(trace, open, { policies, placements: true, leastCapacity, onProgress: onReplay })
    const last = report.trace.outOfMemories.at(-1)
    return { trace, replay: report, tuned: await remediesFor(trace, last, onProgress), tab, leftOut }
  } catch (error) {
    if (!(error instanceof SlowReplayError)) throw error
    return { trace, replay: null, tuned: null, tab, givenUp: error.message }
  }
}

/** A name for each recording that no other one has. */
export function tabsOf(traces: readonly Trace[]): string[] {
  const name = (each: Trace) => fileName(each.file)
  const isOneFile = traces.every(other => other.file === traces[0].file)
  return traces.map((trace, index) => {
    const hasOthers = traces.some(other => other !== trace && other.file === trace.file)
    const ofDevice = `device ${trace.device}`
    const tab = isOneFile ? ofDevice : hasOthers ? `${name(trace)}, ${ofDevice}` : name(trace)
    const alike = traces.slice(0, index).filter(other => name(other) === name(trace) && other.device === trace.device)
    return alike.length === 0 ? tab : `${tab} (${alike.length + 1})`
  })
}
