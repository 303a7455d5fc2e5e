// Where an allocator put the blocks of a trace, and how much memory it had of the device.

import { WrongTypeError } from '../../../core/base/argument-errors.js'
import { describe } from '../../../core/base/bytes.js'
import type { Placements } from '../../trace/placements/placements.js'
import { recordedReserved } from '../../trace/placements/recorded-placements.js'
import { checkReport, type ReplayReport } from '../../trace/replay-result.js'
import { checkTrace, type Trace } from '../../trace/trace.js'

/** An allocator's memory through a trace, for the writers of files. */
export interface PolicyMemory extends Pick<Placements, 'address' | 'reservedBytes'> {
  /** a name for columns and curves, such as `recorded` */
  readonly policy: string
}

/** The memory of the allocator that was recorded. Throws TypeError for anything but a trace. */
export function recordedMemory(trace: Trace): PolicyMemory {
  checkTrace('recordedMemory', trace)
  return { policy: 'recorded', address: trace.blocks.address, reservedBytes: recordedReserved(trace) }
}

/**
 * The memory of each policy of a replay that was made with the option `placements`. Throws TypeError for anything but
 * the report of a replay.
 */
export function replayedMemory(report: ReplayReport): PolicyMemory[] {
  checkReport('replayedMemory: report', report)
  return report.runs.flatMap(({ policy, placements }) =>
    placements === null ? [] : [{ policy, address: placements.address, reservedBytes: placements.reservedBytes }],
  )
}

/** The argument `policies` of `call`; if it is left out, the allocator that was recorded. Throws TypeError. */
export function checkedPolicies(
  call: string,
  trace: Trace,
  policies: readonly PolicyMemory[] = [recordedMemory(trace)],
): readonly PolicyMemory[] {
  if (Array.isArray(policies)) return policies
  throw new WrongTypeError(
    `${call}: policies must be a list, such as of replayedMemory(report), not ${describe(policies)}`,
  )
}
