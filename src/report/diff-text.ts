// The memory that grew and shrank between the peaks of two recordings, as text.

import { formatBytes } from '../base/bytes.js'
import { curvesOf } from '../trace/analysis/curves.js'
import { type StackDifference, traceDifference } from '../trace/analysis/stack-diff.js'
import type { Trace } from '../trace/trace.js'
import { brailleChart } from './braille-chart.js'
import { siteText } from './out-of-memory-text.js'
import { printable } from './printable.js'
import type { TextStyle } from './replay-tables.js'
import { wrapText } from './table.js'
import { counted, fitted, gapsOf, nextLine, stackHint } from './trace-lines.js'

const CHART_ROWS = 5
const MOST_STACKS = 12

/** The whole text in lines of at most `width` columns, but for the command to type next. */
export function diffText(before: Trace, after: Trace, style: TextStyle): string {
  const { width, paint } = style
  const { peakBytes, stacks, hasStacks } = traceDifference(before, after)
  const tops = [before, after].map(trace => Math.max(trace.peakRequestedBytes, trace.recordedPeakReservedBytes ?? 0))
  const curves = [before, after].map((trace, i) => {
    const title = `${'AB'[i]}: ${printable(trace.file)}, ${counted(trace.events, 'event')}`
    const gaps = gapsOf(trace).map(line => wrapText(line, width))
    const chart = brailleChart(curvesOf(trace), Math.max(...tops), width, CHART_ROWS)
    return [paint.bold(wrapText(title, width)), ...gaps, ...chart].join('\n')
  })
  const same = isSameRun(before, after) ? ['A and B are recordings of one run on one device.'] : []
  const parts = [
    ...same.map(line => wrapText(line, width)),
    ...curves,
    wrapText(totalsOf('Most in use', peakBytes), width),
    ...reservedOf(before, after).map(line => wrapText(line, width)),
    hasStacks
      ? stacksText(stacks, style)
      : wrapText(`Without call stacks in both, only totals can be compared. ${stackHint(after)}`, width),
  ]
  return [...parts.map(part => fitted(part, width)), paint.bold(nextLine('report', before.file, after.file))].join(
    '\n\n',
  )
}

/** Recordings of one process: they share the time of an event and its address. */
function isSameRun(a: Trace, b: Trace): boolean {
  if (a.device !== b.device || a.timeUs[0] === 0) return false
  const [earlier, later] = a.timeUs[0] <= b.timeUs[0] ? [a, b] : [b, a]
  const event = earlier.timeUs.indexOf(later.timeUs[0])
  return event >= 0 && earlier.address[event] === later.address[0]
}

function reservedOf(before: Trace, after: Trace): string[] {
  const [from, to] = [before.recordedPeakReservedBytes, after.recordedPeakReservedBytes]
  return from === null || to === null ? [] : [totalsOf('Most reserved', [from, to])]
}

function totalsOf(what: string, [from, to]: readonly [number, number]): string {
  const change = to === from ? 'no change' : signed(to - from)
  return `${what}: ${formatBytes(from)} in A, ${formatBytes(to)} in B (${change}).`
}

/** `+1.50 MiB` */
function signed(bytes: number): string {
  return `${bytes < 0 ? '−' : '+'}${formatBytes(Math.abs(bytes))}`
}

function stacksText(all: readonly StackDifference[], { width, paint }: TextStyle): string {
  const changed = all.filter(({ bytes: [from, to] }) => from !== to)
  if (changed.length === 0) return 'By call stack nothing changed at the peak.'
  const kinds = { new: 0, gone: 0, grown: 0, shrunk: 0 }
  for (const each of changed) kinds[kindOf(each)] += each.bytes[1] - each.bytes[0]
  const sums = Object.entries(kinds).filter(([, bytes]) => bytes !== 0)
  const shown = changed.slice(0, MOST_STACKS)
  const sizes = shown.map(({ bytes: [from, to] }) => signed(to - from))
  const columns = Math.max(...sizes.map(size => size.length))
  const lines = shown.map((each, i) => {
    const indent = ' '.repeat(columns + 4)
    const what = wrapText(placeOf(each), Math.max(1, width - indent.length)).replaceAll('\n', `\n${indent}`)
    const line = `  ${sizes[i].padStart(columns)}  ${what}`
    return each.bytes[1] > each.bytes[0] ? paint.red(line) : paint.green(line)
  })
  const more = changed.length - shown.length
  return [
    wrapText(
      `By call stack, at the peaks: ${sums.map(([kind, bytes]) => `${kind} ${signed(bytes)}`).join(', ')}.`,
      width,
    ),
    ...lines,
    ...(more > 0 ? [wrapText(`  and ${counted(more, 'other stack')} with smaller changes`, width)] : []),
  ].join('\n')
}

function kindOf({ bytes: [from, to] }: StackDifference): 'new' | 'gone' | 'grown' | 'shrunk' {
  if (from === 0) return 'new'
  if (to === 0) return 'gone'
  return to > from ? 'grown' : 'shrunk'
}

function placeOf(difference: StackDifference): string {
  const { site, through, bytes } = difference
  const place = site === null ? 'without a call stack' : siteText(site)
  const inside = through === null ? '' : `, in ${siteText(through)}`
  const kind = kindOf(difference)
  const was = kind === 'new' || kind === 'gone' ? kind : `from ${formatBytes(bytes[0])}`
  return `${place}${inside} (${was})`
}
