// The report of a replay as text: one table of all policies, and a few sentences on the results. Times on the
// simulated device are host times of a simulation, so figures that need a GPU are left out there.

import { formatBytes } from '../base/bytes.js'
import type { Policy, ReplayReport, ReplayRun } from '../trace/replay-result.js'
import { formatCount, formatNs, formatRate, formatRatio, formatShare, MISSING } from './number-format.js'
import { type Column, type Paint, tableText, wrapText } from './table.js'

export interface TextStyle {
  /** columns of the terminal */
  readonly width: number
  readonly paint: Paint
}

const NAMES: Readonly<Record<Policy, string>> = {
  recorded: 'PyTorch as recorded',
  pytorch: "PyTorch's policy",
  'cuda-mempool': 'cuda-mempool',
  'driver-malloc': 'cuMemAlloc each time',
  'driver-pool': "the driver's pool",
  'power-of-two': 'powers of two',
  waiting: 'cuda-mempool, waiting',
}
/** The speed of our own pools counts on any device; the driver's allocators have a real speed on a GPU only. */
const OUR_POOLS: readonly Policy[] = ['cuda-mempool', 'power-of-two', 'waiting']
const DRIVER_POLICIES: readonly Policy[] = ['driver-malloc', 'driver-pool']
const FRAMES_SHOWN = 6

