// Where an allocator put the blocks of a trace, and how much memory it had of the device.

import { Action, type Trace } from '../../trace/trace.js'

/** An allocator's memory through a trace, for the writers of files. */
export interface PolicyMemory {
  /** a name for columns and curves, such as `recorded` */
  readonly policy: string
  /** by block number: its address, NaN for a block that was not served; null for an allocator without addresses */
  readonly address: Float64Array | null
  /** by event: the bytes taken from the device after it; null if unknown */
  readonly reservedBytes: Float64Array | null
}

/** The memory of the allocator that was recorded. */
export function recordedMemory(trace: Trace): PolicyMemory {
  return { policy: 'recorded', address: trace.blocks.address, reservedBytes: recordedReserved(trace) }
}

function recordedReserved({ events, action, bytes, initialSegments, recordedPeakReservedBytes }: Trace) {
  const hasSegments = action.some(code => code >= Action.segmentAlloc && code <= Action.segmentUnmap)
  if (recordedPeakReservedBytes === null || (!hasSegments && initialSegments.length === 0)) return null
  let reserved = initialSegments.reduce((sum, segment) => sum + segment.bytes, 0)
  const curve = new Float64Array(events)
  for (let event = 0; event < events; event++) {
    const code = action[event]
    if (code === Action.segmentAlloc || code === Action.segmentMap) reserved += bytes[event]
    else if (code === Action.segmentFree || code === Action.segmentUnmap) reserved -= bytes[event]
    curve[event] = reserved
  }
  return curve
}
