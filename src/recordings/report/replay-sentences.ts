// The meaning of a replay's figures, in sentences.

import { formatBytes } from '../../core/base/bytes.js'
import type { Policy, ReplayReport, ReplayRun } from '../trace/replay-result.js'
import { DRIVER_POLICIES, hostNs, isTimed, memoryCallsOf, secondsToNs } from './figures.js'
import { formatCount, formatNs, formatRatio, formatShare } from './number-format.js'
import { hasOthers, nameOf } from './policy-names.js'
import { counted, packingOf } from './trace-lines.js'

/** A policy's name as the subject of a sentence. */
const SUBJECTS: Partial<Record<Policy, string>> = {
  pytorch: 'PyTorch with its defaults',
  'pytorch-expandable': 'PyTorch with expandable segments',
  'driver-malloc': 'cuMemAlloc and cuMemFree',
}
const FUNCTIONS_SHOWN = 5
const MODELS_OF_PYTORCH: readonly Policy[] = ['pytorch', 'pytorch-expandable']

export function meaningOf(report: ReplayReport): string[] {
  const { trace } = report
  const recorded = trace.recordedPeakReservedBytes
  const least = report.runs.map(({ leastCapacityBytes }) => leastCapacityBytes)
  const lines = [floorOf(report), ...packingOf(trace.packedBytes, trace.peakWithFailedBytes, least)]
  if (recorded !== null && trace.recorder === 'PyTorch') {
    lines.push(
      `PyTorch reserved ${formatBytes(recorded)} when it was recorded${more(recorded, trace.peakRequestedBytes, 'was in use')}.`,
    )
  }
  const ours = completeRunOf(report, 'cuda-mempool')
  const reserved = ours?.peakReservedBytes ?? null
  if (ours === undefined || reserved === null) return lines
  // A recording with failed requests reserved nothing for them, and the replay did.
  const isComparable = recorded !== null && trace.recorder === 'PyTorch' && trace.failedRequests === 0
  const compared = !isComparable ? '' : `: ${difference(reserved, recorded)} PyTorch`
  const than = trace.failedRequests > 0 ? 'the least possible' : 'was in use'
  const above = more(reserved, trace.peakWithFailedBytes, than)
  lines.push(`cuda-mempool reserves ${formatBytes(reserved)}${above}${compared}.`)
  const malloc = completeRunOf(report, 'driver-malloc')
  if (malloc !== undefined && isTimed(report) && memoryCallsOf(malloc) !== 0) {
    const calls = `${callsAndTime(malloc)}; cuda-mempool takes ${callsAndTime(ours)}`
    lines.push(`Asking the driver for each block takes ${calls}.`)
  }
  const times = report.device.simulated ? modelledOf : measuredOf
  return [...lines, ...roundsOf(report, ours), ...(isTimed(report) ? times(report, ours) : [])]
}

/** The memory below which no allocator can serve the recording. */
function floorOf({ trace }: ReplayReport): string {
  const { peakRequestedBytes, peakWithFailedBytes, failedRequests } = trace
  const served = formatBytes(peakRequestedBytes)
  if (failedRequests === 0) {
    return `The program never had more than ${served} in use at once: no allocator can do with less.`
  }
  const requests = failedRequests === 1 ? 'the request that failed' : 'the requests that failed'
  const all = formatBytes(peakWithFailedBytes)
  return `No allocator can serve this run and ${requests} in less than ${all}. In use at once were at most ${served}.`
}

/** The driver calls of the first and the last round, by function. */
function roundsOf({ repeat }: ReplayReport, { rounds }: ReplayRun): string[] {
  if (rounds === null || rounds.length < 2) return []
  const calls = (round: number) => {
    const counts = Object.entries(rounds[round].deviceCalls).sort(([, a], [, b]) => b - a)
    const shown = counts.slice(0, FUNCTIONS_SHOWN).map(([name, count]) => `${formatCount(count)} ${name}`)
    const left = counts.slice(FUNCTIONS_SHOWN).reduce((sum, [, count]) => sum + count, 0)
    if (left > 0) shown.push(`${formatCount(left)} others`)
    return shown.length === 0 ? 'none' : shown.join(', ')
  }
  return [`Driver calls of cuda-mempool in round 1: ${calls(0)}. In round ${repeat}: ${calls(repeat - 1)}.`]
}

