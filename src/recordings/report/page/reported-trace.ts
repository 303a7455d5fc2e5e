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

/** A recording of a page, and what was found out about it. */
export interface ReportedTrace {
  readonly trace: Trace
  /** null for a page of the recording only, or if it took too long */
  readonly replay: ReplayReport | null
  /** the settings that were tried because requests failed; null without failures */
  readonly tuned: TuneReport | null
  /** its name among several */
  readonly tab: string
  /** why the replay was given up */
  readonly givenUp?: string
}

/** Options of `reportedTrace`. */
interface ReportedOptions {
  /** default: those of `replay` */
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
  { policies = DEFAULT_POLICIES, onProgress = () => {} }: ReportedOptions = {},
): Promise<ReportedTrace> {
  const leastCapacity = trace.action.includes(Action.outOfMemory)
  try {
    const report = await replay(trace, open, { policies, placements: true, leastCapacity, onProgress })
    const last = report.trace.outOfMemories.at(-1)
    return { trace, replay: report, tuned: await remediesFor(trace, last, onProgress), tab }
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
