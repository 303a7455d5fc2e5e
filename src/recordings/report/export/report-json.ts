import { printableJson } from '../../../core/base/shown-text.js'
import { checkReport, type ReplayReport } from '../../trace/replay-result.js'

/**
 * The version of the JSON of `--json`, and of `convert -o x.json`. It rises when a name goes or changes
 * its meaning; new names may come without.
 */
export const REPORT_SCHEMA_VERSION = 1

/**
 * The report of a replay, without placements, as JSON on one line. `docs/command-line.schema.json` describes it as
 * `replay`. Throws TypeError for anything but the report of a replay.
 */
export function reportJson(report: ReplayReport): string {
  checkReport('reportJson: report', report)
  const runs = report.runs.map(({ placements: _, ...figures }) => figures)
  return answerJson('replay', { ...report, runs })
}

/** An answer of a command as JSON on one line. */
export function answerJson(kind: string, facts: object): string {
  return printableJson({ schemaVersion: REPORT_SCHEMA_VERSION, kind, ...facts })
}
