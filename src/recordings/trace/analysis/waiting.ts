// Memory that the program has freed, and that another stream still uses (`record_stream`). The allocator can hand out
// neither it nor the memory in use, so both together are what the program really needs.

import { BEFORE, type Trace } from '../trace.js'

/** The memory in use and waiting, by event. */
interface WithWaiting {
  /** requested bytes in use and waiting together after each event */
  readonly bytes: Float64Array
  /** the most of it at once */
  readonly peakBytes: number
  /** the first event with this peak after it; BEFORE if that was before the first event */
  readonly peakEvent: number
}

/** Null for a recording that does not say when frees complete. */
export function withWaiting({ blocks, events, saysCompleted }: Trace): WithWaiting | null {
  if (!saysCompleted) return null
  const bytes = new Float64Array(events)
  let held = 0
  for (let number = 0; number < blocks.count; number++) {
    const { allocatedAt, freeCompletedAt } = blocks
    if (allocatedAt[number] === BEFORE) held += blocks.bytes[number]
    else bytes[allocatedAt[number]] += blocks.bytes[number]
    if (freeCompletedAt[number] < events) bytes[freeCompletedAt[number]] -= blocks.bytes[number]
  }
  let peakBytes = held
  let peakEvent = BEFORE
  for (let event = 0; event < events; event++) {
    held += bytes[event]
    bytes[event] = held
    if (held > peakBytes) {
      peakBytes = held
      peakEvent = event
    }
  }
  return { bytes, peakBytes, peakEvent }
}

/** The numbers of the blocks that are freed and still in use after an event. */
export function waitingAfter({ blocks }: Trace, event: number): number[] {
  const waiting: number[] = []
  for (let number = 0; number < blocks.count && blocks.allocatedAt[number] <= event; number++) {
    if (blocks.freeRequestedAt[number] <= event && blocks.freeCompletedAt[number] > event) waiting.push(number)
  }
  return waiting
}
