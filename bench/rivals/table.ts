// The figures of all programs for one workload, as a table with ratios to ours.

import { formatBytes } from '../../src/core/base/bytes.js'
import { formatCount, formatNs, formatRatio, MISSING } from '../../src/recordings/report/number-format.js'
import { type Column, PLAIN, tableText } from '../../src/recordings/report/table.js'
import type { Figures, PartFigures } from './figures.js'
import type { ProgramName } from './programs.js'

/** A workload's figures by program. */
export interface WorkloadResult {
  readonly name: string
  /** steps in a part of a mix; null for a recording, where a part is a pass */
  readonly steps: number | null
  /** calls in a pass: allocations and frees */
  readonly calls: number
  readonly passes: number
  readonly peakLiveBytes: number
  readonly programs: readonly ProgramOutcome[]
}

export interface ProgramOutcome {
  readonly name: ProgramName
  /** the median of each figure over the rounds; null if the program failed */
  readonly figures: Figures | null
  /** why it failed */
  readonly reason: string | null
  /** for each round the time of all calls of each part */
  readonly roundsNs: readonly (readonly number[])[]
}

export function workloadText(result: WorkloadResult, width: number): string {
  const { name, steps, calls, passes, peakLiveBytes, programs } = result
  const unit = steps === null ? 'time of all calls of a pass' : 'nanoseconds of a step, a free and an allocation'
  const part = steps === null ? 'pass' : 'third'
  const times = passes > 1 ? `, ${passes} times` : ''
  const size = `${formatCount(calls)} calls${times}, peak ${formatBytes(peakLiveBytes)} live`
  const measured = programs.filter(({ figures }) => figures !== null) as Measured[]
  const ours = measured.find(program => program.name === 'ours')?.figures ?? null
  const failed = programs.flatMap(({ name, reason }) => (reason === null ? [] : [`${name}: ${reason}`]))
  const table =
    measured.length === 0 ? [] : [tableText(measured, columnsOf(result, part, ours), { width, paint: PLAIN })]
  return [`${name}: ${size}; ${unit}`, ...table, ...failed].join('\n')
}

type Measured = ProgramOutcome & { readonly figures: Figures }

function columnsOf({ steps, peakLiveBytes }: WorkloadResult, part: string, ours: Figures | null): Column<Measured>[] {
  const timeOf = (ns: number) => (steps === null ? formatNs(ns) : formatCount(Math.round(ns / steps)))
  const column = (title: string, cell: (figures: Figures) => string): Column<Measured> => ({
    title,
    align: 'right',
    cell: ({ figures }) => cell(figures),
  })
  const timed = (title: string, of: (figures: Figures) => number, format: (ns: number) => string) => [
    column(title, figures => format(of(figures))),
    column('× ours', figures => (ours === null ? MISSING : formatRatio(of(figures) / of(ours)))),
  ]
  const first = ({ parts }: Figures) => parts[0]
  const last = ({ parts }: Figures) => parts.at(-1)!
  const reserved = ({ peakReservedBytes }: PartFigures) =>
    peakReservedBytes === null || peakReservedBytes === 0 ? MISSING : (peakReservedBytes / peakLiveBytes).toFixed(3)
  const second =
    ours === null || ours.parts.length > 2 ? timed(`second\n${part}`, ({ parts }) => parts[1].ns, timeOf) : []
  const several = (ours?.parts.length ?? 2) > 1
  return [
    { title: '', align: 'left', cell: ({ name }) => name },
    ...timed('all\ncalls', figures => figures.ns, formatNs),
    ...timed(`first\n${part}`, figures => first(figures).ns, timeOf),
    ...second,
    ...(several ? timed(`last\n${part}`, figures => last(figures).ns, timeOf) : []),
    column(`longest in\nfirst ${part}`, figures => formatNs(first(figures).longest)),
    ...(['p50', 'p99', 'p999', 'longest'] as const).map(key =>
      column(`${key === 'p999' ? 'p99.9' : key} in\nlast ${part}`, figures => formatNs(last(figures)[key])),
    ),
    column(`peak ÷ live\nfirst ${part}`, figures => reserved(first(figures))),
    column(`peak ÷ live\nlast ${part}`, figures => reserved(last(figures))),
    column(`driver calls\nfirst ${part}`, figures => formatCount(first(figures).driverCalls)),
    column(`driver calls\nlast ${part}`, figures => formatCount(last(figures).driverCalls)),
  ]
}
