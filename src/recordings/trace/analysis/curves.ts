// Bytes in use and reserved after each event of a recording.

import { recordedReserved } from '../placements/recorded-placements.js'
import { Action, BEFORE, type Trace } from '../trace.js'

/** The memory that a program holds, by event. */
interface InUse {
  /** requested bytes that the program holds after each event */
  readonly inUseBytes: Float64Array
  /** the first event after which most bytes are in use; BEFORE if that was before the first event */
  readonly peakEvent: number
}

/** Totals of a recording, by event. */
export interface Curves extends InUse {
  /** bytes taken from the device after each event; null if the recording does not contain them */
  readonly reservedBytes: Float64Array | null
}

export function curvesOf(trace: Trace): Curves {
  return { ...inUseOf(trace), reservedBytes: recordedReserved(trace) }
}

export function inUseOf({ action, block, blocks, events }: Trace): InUse {
  const inUseBytes = new Float64Array(events)
  let live = 0
  for (let number = 0; number < blocks.initial; number++) {
    if (blocks.freeRequestedAt[number] !== BEFORE) live += blocks.bytes[number]
  }
  let most = live
  let peakEvent = BEFORE
  for (let event = 0; event < events; event++) {
    if (action[event] === Action.alloc) live += blocks.bytes[block[event]]
    else if (action[event] === Action.freeRequested) live -= blocks.bytes[block[event]]
    inUseBytes[event] = live
    if (live > most) {
      most = live
      peakEvent = event
    }
  }
  return { inUseBytes, peakEvent }
}

/** The numbers of the blocks that the program holds after an event; BEFORE is before the first. */
export function liveAfter({ blocks }: Trace, event: number): number[] {
  const live: number[] = []
  for (let number = 0; number < blocks.count && blocks.allocatedAt[number] <= event; number++) {
    if (blocks.freeRequestedAt[number] > event) live.push(number)
  }
  return live
}

/** The numbers of the blocks that the program holds when most bytes are in use. */
export function liveAtPeak(trace: Trace): number[] {
  return liveAfter(trace, inUseOf(trace).peakEvent)
}
