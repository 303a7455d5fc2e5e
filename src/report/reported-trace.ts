import type { ReplayReport } from '../trace/replay-result.js'
import type { Trace } from '../trace/trace.js'
import type { TuneReport } from '../trace/tune/tune-report.js'

/** A recording of a page, and what was found out about it. */
export interface ReportedTrace {
  readonly trace: Trace
  /** null for a page of what was recorded only */
  readonly replay: ReplayReport | null
  /** the settings that were tried because requests failed; null if none were */
  readonly tuned: TuneReport | null
  /** its name among several */
  readonly tab: string
}
