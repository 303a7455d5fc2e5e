// The figures of a replay as people read them: the columns of its table and of its page, what they mean, and the
// numbers that conditions take. A new figure is a row here, and a field of `ReplayRun` with its computation.

import { formatBytes } from '../../core/base/bytes.js'
import type { Policy, ReplayReport, ReplayRun } from '../trace/replay-result.js'
import { formatCount, formatNs, formatRate, formatRatio, formatShare, MISSING } from './number-format.js'

/** A figure with a column, which is left out if no run has the figure. */
export interface Figure {
  /** of one or two lines */
  readonly title: string
  readonly text: (run: ReplayRun) => string
  /** whether a report has it; default: always */
  readonly isShown?: (report: ReplayReport) => boolean
  /** its line in the legend; left out, the title says it */
  readonly meaning?: (report: ReplayReport) => string
  /** its column on a page, whose title has a tip; left out, the page does not have it */
  readonly page?: { readonly title: string; readonly tip: string }
}

/** The meaning of `maybe`. */
export const MAYBE = 'maybe: that depends on the exact limit.'

/** Memory and the driver; the first figures are those that a person decides by. */
export const MEMORY_FIGURES: readonly Figure[] = [
  {
    title: 'would\nserve',
    text: answerOf,
    isShown: ({ runs, trace }) =>
      trace.failedRequests > 0 && runs.some(run => run.servesAtFailure !== null || run.leastCapacityBytes !== null),
    meaning: ({ runs }) =>
      'would serve: the request that failed last, in the memory that the program could have then.' +
      (runs.some(isUnclear) ? ` ${MAYBE}` : ''),
  },
  {
    title: 'least\nmemory',
    text: run => bytesText(run.leastCapacityBytes),
    meaning: ({ trace }) =>
      'least memory: the least in which a replay served everything' +
      `${trace.failedRequests > 0 ? ', the requests that failed too' : ''}.`,
    page: { title: 'fits in', tip: 'the least memory in which a replay serves everything, to 0.2 % or 2 MiB' },
  },
  {
    title: 'peak\nreserved',
    text: run => bytesText(run.peakReservedBytes),
    meaning: ({ capacityBytes }) =>
      `peak reserved: the most taken from the device${capacityBytes === null ? ', without a limit' : ''}.`,
    page: { title: 'most reserved', tip: 'the most taken from a device with room' },
  },
  {
    title: '× peak\nin use',
    text: run => formatRatio(run.overhead),
    isShown: ({ trace }) => trace.failedRequests === 0,
    page: { title: '× in use', tip: 'most reserved over the most in use at once' },
  },
  {
    title: 'frag-\nmented',
    text: run => formatShare(run.externalFragmentation),
    meaning: () => 'fragmented: its share that was never in use.',
  },
  {
    title: 'failed',
    text: run => formatCount(run.policy === 'recorded' ? null : run.failures),
    page: { title: 'failed', tip: 'the requests that the policy could not serve' },
    isShown: ({ runs, capacityBytes }) => capacityBytes !== null || runs.some(run => run.failures > 0),
  },
  {
    title: 'memory\ncalls',
    text: run => formatCount(memoryCallsOf(run)),
    isShown: makesCalls,
  },
  {
    title: 'modelled\ntime',
    text: run => formatNs(secondsToNs(run.modelledDeviceSeconds)),
    isShown: makesCalls,
    meaning: () =>
      'memory calls: of the driver, to take, map or give back memory; modelled time: of all its calls, as on an H200.',
  },
]

/** Host times. */
export const TIME_FIGURES: readonly Figure[] = [
  { title: 'events\na second', text: run => formatRate(run.eventsPerSecond) },
  {
    title: 'all\ncalls',
    text: run => formatNs(hostNs(run)),
    meaning: () =>
      'all calls: their time on this host in one pass, the median of several. longest call: of all passes.',
  },
  { title: 'allocate\nmedian', text: run => formatNs(run.allocateNs?.p50 ?? null) },
  { title: 'allocate\np99', text: run => formatNs(run.allocateNs?.p99 ?? null) },
  { title: 'longest\ncall', text: run => formatNs(longestNs(run)) },
]

/** The fields of a run that are numbers, for conditions. */
export const RUN_NUMBERS = [
  'overhead',
  'peakReservedBytes',
  'peakRequestedBytes',
  'peakGrantedBytes',
  'leastCapacityBytes',
  'externalFragmentation',
  'fragmentationAtPeak',
  'fragmentationMean',
  'contiguity',
  'failures',
  'insertedWaits',
  'modelledDeviceSeconds',
] as const satisfies readonly (keyof ReplayRun)[]

/** The fields of a report's `trace` that are numbers. */
export const TRACE_NUMBERS = [
  'events',
  'allocations',
  'streams',
  'spanSeconds',
  'peakRequestedBytes',
  'peakWithFailedBytes',
  'recordedPeakReservedBytes',
  'failedRequests',
] as const satisfies readonly (keyof ReplayReport['trace'])[]

/** The figures of a group that a table of a report has, and its runs. */
export function shownFigures(figures: readonly Figure[], report: ReplayReport): Figure[] {
  return figures.filter(
    ({ text, isShown }) => (isShown?.(report) ?? true) && report.runs.some(run => text(run) !== MISSING),
  )
}

/** The driver's allocators have a real speed on a GPU only. */
export const DRIVER_POLICIES: readonly Policy[] = ['driver-malloc', 'driver-pool']

function bytesText(bytes: number | null): string {
  return bytes === null ? MISSING : formatBytes(bytes)
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

/** The host time of all calls of a pass. */
export function hostNs({ allocateNs, freeNs }: ReplayRun): number | null {
  return allocateNs === null ? null : allocateNs.totalNs + (freeNs?.totalNs ?? 0)
}

function longestNs({ allocateNs, freeNs }: ReplayRun): number | null {
  return allocateNs === null ? null : Math.max(allocateNs.max, freeNs?.max ?? 0)
}

/** A recording without events needs none. */
function makesCalls({ runs }: ReplayReport): boolean {
  return runs.some(run => (memoryCallsOf(run) ?? 0) > 0)
}

/** Driver calls that take, map or give back memory; models of PyTorch make no other calls. */
export function memoryCallsOf({ deviceCalls }: ReplayRun): number | null {
  return deviceCalls === null ? null : countOf(deviceCalls)
}

const MEMORY_CALL = /^cuMem(Alloc|Free|Create|Release|Map|Unmap|SetAccess|Address|PoolTrim)/

/** Of some calls those for memory. */
export function countOf(calls: Readonly<Record<string, number>>): number {
  return Object.entries(calls).reduce((sum, [name, count]) => sum + (MEMORY_CALL.test(name) ? count : 0), 0)
}

export function secondsToNs(seconds: number | null): number | null {
  return seconds === null ? null : seconds * 1e9
}
