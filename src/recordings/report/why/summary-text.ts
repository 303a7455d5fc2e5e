// The text about PyTorch's memory_summary() or memory_stats(): waiting and idle memory, retries and failures.

import { formatBytes } from '../../../core/base/bytes.js'
import { listed } from '../../../core/base/readable.js'
import { type MemorySummary, type SummaryFigure, waitingIn } from '../../trace/messages/memory-summary.js'
import { exceeds, minus, type RoundedSize } from '../../trace/messages/rounded-size.js'
import { formatCount } from '../number-format.js'
import { factLines, type TextStyle, wrapText } from '../table.js'
import { counted, WAITING_FACT } from '../trace-lines.js'

/** The differences of a summary that say something; null where a figure is missing. */
export interface SummaryAnswer {
  /** freed by the program, but in use by another stream */
  readonly waiting: RoundedSize | null
  /** reserved, and not used by any block */
  readonly idle: RoundedSize | null
  /** of the idle memory: whole segments, which empty_cache() gives back */
  readonly wholeSegments: RoundedSize | null
  /** bytes that PyTorch added by rounding sizes up */
  readonly rounding: RoundedSize | null
  /** the first contradiction; null for a consistent summary */
  readonly contradiction: string | null
}

export function summaryAnswer(summary: MemorySummary): SummaryAnswer {
  const { allocated, active, requested, reserved, nonReleasable } = summary
  const difference = (from: SummaryFigure | null, size: SummaryFigure | null) =>
    from === null || size === null ? null : minus(from.current, size.current)
  const idle = difference(reserved, active ?? allocated)
  return {
    waiting: waitingIn(summary),
    idle,
    wholeSegments: idle === null || nonReleasable === null ? null : minus(idle, nonReleasable.current),
    rounding: difference(allocated, requested),
    contradiction: contradictionOf(summary, idle),
  }
}

function contradictionOf(
  { allocated, active, reserved, nonReleasable }: MemorySummary,
  idle: RoundedSize | null,
): string | null {
  const isAbove = (one: RoundedSize | null, other: RoundedSize | null) =>
    one !== null && other !== null && exceeds(one, other) === 'yes'
  const now = (figure: SummaryFigure | null) => figure?.current ?? null
  if (isAbove(now(allocated), now(active))) return 'allocated memory is above active memory'
  if (isAbove(now(active ?? allocated), now(reserved))) return 'memory in use is above reserved memory'
  if (isAbove(now(nonReleasable), idle)) return 'non-releasable memory is above what is idle'
  const isPastPeak = (figure: SummaryFigure | null) => figure !== null && isAbove(figure.current, figure.peak)
  return [allocated, active, reserved].some(isPastPeak) ? 'memory now is above its own peak' : null
}

/** A part for each summary. */
export function summaryText(summary: MemorySummary, { width, paint }: TextStyle): string {
  const { allocated, reserved, outOfMemories, retries, device } = summary
  const answer = summaryAnswer(summary)
  const where = device === null ? '' : ` of GPU ${device}`
  const rows: [string, string][] = []
  if (allocated !== null) rows.push(['in use', nowAndPeak(allocated)])
  if (answer.waiting !== null) {
    rows.push(['waiting', `${sizeOf(answer.waiting)} ${WAITING_FACT}`])
  }
  if (answer.idle !== null)
    rows.push(['idle', `${sizeOf(answer.idle)} reserved, but not in use${partsOf(summary, answer)}`])
  if (reserved !== null) rows.push(['reserved', nowAndPeak(reserved)])
  if (answer.rounding !== null) rows.push(['rounding', `${sizeOf(answer.rounding)} more in use than was asked for`])
  if (retries !== null) rows.push(['retries', retriesText(retries)])
  if (outOfMemories !== null) rows.push(['failures', counted(outOfMemories, 'request')])
  return [
    paint.bold(wrapText(`PyTorch's memory summary${where}, at the moment when it was printed:`, width)),
    ...factLines(rows, width),
    paint.red(wrapText(`→ ${summaryVerdict(summary, answer)}`, width, '  ')),
  ].join('\n')
}

function partsOf({ nonReleasable }: MemorySummary, { wholeSegments }: SummaryAnswer): string {
  if (nonReleasable === null || wholeSegments === null) return ''
  const kept = `${formatBytes(nonReleasable.current.bytes)} kept by blocks in the same segments`
  return `: ${kept}, ${sizeOf(wholeSegments)} in whole segments, which empty_cache() gives back`
}

function retriesText(retries: number): string {
  if (retries === 0) return 'none: PyTorch never gave memory back for a request'
  return `${formatCount(retries)}: so often PyTorch gave all idle segments back and asked again, which costs time`
}

/** The largest part of the idle and waiting memory, and the limits of a summary. */
function summaryVerdict(summary: MemorySummary, answer: SummaryAnswer): string {
  const { allocated } = summary
  if (answer.contradiction !== null) return `The figures contradict each other: ${answer.contradiction}.`
  if (allocated === null || answer.idle === null) {
    return 'The summary is cut off: the memory in use or reserved is missing, so little can be said. Make a recording.'
  }
  const waiting = answer.waiting?.bytes ?? 0
  const [largest] = [
    { bytes: waiting, text: 'are freed, but wait for another stream (record_stream): no setting frees them' },
    { bytes: answer.rounding?.bytes ?? 0, text: ROUNDING },
    ...idleParts(summary, answer),
  ].sort((one, other) => other.bytes - one.bytes)
  // A part below a tenth of the memory in use does not explain a failure.
  const isWorth = largest.bytes > 0 && largest.bytes * 10 >= allocated.current.bytes
  const what = isWorth
    ? `${formatBytes(largest.bytes)} ${largest.text}`
    : 'nearly all reserved memory is in use, so the program itself needs it'
  return `${failuresText(summary)}; ${what}. What was asked, what was free on the device and who holds the memory is not in it.${cutText(summary)}`
}

const ROUNDING =
  'in use are rounding, not asked for: see roundup_power2_divisions in the settings, or the sizes of requests'

function failuresText({ outOfMemories, retries }: MemorySummary): string {
  if ((outOfMemories ?? 0) > 0) return 'Requests failed'
  if ((retries ?? 0) > 0) return 'Memory ran full'
  return outOfMemories === null ? 'Whether requests failed is unknown' : 'No request failed'
}

function idleParts({ nonReleasable }: MemorySummary, { idle, wholeSegments }: SummaryAnswer) {
  if (nonReleasable === null || wholeSegments === null) {
    return [{ bytes: idle?.bytes ?? 0, text: 'are reserved, but idle' }]
  }
  return [
    {
      bytes: nonReleasable.current.bytes,
      text: 'are idle in segments that also hold blocks in use: a setting may help against that',
    },
    { bytes: wholeSegments.bytes, text: 'are idle in whole segments, which serve the next requests' },
  ]
}

/** The rows that a table of every version has. */
function cutText({ active, nonReleasable, retries }: MemorySummary): string {
  const missing = [
    ...(active === null ? ['active memory'] : []),
    ...(nonReleasable === null ? ['non-releasable memory'] : []),
    ...(retries === null ? ['retries'] : []),
  ]
  return missing.length === 0 ? '' : ` The summary is cut off: it lacks ${listed(missing)}.`
}

function nowAndPeak({ current, peak }: SummaryFigure): string {
  return `${formatBytes(current.bytes)} now, at most ${formatBytes(peak.bytes)}`
}

/** A difference; below 0 only by the rounding of the table. */
function sizeOf({ bytes }: RoundedSize): string {
  return formatBytes(Math.max(0, bytes))
}
