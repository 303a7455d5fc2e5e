// The memory that grew and shrank between the peaks of two recordings, as text.

import { formatBytes } from '../../core/base/bytes.js'
import { listed } from '../../core/base/readable.js'
import { shown } from '../../core/base/shown-text.js'
import { curvesOf } from '../trace/analysis/curves.js'
import { type TraceDifference, traceDifference } from '../trace/analysis/stack-diff.js'
import type { Trace } from '../trace/trace.js'
import { brailleChart } from './braille-chart.js'
import {
  changedOf,
  changesLine,
  changeText,
  partsOf,
  peakLines,
  sameRunLines,
  signedBytes,
} from './difference-words.js'
import { placeText } from './place-text.js'
import { rowText, type TextStyle, wrapText } from './table.js'
import { counted, deviceLines, fitted, gapsOf, stackHint } from './trace-lines.js'
import { growthOf } from './why/why-facts.js'

const CHART_ROWS = 5
const MOST_SITES = 12
/** Of a site. */
const MOST_PARTS = 3
const PART_INDENT = '    '

type Changed = Pick<TraceDifference['sites'][number], 'bytes'>

/** The whole text in lines of at most `width` columns, but for the command to type next. */
export function diffText(before: Trace, after: Trace, style: TextStyle): string {
  const { width, paint } = style
  const difference = traceDifference(before, after)
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
    wrapText(peakLines(before, after, difference).join(' '), width),
    difference.hasStacks
      ? sitesText(difference, style)
      : wrapText(`Without call stacks in both, only totals can be compared. ${stackHint(after)}`, width),
    ...growthLines(before, after).map(line => wrapText(line, width)),
  ]
  return parts.map(part => fitted(part, width)).join('\n\n')
}

/** Places where memory grows in the second recording and not in the first: the peaks alone do not tell. */
function growthLines(before: Trace, after: Trace): string[] {
  const [known, found] = [growthOf(before), growthOf(after)]
  const names = new Set([...(known.stepLeaks?.sites ?? []), ...known.sites].map(({ site }) => site))
  const inSteps = (found.stepLeaks?.sites ?? [])
    .filter(({ site }) => !names.has(site))
    .map(each => `${formatBytes(each.leftBytes / each.steps)} a step at ${placeText(each)}`)
  const along = (found.steps === null ? found.sites : [])
    .filter(({ site }) => !names.has(site))
    .map(each => `${formatBytes(each.bytes)} at ${placeText(each)}`)
  const [how, places] = inSteps.length > 0 ? ['from step to step', inSteps] : ['through the whole recording', along]
  if (places.length === 0) return []
  const most = listed(places.slice(0, MOST_PARTS))
  return [`In B memory grows ${how}, as it does not in A: ${most}. cuda-mempool why has more.`]
}

function sitesText({ sites, stacks }: TraceDifference, { width, paint }: TextStyle): string {
  const changed = changedOf(sites)
  if (changed.length === 0) return changesLine(changed)
  const listed = changed.slice(0, MOST_SITES)
  const shownParts = listed.map(site => partsOf(site, stacks).slice(0, MOST_PARTS))
  const changes = [...listed, ...shownParts.flat()].map(changeOf)
  const columns = Math.max(...changes.map(change => change.length))
  const row = (each: Changed, text: string, indent: string) =>
    rowText(indent + changeOf(each).padStart(columns), text, width)
  const lines = listed.flatMap((each, i) => {
    const line = row(each, changeText(each), '')
    const below = shownParts[i].map(part => paint.dim(row(part, part.text, PART_INDENT)))
    return [each.bytes[1] > each.bytes[0] ? paint.red(line) : paint.green(line), ...below]
  })
  const more = changed.length - listed.length
  return [
    wrapText(changesLine(changed), width),
    ...lines,
    ...(more > 0 ? [wrapText(`  and ${counted(more, 'other call site')} with smaller changes`, width)] : []),
  ].join('\n')
}

function changeOf({ bytes: [from, to] }: Changed): string {
  return signedBytes(to - from)
}
