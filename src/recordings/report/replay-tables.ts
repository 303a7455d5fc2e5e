// The tables of a replay's report: memory, time, and the rounds.

import { formatBytes } from '../../core/base/bytes.js'
import type { NamedPolicy, Policy, ReplayReport, ReplayRound, ReplayRun } from '../trace/replay-result.js'
import { formatCount, formatNs, formatRate, formatRatio, formatShare, MISSING } from './number-format.js'
import { type Column, type Paint, rightColumn, tableText } from './table.js'

export interface TextStyle {
  /** columns of the terminal */
  readonly width: number
  readonly paint: Paint
}

/** The allocator of a recording. */
type Recorded = Pick<ReplayReport['trace'], 'recorder' | 'settings'>

const NAMES: Readonly<Record<NamedPolicy, string>> = {
  recorded: 'PyTorch as recorded',
  pytorch: 'PyTorch, default',
  'pytorch-expandable': 'PyTorch, expandable',
  'cuda-mempool': 'cuda-mempool',
  'driver-malloc': 'cuMemAlloc each time',
  'driver-pool': "the driver's pool",
  'power-of-two': 'powers of two',
  waiting: 'cuda-mempool, waiting',
}
/** PyTorch's models keep the settings of a recording but for expandable segments. */
const AS_SET: Partial<Record<Policy, string>> = {
  pytorch: 'PyTorch, as set',
  'pytorch-expandable': 'PyTorch, as set, expandable',
}

/** The name of a policy in tables. */
export function nameOf(policy: Policy, { recorder, settings }: Recorded): string {
  if (policy === 'recorded' && recorder !== 'PyTorch') return 'as recorded'
  if (!policy.startsWith('pytorch:')) return (hasOthers(settings) && AS_SET[policy]) || NAMES[policy as NamedPolicy]
  const named = policy.slice('pytorch:'.length) || 'default'
  return `PyTorch, ${named}${named.includes('cudaMallocAsync') ? ' (estimated)' : ''}`
}

/** Whether the settings of a recording name more than expandable segments. */
export function hasOthers(settings: string | null): boolean {
  return (settings ?? '').split(',').some(part => part !== '' && !part.trim().startsWith('expandable_segments'))
}

/** The driver's allocators have a real speed on a GPU only. */
export const DRIVER_POLICIES: readonly Policy[] = ['driver-malloc', 'driver-pool']

const right = rightColumn<ReplayRun>

/** All policies in one table, or memory and time in tables of their own if the terminal is too narrow for one. */
export function policyTables(report: ReplayReport, style: TextStyle): string {
  const columns = [memoryColumns(report), ...(isTimed(report) ? [timeColumns(report)] : [])]
  const groups = columns.map(group => group.filter(({ cell }) => report.runs.some(run => cell(run) !== MISSING)))
  // A recording of a pool has no figures of its own.
  const runs = report.runs.filter(run => run.policy !== 'recorded' || run.peakReservedBytes !== null)
  const table = (columns: readonly Column<ReplayRun>[]) =>
    tableText(runs, [nameColumn(report), ...columns], { ...style, tone: toneOf(style.paint) })
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
    const text = tableText(runs, [nameColumn(report), ...columns], { ...style, tone: toneOf(style.paint) })
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

function toneOf(paint: Paint) {
  return ({ policy, failures }: ReplayRun) =>
    failures > 0 ? paint.red : policy === 'cuda-mempool' ? paint.green : (line: string) => line
}

/** The first columns are those that a person decides by. */
function memoryColumns({ trace, runs, capacityBytes }: ReplayReport): Column<ReplayRun>[] {
  const bytes = (value: number | null) => (value === null ? MISSING : formatBytes(value))
  const failed = right('failed', run => formatCount(run.policy === 'recorded' ? null : run.failures))
  const ratio = right('× peak\nin use', run => formatRatio(run.overhead))
  const hasAnswer = runs.some(run => run.servesAtFailure !== null)
  return [
    ...(hasAnswer ? [right('would\nserve', answerOf)] : []),
    right('least\nmemory', run => bytes(run.leastCapacityBytes)),
    right('peak\nreserved', run => bytes(run.peakReservedBytes)),
    ...(trace.failedRequests > 0 ? [] : [ratio]),
    right('frag-\nmented', run => formatShare(run.externalFragmentation)),
    ...(capacityBytes !== null || runs.some(run => run.failures > 0) ? [failed] : []),
    right('memory\ncalls', run => formatCount(memoryCallsOf(run))),
    right('modelled\ntime', run => formatNs(secondsToNs(run.modelledDeviceSeconds))),
  ]
}

/** Whether a policy would have served the request that failed last. */
function answerOf({ policy, servesAtFailure, leastCapacityBytes }: ReplayRun): string {
  if (policy === 'recorded') return 'no'
  if (servesAtFailure !== null) return servesAtFailure ? 'yes' : 'no'
  return leastCapacityBytes === null ? MISSING : 'maybe'
}

/** Whether that depends on how much more the program could have than the recording shows. */
export function isUnclear(run: ReplayRun): boolean {
  return answerOf(run) === 'maybe'
}

/** Whether calls were timed. */
export function isTimed({ runs }: ReplayReport): boolean {
  return runs.some(run => run.allocateNs !== null)
}

function timeColumns({ device }: ReplayReport): Column<ReplayRun>[] {
  const time = (title: string, cell: (run: ReplayRun) => string) =>
    right(title, run => (device.simulated && DRIVER_POLICIES.includes(run.policy) ? MISSING : cell(run)))
  return [
    time('events\na second', run => formatRate(run.eventsPerSecond)),
    time('all\ncalls', run => formatNs(hostNs(run))),
    time('allocate\nmedian', run => formatNs(run.allocateNs?.p50 ?? null)),
    time('allocate\np99', run => formatNs(run.allocateNs?.p99 ?? null)),
    time('longest\ncall', run => formatNs(longestNs(run))),
  ]
}

/** The host time of all calls of a pass. */
export function hostNs({ allocateNs, freeNs }: ReplayRun): number | null {
  return allocateNs === null ? null : allocateNs.totalNs + (freeNs?.totalNs ?? 0)
}

function longestNs({ allocateNs, freeNs }: ReplayRun): number | null {
  return allocateNs === null ? null : Math.max(allocateNs.max, freeNs?.max ?? 0)
}

/** Driver calls that take, map or give back memory; models of PyTorch make no other calls. */
export function memoryCallsOf({ deviceCalls }: ReplayRun): number | null {
  return deviceCalls === null ? null : countOf(deviceCalls)
}

const MEMORY_CALL = /^cuMem(Alloc|Free|Create|Release|Map|Unmap|SetAccess|Address|PoolTrim)/

function countOf(calls: Readonly<Record<string, number>>): number {
  return Object.entries(calls).reduce((sum, [name, count]) => sum + (MEMORY_CALL.test(name) ? count : 0), 0)
}

export function secondsToNs(seconds: number | null): number | null {
  return seconds === null ? null : seconds * 1e9
}
