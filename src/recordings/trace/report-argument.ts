// The check of replay reports that public functions are given.

import { describe } from '../../core/base/bytes.js'
import type { ReplayReport } from './replay-result.js'

/** Throws TypeError, which begins with `argument`, unless `report` is the report of a replay. */
export function checkReport(argument: string, report: unknown): asserts report is ReplayReport {
  const isReport = typeof report === 'object' && report !== null && 'runs' in report && Array.isArray(report.runs)
  if (!isReport)
    throw new TypeError(`${argument} must be what replay(trace, open) resolves to, not ${describe(report)}`)
}
