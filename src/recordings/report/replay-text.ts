// The report of a replay as text: tables of all policies, and a few sentences on the results. Times on the simulated
// device are host times of a simulation, so figures that need a GPU are left out there.

import { formatBytes } from '../../core/base/bytes.js'
import { shown } from '../../core/base/shown-text.js'
import { DEFAULT_POLICIES, type ReplayReport, type ReplayRun } from '../trace/replay-result.js'
import { formatCount, formatNs } from './number-format.js'
import { siteText } from './place-text.js'
import { nameOf } from './policy-names.js'
import { meaningOf, proofsOf } from './replay-sentences.js'
import { legendOf, policyTables, roundTables } from './replay-tables.js'
import { helpfulSetting, nearestSettings, recordedSettings } from './settings-text.js'
import { type Paint, type TextStyle, wrapText } from './table.js'
import { counted, deviceLines, initialLines, sentences } from './trace-lines.js'
import { giveBackLines } from './why/give-back-text.js'
import { outOfMemoryText } from './why/out-of-memory-text.js'

const FRAMES_SHOWN = 6

/** The whole report in lines of at most `width` columns. */
export function replayText(whole: ReplayReport, style: TextStyle): string {
  const report = { ...whole, runs: shownRuns(whole) }
  const { width, paint } = style
  const bullets = [...meaningOf(report), ...proofsOf(report)].map(line => wrapText(`• ${line}`, width, '  '))
  const nearest = nearestSettings(report)
  const [help, line] = helpfulSetting(report)
  const givenBack = giveBackLines(report.trace)
  const start = [
    headOf(report, width, paint),
    ...outOfMemoryText(report, style),
    ...(givenBack.length === 0 ? [] : [sentences(givenBack, width)]),
  ]
  const impossible = impossibleOf(report)
  if (impossible !== null) return [...start, paint.red(wrapText(`✗ ${impossible}`, width, '  '))].join('\n\n')
  return [
    ...start,
    replayedOn(report, width),
    policyTables(report, style),
    ...roundTables(report, style),
    ...(nearest === null ? [] : [wrapText(nearest, width)]),
    wrapText(legendOf(report), width).split('\n').map(paint.dim).join('\n'),
    [...bullets, ...failuresOf(report, width).map(paint.red)].join('\n'),
    ...(help === undefined ? [] : [wrapText(help, width)]),
    ...(line === undefined ? [] : [paint.bold(line)]),
  ].join('\n\n')
}

/** Of the default policies, without those that a program with PyTorch cannot choose. */
function shownRuns({ runs, trace }: ReplayReport): readonly ReplayRun[] {
  const isDefault =
    runs.length === DEFAULT_POLICIES.length && runs.every(({ policy }, i) => policy === DEFAULT_POLICIES[i])
  if (trace.recorder !== 'PyTorch' || !isDefault) return runs
  return runs.filter(
    ({ policy, failures }) => failures > 0 || (policy !== 'driver-malloc' && policy !== 'power-of-two'),
  )
}

/** The name of the recording, and what it contains. */
export function headOf(report: Pick<ReplayReport, 'trace'>, width: number, paint: Paint): string {
  const { trace } = report
  const streams = trace.streams === 1 ? 'one stream' : `${trace.streams} streams`
  const span = trace.spanSeconds > 0 ? ` in ${formatNs(trace.spanSeconds * 1e9)}` : ''
  const what = `${counted(trace.events, 'event')}${span}, ${counted(trace.allocations, 'allocation')} on ${streams}.`
  const settings = recordedSettings(report)
  const first = settings === null ? what : `${what} ${settings}`
  const lines = [first, ...deviceLines(trace), ...initialLines(trace.initial)]
  return [paint.bold(shown(trace.file)), ...lines.map(line => wrapText(line, width))].join('\n')
}

function replayedOn({ device, lag }: ReplayReport, width: number): string {
  const when = lag === 'never' ? 'only when waited for' : `${lag} events of its stream later`
  const where = device.simulated
    ? `Replayed on the ${device.name}, no GPU was used; the work of each allocation completes ${when}.`
    : `Replayed on ${device.name}.`
  return wrapText(where, width)
}

/** The sentence in place of a table, if the capacity is below what any allocator needs. */
function impossibleOf({ runs, capacityBytes, trace }: ReplayReport): string | null {
  const needed = trace.peakWithFailedBytes
  if (capacityBytes === null || capacityBytes >= needed || runs.every(run => run.failures === 0)) return null
  return `No allocator can do this in ${formatBytes(capacityBytes)}: ${formatBytes(needed)} are needed.`
}

function failuresOf({ runs, trace }: ReplayReport, width: number): string[] {
  return runs.flatMap(({ policy, failures, firstFailure }) => {
    if (failures === 0) return []
    const name = nameOf(policy, trace)
    const count = `${name} failed ${counted(failures, 'request')}`
    if (firstFailure === null) return [`✗ ${count}.`]
    const { event, bytes, stream, message, frames } = firstFailure
    const when = event < 0 ? 'before the first event' : `at event ${formatCount(event)}`
    const first = `The first: ${formatBytes(bytes)} on stream ${stream} ${when}: ${shown(message)}`
    const lines = frames.slice(0, FRAMES_SHOWN).map(frame => `    ${siteText(frame)}`)
    const left = frames.length - lines.length
    return [wrapText(`✗ ${count}. ${first}`, width, '  '), ...lines, ...(left > 0 ? [`    … ${left} more`] : [])]
  })
}