/** The whole report in lines of at most `width` columns. */
export function replayText(report: ReplayReport, { width, paint }: TextStyle): string {
  const columns = columnsOf(report)
  const tone = ({ policy, failures }: ReplayRun) =>
    failures > 0 ? paint.red : policy === 'cuda-mempool' ? paint.green : (line: string) => line
  const bullets = [...meaningOf(report), ...proofsOf(report)].map(line => wrapText(`• ${line}`, width, '  '))
  return [
    headOf(report, width, paint),
    tableText(report.runs, columns, { width, paint, tone }),
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

function columnsOf(report: ReplayReport): Column<ReplayRun>[] {
  const bytes = (value: number | null) => (value === null ? MISSING : formatBytes(value))
  const right = (title: string, cell: (run: ReplayRun) => string): Column<ReplayRun> => ({
    title,
    align: 'right',
    cell,
  })
  const columns = [
    right('peak\nreserved', run => bytes(run.peakReservedBytes)),
    right('× peak\nin use', run => formatRatio(run.overhead)),
    right('frag-\nmented', run => formatShare(run.externalFragmentation)),
    right('failed', run => formatCount(run.policy === 'recorded' ? null : run.failures)),
    right('driver\ncalls', run => formatCount(callsOf(run))),
    right('modelled\ntime', run => formatNs(secondsToNs(run.modelledDeviceSeconds))),
    right('events\na second', run => (speedIsKnown(report, run) ? formatRate(run.eventsPerSecond) : MISSING)),
    right('allocate\nmedian', run => (speedIsKnown(report, run) ? formatNs(run.allocateNs?.p50 ?? null) : MISSING)),
    right('allocate\np99', run => (speedIsKnown(report, run) ? formatNs(run.allocateNs?.p99 ?? null) : MISSING)),
  ]
  const known = columns.filter(({ cell }) => report.runs.some(run => cell(run) !== MISSING))
  return [{ title: 'policy', align: 'left', cell: run => NAMES[run.policy] }, ...known]
}

function legendOf({ device }: ReplayReport): string {
  const memory =
    'reserved: taken from the device. × peak in use: that over the most bytes that the program used at once. ' +
    'fragmented: the share of it that lay idle even when most was in use.'
  if (!device.simulated) return memory
  return `${memory} modelled time: of the driver calls, at costs measured on an H200; other times are this host's.`
}

function meaningOf(report: ReplayReport): string[] {
  const { trace, device } = report
  const recorded = trace.recordedPeakReservedBytes
  const needed = trace.peakRequestedBytes
  const lines = [
    `The program never had more than ${formatBytes(needed)} in use at once: no allocator can do with less.`,
  ]
  if (recorded !== null) {
    lines.push(`PyTorch reserved ${formatBytes(recorded)} for it when it was recorded${more(recorded, needed)}.`)
  }
  const ours = completeRunOf(report, 'cuda-mempool')
  const reserved = ours?.peakReservedBytes ?? null
  if (ours === undefined || reserved === null) return lines
  const compared = recorded === null ? '' : `: ${difference(reserved, recorded)} PyTorch`
  lines.push(`cuda-mempool reserves ${formatBytes(reserved)}${more(reserved, needed)}${compared}.`)
  const malloc = completeRunOf(report, 'driver-malloc')
  if (malloc !== undefined) {
    const calls = `${callsAndTime(malloc)}; cuda-mempool takes ${callsAndTime(ours)}`
    lines.push(`Asking the driver for each block takes ${calls}.`)
  }
  return device.simulated ? lines : [...lines, ...headlinesOf(report, ours)]
}

/** How many times faster than the driver's own allocators; on a GPU only. */
function headlinesOf(report: ReplayReport, ours: ReplayRun): string[] {
  const ourNs = medianPairNs(ours)
  return DRIVER_POLICIES.flatMap(policy => {
    const theirNs = medianPairNs(completeRunOf(report, policy))
    if (ourNs === null || theirNs === null) return []
    const calls = policy === 'driver-malloc' ? 'cuMemAlloc and cuMemFree' : "the driver's stream-ordered pool"
    const medians = `${formatNs(ourNs)} against ${formatNs(theirNs)} for an allocation and its free, medians`
    const clock = `reading the clock takes ${formatNs(ours.allocateNs!.clockNs)} of each call`
    return [`cuda-mempool is ${formatRatio(theirNs / ourNs)} times faster than ${calls}: ${medians} (${clock}).`]
  })
}

function proofsOf(report: ReplayReport): string[] {
  return report.runs.flatMap(({ policy, failures, insertedWaits, placement, verified }) => {
    const lines: string[] = []
    if (insertedWaits !== null && insertedWaits > 0) {
      lines.push(`${NAMES[policy]} made a stream wait for another one's memory ${formatCount(insertedWaits)} times.`)
    }
    if (placement !== null && failures === 0) {
      const { exact, allocations } = placement
      const share = `${formatCount(exact)} of ${formatCount(allocations)} allocations on the recorded address`
      lines.push(`The replay of ${NAMES[policy]} put ${share}.`)
    }
    if (verified !== null) {
      const { blocks, damaged } = verified
      const kept = `${formatCount(blocks)} blocks kept their contents until they were freed`
      const lost = `${formatCount(damaged)} of ${formatCount(blocks)} blocks lost their contents`
      lines.push(`Verified, ${NAMES[policy]}: ${damaged === 0 ? kept : lost}.`)
    }
    return lines
  })
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

/** A policy's run, if it served everything; other figures cannot be compared. */
function completeRunOf(report: ReplayReport, policy: Policy): ReplayRun | undefined {
  return report.runs.find(run => run.policy === policy && run.failures === 0)
}

function speedIsKnown({ device }: ReplayReport, { policy }: ReplayRun): boolean {
  return OUR_POOLS.includes(policy) || (!device.simulated && DRIVER_POLICIES.includes(policy))
}

function callsOf({ deviceCalls }: ReplayRun): number | null {
  return deviceCalls === null ? null : Object.values(deviceCalls).reduce((sum, count) => sum + count, 0)
}

function callsAndTime(run: ReplayRun): string {
  const calls = `${formatCount(callsOf(run))} calls`
  const seconds = run.modelledDeviceSeconds
  return seconds === null ? calls : `${calls} (${formatNs(secondsToNs(seconds))}, modelled)`
}

function medianPairNs(run: ReplayRun | undefined): number | null {
  return run?.allocateNs && run.freeNs ? run.allocateNs.p50 + run.freeNs.p50 : null
}

function secondsToNs(seconds: number | null): number | null {
  return seconds === null ? null : seconds * 1e9
}

function difference(bytes: number, others: number): string {
  if (bytes === others) return 'as much as'
  return `${formatBytes(Math.abs(bytes - others))} ${bytes < others ? 'less' : 'more'} than`
}

function more(bytes: number, needed: number): string {
  if (needed === 0) return ''
  const share = formatShare(bytes / needed - 1)
  return share === formatShare(0) ? ', no more' : `, ${share} more`
}

/** Replaces control characters of a file's text, which could be terminal escapes. */
function printable(text: string): string {
  return text.replace(/\p{Cc}/gu, '?')
}