/** The time in the allocator over the run, where driver calls are modelled. */
function modelledOf(report: ReplayReport, ours: ReplayRun): string[] {
  const mine = allocatorTime(ours)
  if (mine === null) return []
  const { hostNs, driverNs } = mine
  const where = hostNs === null ? 'driver calls' : 'the allocator'
  const parts = hostNs === null ? '' : `: ${formatNs(hostNs)} on this host, ${formatNs(driverNs)} in driver calls`
  const theirs = theirsOf(report, MODELS_OF_PYTORCH).flatMap(run => {
    const time = allocatorTime(run)
    if (time === null) return []
    const split = time.hostNs === null ? '' : ` (${formatNs(time.hostNs)} and ${formatNs(time.driverNs)})`
    return [`${subjectOf(report, run)} ${formatNs(time.totalNs)}${split}`]
  })
  const compared = theirs.length === 0 ? '' : ` ${theirs.join(', ')}.`
  return [
    `cuda-mempool spends ${formatNs(mine.totalNs)} in ${where} over ${spanOf(report)}${parts} (modelled).${compared}`,
  ]
}

function allocatorTime(run: ReplayRun): { totalNs: number; hostNs: number | null; driverNs: number } | null {
  const driverNs = secondsToNs(run.modelledDeviceSeconds)
  const host = hostNs(run)
  return driverNs === null ? null : { totalNs: driverNs + (host ?? 0), hostNs: host, driverNs }
}

/** The time in the allocator over the run, beside the driver's own allocators; then medians. */
function measuredOf(report: ReplayReport, ours: ReplayRun): string[] {
  const ourNs = hostNs(ours)
  if (ourNs === null) return []
  const theirs = theirsOf(report, DRIVER_POLICIES).filter(run => hostNs(run) !== null)
  if (theirs.length === 0) return []
  const totals = theirs.map(run => {
    const theirNs = hostNs(run)!
    return `${subjectOf(report, run)} ${formatNs(theirNs)}, ${formatRatio(theirNs / ourNs)} times as long`
  })
  const medians = theirs.map(run => `${subjectOf(report, run)} ${formatNs(medianPairNs(run))}`)
  const clock = `reading the clock takes ${formatNs(ours.allocateNs!.clockNs)} of each call`
  return [
    `cuda-mempool spends ${formatNs(ourNs)} in the allocator over ${spanOf(report)}; ${totals.join('; ')}.`,
    `Median of an allocation and its free: cuda-mempool ${formatNs(medianPairNs(ours))}, ${medians.join(', ')} (${clock}).`,
  ]
}

function theirsOf(report: ReplayReport, policies: readonly Policy[]): ReplayRun[] {
  return policies.flatMap(policy => completeRunOf(report, policy) ?? [])
}

function subjectOf({ trace }: ReplayReport, { policy }: ReplayRun): string {
  return (hasOthers(trace.settings) ? undefined : SUBJECTS[policy]) ?? nameOf(policy, trace)
}

function spanOf({ repeat }: ReplayReport): string {
  return repeat === 1 ? 'the run' : `${formatCount(repeat)} rounds`
}

export function proofsOf(report: ReplayReport): string[] {
  const { runs, trace } = report
  return runs.flatMap(({ policy, failures, insertedWaits, placement, verified }) => {
    const lines: string[] = []
    if (insertedWaits !== null && insertedWaits > 0) {
      lines.push(
        `${nameOf(policy, trace)} made a stream wait for another one's memory ${counted(insertedWaits, 'time')}.`,
      )
    }
    if (placement !== null && failures === 0) {
      const { exact, allocations } = placement
      const share = `${formatCount(exact)} of ${formatCount(allocations)} allocations on the recorded address`
      lines.push(`The replay of ${nameOf(policy, trace)} put ${share}.`)
    }
    if (verified !== null) {
      const { blocks, damaged } = verified
      const kept = `${formatCount(blocks)} blocks kept their contents until they were freed`
      const lost = `${formatCount(damaged)} of ${formatCount(blocks)} blocks lost their contents`
      lines.push(`Verified, ${nameOf(policy, trace)}: ${damaged === 0 ? kept : lost}.`)
    }
    return lines
  })
}

/** A policy's run, if it served everything; other figures cannot be compared. */
function completeRunOf(report: ReplayReport, policy: Policy): ReplayRun | undefined {
  return report.runs.find(run => run.policy === policy && run.failures === 0)
}

function callsAndTime(run: ReplayRun): string {
  const calls = `${formatCount(memoryCallsOf(run))} calls`
  const seconds = run.modelledDeviceSeconds
  return seconds === null ? calls : `${calls} (${formatNs(secondsToNs(seconds))}, modelled)`
}

function medianPairNs(run: ReplayRun | undefined): number | null {
  return run?.allocateNs && run.freeNs ? run.allocateNs.p50 + run.freeNs.p50 : null
}

function difference(bytes: number, others: number): string {
  if (bytes === others) return 'as much as'
  return `${formatBytes(Math.abs(bytes - others))} ${bytes < others ? 'less' : 'more'} than`
}

function more(bytes: number, needed: number, than: string): string {
  if (needed === 0) return ''
  const share = formatShare(bytes / needed - 1)
  return share === formatShare(0) ? `, as much as ${than}` : `, ${share} more than ${than}`
}
