// The memory that grew and shrank between the peaks of two recordings, as text.

import { shown } from '../../core/base/shown-text.js'
import { curvesOf } from '../trace/analysis/curves.js'
import { type StackDifference, traceDifference } from '../trace/analysis/stack-diff.js'
import type { Trace } from '../trace/trace.js'
import { brailleChart } from './braille-chart.js'
import { changedOf, changesLine, peakLines, placeOf, sameRunLines, signedBytes } from './difference-words.js'
import { type TextStyle, wrapText } from './table.js'
import { counted, deviceLines, fitted, gapsOf, stackHint } from './trace-lines.js'

const CHART_ROWS = 5
const MOST_STACKS = 12

/** The whole text in lines of at most `width` columns, but for the command to type next. */
export function diffText(before: Trace, after: Trace, style: TextStyle): string {
  const { width, paint } = style
  const { stacks, hasStacks } = traceDifference(before, after)
  const tops = [before, after].map(trace => Math.max(trace.peakRequestedBytes, trace.recordedPeakReservedBytes ?? 0))
  const curves = [before, after].map((trace, i) => {
    const title = `${'AB'[i]}: ${shown(trace.file)}, ${counted(trace.events, 'event')}`
    const gaps = [...deviceLines(trace), ...gapsOf(trace)].map(line => wrapText(line, width))
    const chart = brailleChart(curvesOf(trace), Math.max(...tops), width, CHART_ROWS)
    return [paint.bold(wrapText(title, width)), ...gaps, ...chart].join('\n')
  })
  const parts = [
    ...sameRunLines(before, after).map(line => wrapText(line, width)),
    ...curves,
    ...peakLines(before, after).map(line => wrapText(line, width)),
    hasStacks
      ? stacksText(stacks, style)
      : wrapText(`Without call stacks in both, only totals can be compared. ${stackHint(after)}`, width),
  ]
  return parts.map(part => fitted(part, width)).join('\n\n')
}

function stacksText(all: readonly StackDifference[], { width, paint }: TextStyle): string {
  const changed = changedOf(all)
  if (changed.length === 0) return changesLine(changed)
  const listed = changed.slice(0, MOST_STACKS)
  const sizes = listed.map(({ bytes: [from, to] }) => signedBytes(to - from))
  const columns = Math.max(...sizes.map(size => size.length))
  const lines = listed.map((each, i) => {
    const indent = ' '.repeat(columns + 4)
    const what = wrapText(placeOf(each), Math.max(1, width - indent.length)).replaceAll('\n', `\n${indent}`)
    const line = `  ${sizes[i].padStart(columns)}  ${what}`
    return each.bytes[1] > each.bytes[0] ? paint.red(line) : paint.green(line)
  })
  const more = changed.length - listed.length
  return [
    wrapText(changesLine(changed), width),
    ...lines,
    ...(more > 0 ? [wrapText(`  and ${counted(more, 'other stack')} with smaller changes`, width)] : []),
  ].join('\n')
}
