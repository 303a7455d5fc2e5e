// Where an allocator put the blocks of a trace, and how much memory it had of the device.

import type { Placements } from '../../trace/placements/placements.js'
import { recordedPlacements } from '../../trace/placements/recorded-placements.js'
import type { ReplayReport } from '../../trace/replay-result.js'
import type { Trace } from '../../trace/trace.js'

/** An allocator's memory through a trace, for the writers of files. */
export interface PolicyMemory extends Pick<Placements, 'address' | 'reservedBytes'> {
  /** a name for columns and curves, such as `recorded` */
  readonly policy: string
}

/** The memory of the allocator that was recorded. */
export function recordedMemory(trace: Trace): PolicyMemory {
  const { address, reservedBytes } = recordedPlacements(trace)
  return { policy: 'recorded', address, reservedBytes }
}

/** The memory of each policy of a replay that was made with the option `placements`. */
export function replayedMemory({ runs }: ReplayReport): PolicyMemory[] {
  return runs.flatMap(({ policy, placements }) =>
    placements === null ? [] : [{ policy, address: placements.address, reservedBytes: placements.reservedBytes }],
  )
}
