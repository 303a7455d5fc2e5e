// The report of a replay as text: tables of all policies, and a few sentences on the results. Times on the simulated
// device are host times of a simulation, so figures that need a GPU are left out there.

import { formatBytes } from '../base/bytes.js'
import type { ReplayReport } from '../trace/replay-result.js'
import { formatCount, formatNs } from './number-format.js'
import { meaningOf, printable, proofsOf } from './replay-sentences.js'
import { NAMES, policyTables, roundTables, type TextStyle } from './replay-tables.js'
import { type Paint, wrapText } from './table.js'

const FRAMES_SHOWN = 6

/** The whole report in lines of at most `width` columns. */
export function replayText(report: ReplayReport, style: TextStyle): string {
  const { width, paint } = style
  const bullets = [...meaningOf(report), ...proofsOf(report)].map(line => wrapText(`• ${line}`, width, '  '))
  return [
    headOf(report, width, paint),
    policyTables(report, style),
    ...roundTables(report, style),
    wrapText(legendOf(report), width).split('\n').map(paint.dim).join('\n'),
    [...bullets, ...failuresOf(report, width).map(paint.red)].join('\n'),
  ].join('\n\n')
}

function headOf({ trace, device, lag }: ReplayReport, width: number, paint: Paint): string {
  const streams = trace.streams === 1 ? 'one stream' : `${trace.streams} streams`
  const allocations = `${formatCount(trace.allocations)} allocations`
  const span = trace.spanSeconds > 0 ? ` in ${formatNs(trace.spanSeconds * 1e9)}` : ''
  const what = `${formatCount(trace.events)} events${span}, ${allocations} on ${streams}`
  const when = lag === 'never' ? 'only when waited for' : `${lag} events of its stream later`
  const where = device.simulated
    ? `Replayed on the ${device.name}, no GPU was used; the work of each allocation completes ${when}.`
    : `Replayed on ${device.name}.`
  return [paint.bold(printable(trace.file)), wrapText(what, width), wrapText(where, width)].join('\n')
}

function legendOf({ device, repeat, runs }: ReplayReport): string {
  const memory =
    'reserved: taken from the device. × peak in use: that over the most bytes that the program used at once. ' +
    'fragmented: the share of it that lay idle even when most was in use.'
  const timed = runs.some(run => run.allocateNs !== null) ? ' all calls: their time on this host in one pass.' : ''
  const models = runs.some(run => run.policy.startsWith('pytorch'))
    ? " PyTorch's policy is written anew here and calls no driver."
    : ''
  const costs = " modelled time: of the driver calls, at costs measured on an H200; other times are this host's."
  const rounds = repeat > 1 ? ' round: once through the recording, then all is freed.' : ''
  return `${memory}${rounds}${timed}${models}${device.simulated ? costs : ''}`
}

function failuresOf({ runs }: ReplayReport, width: number): string[] {
  return runs.flatMap(({ policy, failures, firstFailure }) => {
    if (failures === 0) return []
    const name = NAMES[policy]
    const count = `${name} failed ${formatCount(failures)} allocations`
    if (firstFailure === null) return [`✗ ${count}.`]
    const { event, bytes, stream, message, frames } = firstFailure
    const when = event < 0 ? 'before the first event' : `at event ${formatCount(event)}`
    const first = `The first: ${formatBytes(bytes)} on stream ${stream} ${when}: ${printable(message)}`
    const shown = frames.slice(0, FRAMES_SHOWN).map(frame => `    ${printable(frame)}`)
    const left = frames.length - shown.length
    return [wrapText(`✗ ${count}. ${first}`, width, '  '), ...shown, ...(left > 0 ? [`    … ${left} more`] : [])]
  })
}
