// The tables of a replay's report, and their legend.

import { formatBytes } from '../../core/base/bytes.js'
import type { ReplayReport, ReplayRound, ReplayRun } from '../trace/replay-result.js'
import {
  countOf,
  DRIVER_POLICIES,
  type Figure,
  isTimed,
  MEMORY_FIGURES,
  shownFigures,
  TIME_FIGURES,
} from './figures.js'
import { formatCount, MISSING } from './number-format.js'
import { nameOf } from './policy-names.js'
import { type Column, type Paint, rightColumn, type TextStyle, tableText } from './table.js'

const right = rightColumn<ReplayRun>

/** All policies in one table, or memory and time in tables of their own if the terminal is too narrow for one. */
export function policyTables(report: ReplayReport, style: TextStyle): string {
  const groups = figuresOf(report).map(figures => figures.map(figure => columnOf(figure, report)))
  // A recording of a pool has no figures of its own.
  const runs = report.runs.filter(run => run.policy !== 'recorded' || run.peakReservedBytes !== null)
  const table = (columns: readonly Column<ReplayRun>[]) =>
    tableText(runs, [nameColumn(report), ...columns], { ...style, tone: toneOf(report, style.paint) })
  const one = table(groups.flat())
  const isOnePage = !one.includes('\n\n')
  if (isOnePage) return one
  return groups
    .filter(columns => columns.length > 0)
    .map(table)
    .join('\n\n')
}

/** The memory and the driver calls of some rounds; empty for one round. */
export function roundTables(report: ReplayReport, style: TextStyle): string[] {
  const runs = report.runs.filter(run => run.rounds !== null && run.rounds.length > 1)
  if (runs.length === 0) return []
  const table = (title: string, cell: (round: ReplayRound) => string) => {
    const columns = shownRounds(report.repeat).map(number =>
      right(`round\n${formatCount(number)}`, run => cell(run.rounds![number - 1])),
    )
    const text = tableText(runs, [nameColumn(report), ...columns], { ...style, tone: toneOf(report, style.paint) })
    return `${style.paint.bold(title)}\n${text}`
  }
  return [
    table('Peak reserved in each round', round => formatBytes(round.peakReservedBytes)),
    table('Memory calls in each round', round => formatCount(countOf(round.deviceCalls))),
  ]
}

/** 1, 2, 4, 8, … and the last round. */
function shownRounds(repeat: number): number[] {
  const numbers: number[] = []
  for (let number = 1; number < repeat; number *= 2) numbers.push(number)
  return [...numbers, repeat]
}

function nameColumn({ trace }: ReplayReport): Column<ReplayRun> {
  return {
    title: 'policy',
    align: 'left',
    cell: ({ policy }) => nameOf(policy, trace),
  }
}

/** Green are the rows that serve the request that failed in the recording; without one, cuda-mempool. */
function toneOf({ trace }: ReplayReport, paint: Paint) {
  return (run: ReplayRun) => {
    const isGood = trace.failedRequests > 0 ? run.servesAtFailure === true : run.policy === 'cuda-mempool'
    return run.failures > 0 ? paint.red : isGood ? paint.green : (line: string) => line
  }
}

/** The meaning of the columns, and of rounds. */
export function legendOf(report: ReplayReport): string {
  const { repeat } = report
  return [
    ...figuresOf(report).flatMap(figures => figures.flatMap(({ meaning }) => meaning?.(report) ?? [])),
    ...(repeat > 1 ? ['round: once through the recording, then all is freed.'] : []),
  ].join(' ')
}

/** The figures on memory, and those on time if calls were timed. */
function figuresOf(report: ReplayReport): Figure[][] {
  return [MEMORY_FIGURES, ...(isTimed(report) ? [TIME_FIGURES] : [])].map(group => shownFigures(group, report))
}

/** Times of the driver's policies mean nothing on the simulated device. */
function columnOf(figure: Figure, { device }: ReplayReport): Column<ReplayRun> {
  const isHidden = ({ policy }: ReplayRun) =>
    device.simulated && TIME_FIGURES.includes(figure) && DRIVER_POLICIES.includes(policy)
  return right(figure.title, run => (isHidden(run) ? MISSING : figure.text(run)))
}
