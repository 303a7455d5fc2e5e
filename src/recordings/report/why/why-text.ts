// Why a recorded run needed its memory, as text: its failed requests, its curves, and who held the memory at the peak.

import { formatBytes } from '../../../core/base/bytes.js'
import { shown } from '../../../core/base/shown-text.js'
import { type Curves, curvesOf, liveAfter } from '../../trace/analysis/curves.js'
import { type Steps, stepsOf } from '../../trace/analysis/steps.js'
import { type Holder, holdersOf } from '../../trace/failures/holders.js'
import { BEFORE, type Trace } from '../../trace/trace.js'
import { traceFigures } from '../../trace/trace-figures.js'
import type { TuneReport } from '../../trace/tune/tune-report.js'
import { brailleChart } from '../braille-chart.js'
import { formatCount } from '../number-format.js'
import { headOf } from '../replay-text.js'
import { VARIABLE } from '../settings-text.js'
import { type TextStyle, wrapText } from '../table.js'
import { counted, fitted, gapsOf, sentences } from '../trace-lines.js'
import { adviceLines } from '../tune-text.js'
import { holderLines, outOfMemoryText } from './out-of-memory-text.js'

const CHART_ROWS = 8
const HOLDERS = 8
/** A step that leaves behind less than this does not leak. */
const LEAST_LEAK_BYTES = 512

/** Options of the text; every one may be left out. */
export interface WhyOptions {
  /** steps are those that `stepsOf(trace, pattern)` finds */
  readonly pattern?: RegExp
  /** the settings that were tried; null for none */
  readonly tuned?: TuneReport | null
}

/** The whole text in lines of at most `width` columns. */
export function whyText(trace: Trace, style: TextStyle, { pattern, tuned = null }: WhyOptions = {}): string {
  const { width, paint } = style
  const report = { trace: traceFigures(trace) }
  const failed = outOfMemoryText(report, style)
  const curves = curvesOf(trace)
  // A peak without a curve would leave the chart empty below it.
  const peakReserved = curves.reservedBytes === null ? null : trace.recordedPeakReservedBytes
  const top = Math.max(trace.peakRequestedBytes, peakReserved ?? 0)
  const parts = [
    [headOf(report, width, paint), ...gapsOf(trace).map(line => wrapText(line, width))].join('\n'),
    ...(failed.length > 0 ? failed : ['No request failed.']),
    ...(tuned === null ? [] : [adviceText(tuned, style)]),
    [wrapText(titleOf(trace, curves), width), ...brailleChart(curves, top, width, CHART_ROWS)].join('\n'),
    peakText(trace, curves.peakEvent, curves.reservedBytes, width),
    wrapText(stepsText(stepsOf(trace, pattern), pattern), width),
  ]
  return parts.map(part => fitted(part, width)).join('\n\n')
}

function adviceText(tuned: TuneReport, { width, paint }: TextStyle): string {
  const lines = adviceLines(tuned).map(line =>
    line.startsWith(`${VARIABLE}=`) ? paint.green(`    ${line}`) : wrapText(`• ${line}`, width, '  '),
  )
  return [wrapText("Settings of PyTorch's allocator, tried by replays of this recording:", width), ...lines].join('\n')
}

function titleOf({ events, recordedPeakReservedBytes: peak }: Trace, { reservedBytes }: Curves): string {
  const unknown = peak === null ? 'what was reserved is not recorded' : `at most ${formatBytes(peak)} were reserved`
  const reserved = reservedBytes === null ? `; ${unknown}` : ', and reserved (line)'
  return `In use (area)${reserved}, over ${counted(events, 'event')}:`
}

function peakText(trace: Trace, event: number, reservedBytes: Float64Array | null, width: number): string {
  const when = event === BEFORE ? 'before the first event' : `at event ${formatCount(event)}`
  const reserved = event === BEFORE ? undefined : reservedBytes?.[event]
  const beside = reserved === undefined ? '' : `, ${formatBytes(reserved)} reserved then`
  const first = `Most in use: ${formatBytes(trace.peakRequestedBytes)} ${when}${beside}.`
  const holders = holdersOf(trace, liveAfter(trace, event))
  if (holders.every(isUnknown)) return sentences([first, 'Who held it is not recorded.'], width)
  const lines = holderLines(holders.slice(0, HOLDERS), trace.peakRequestedBytes, width)
  return [sentences([first, 'Held then, by call site:'], width), ...lines].join('\n')
}

function isUnknown({ site, before }: Holder): boolean {
  return site === null && !before
}

function stepsText(found: Steps | null, pattern?: RegExp): string {
  if (found === null && pattern !== undefined) return `No annotation of the recording matches ${pattern.source}.`
  if (found === null) {
    return (
      'The recording has no steps: PyTorch notes the steps of an optimizer while _record_memory_history is on, or ' +
      'torch.profiler those of its schedule.'
    )
  }
  const { steps } = found
  const known = steps.filter(({ leftBytes }) => leftBytes !== null)
  const count = `${counted(steps.length, 'step')}, by the ends of ${shown(found.name)}`
  if (known.length === 0) return `${count}: too few to tell what each leaves behind.`
  const left = known.flatMap(({ leftBytes }, i) => (leftBytes! >= LEAST_LEAK_BYTES ? [{ step: i + 1, leftBytes }] : []))
  if (left.length === 0) return `${count}: none left memory behind.`
  const [first, ...later] = left
  const one = `step ${formatCount(first.step)} left ${formatBytes(first.leftBytes!)} that stay`
  if (later.length === 0) return `${count}: ${one}; no later step left anything.`
  const most = later.reduce((a, b) => (b.leftBytes! > a.leftBytes! ? b : a))
  return (
    `${count}: ${one}; ${counted(later.length, 'later step')} left something too, ` +
    `at most ${formatBytes(most.leftBytes!)} (step ${formatCount(most.step)}). Memory grows.`
  )
}
