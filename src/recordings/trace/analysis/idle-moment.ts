// The moment whose idle memory matters: that of the last failed request, or that of the most reserved memory.

import { type MemoryAt, memoryAt } from '../failures/memory-at.js'
import { failedEvents } from '../failures/out-of-memory.js'
import { takenBytes } from '../failures/taken-bytes.js'
import { isGivenBack, isTaken } from '../pytorch/program-releases.js'
import { hasSegments, ReservedSegments } from '../reserved-segments.js'
import { Action, BEFORE, type Trace } from '../trace.js'

/** The memory of a recording at the moment whose idle memory matters. */
export interface IdleMoment {
  /** the last failed request; else the event after which most is reserved, BEFORE if that was before the first event */
  readonly event: number
  readonly isFailure: boolean
  readonly memory: MemoryAt
}

/** Null for a recording without segments. */
export function idleMomentOf(trace: Trace): IdleMoment | null {
  if (!hasSegments(trace)) return null
  const failed = failedEvents(trace).at(-1)
  const event = failed ?? mostReservedAt(trace)
  return { event, isFailure: failed !== undefined, memory: memoryAfter(trace, event) }
}

/** The memory after an event; a failed request changes nothing. */
export function memoryAfter(trace: Trace, event: number): MemoryAt {
  const segments = new ReservedSegments(trace.initialSegments)
  segments.applyEvents(trace, 0, event + 1)
  return memoryAt(trace, event + 1, segments, takenBytes(trace))
}

/** The first event after which most is reserved; or the allocation behind it, which needed the memory. */
function mostReservedAt({ action, bytes, events, initialSegments }: Trace): number {
  let reserved = initialSegments.reduce((sum, segment) => sum + segment.bytes, 0)
  let most = reserved
  let at = BEFORE
  for (let event = 0; event < events; event++) {
    const code = action[event]
    if (isTaken(code)) reserved += bytes[event]
    else if (isGivenBack(code)) reserved = Math.max(0, reserved - bytes[event]) // of a contradictory recording
    if (reserved > most) {
      most = reserved
      at = event
    }
  }
  return at !== BEFORE && action[at + 1] === Action.alloc ? at + 1 : at
}
