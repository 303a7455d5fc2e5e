// The settings that `tune` advises for a run that ran out of memory, as rows of a table: the best first, each with the
// memory it needs, and whether that fits.

import { formatBytes } from '../../../core/base/bytes.js'
import { isOwnLimit } from '../../trace/tune/ranking.js'
import type { TuneReport, TuneRun } from '../../trace/tune/tune-report.js'
import { adviceOf } from '../advice-text.js'
import { MISSING } from '../number-format.js'
import { failing, isServedOnlyInReplay, type RaisedLimit, raisedLimit, runOf, withRetries } from '../verdict-text.js'
import type { PageRemedies } from './page-data.js'

const MOST_ROWS = 3

/** The rows and their columns; null without advice, and where a replay contradicts the recorded failure. */
export function remediesOf(report: TuneReport): PageRemedies | null {
  const [recording] = report.recordings
  const advice = adviceOf(report)
  if (isServedOnlyInReplay(recording, report)) return null
  const isRaised = raisedLimit(recording, report.baseline) !== null
  if (advice.length === 0 && !isRaised) return null
  const { withinBytes } = recording
  const limitBelow = isOwnLimit(recording) ? (recording.lastFailure?.capacityBelowBytes ?? null) : null
  const most = limitBelow === null ? '' : ` to ${formatBytes(limitBelow)}`
  const columns = [
    'needs',
    ...(withinBytes === null ? [] : [`fits your ${formatBytes(withinBytes)}${most}`]),
    ...(isRaised ? ['with the limit raised'] : []),
  ]
  const cellsOf = (settings: string) => {
    const run = runOf(recording.runs, settings)
    const limit = raisedLimit(recording, settings)
    return [
      run.leastCapacityBytes === null ? MISSING : formatBytes(run.leastCapacityBytes),
      ...(withinBytes === null ? [] : [fitsText(run, limitBelow)]),
      ...(isRaised ? [raisedText(run, limit)] : []),
    ]
  }
  const rows = report.advice.map(({ settings }, i) => {
    const { line, price } = advice[i]
    return { line, cells: cellsOf(settings), note: price }
  })
  const today = raisedLimit(recording, report.baseline)
  if (today !== null && today.share !== null && runOf(recording.runs, report.baseline).within?.failures !== 0) {
    const line = `torch.cuda.set_per_process_memory_fraction(${today.share})`
    rows.push({ line, cells: cellsOf(report.baseline), note: "A higher limit, with today's settings." })
  }
  return { columns, rows: rows.slice(0, MOST_ROWS) }
}

/** A recording tells a range for a limit of the program: from `withinBytes` to below `limitBelow`. */
function fitsText({ within, leastCapacityBytes }: TuneRun, limitBelow: number | null): string {
  if (within?.failures === 0) return `yes, ${withRetries(within.retries)}`
  const mayFit = limitBelow !== null && leastCapacityBytes !== null && leastCapacityBytes < limitBelow
  return mayFit ? `from ${formatBytes(leastCapacityBytes)} on` : `no: ${failing(within)}`
}

function raisedText({ within }: TuneRun, limit: RaisedLimit | null): string {
  if (within?.failures === 0) return 'not needed'
  if (limit === null) return MISSING
  if (limit.share === null) return `to ${formatBytes(limit.bytes)}: no, the device had less`
  return `to ${formatBytes(limit.bytes)}: yes`
}
