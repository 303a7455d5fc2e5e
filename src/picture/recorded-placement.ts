import { Action, BEFORE, NEVER, type Trace } from '../trace/trace.js'
import type { PlacedMemory, PlacedPolicy } from './policy-picture.js'

/** The recording's own addresses and segments; null for a recording without segments. */
export function recordedPlacement(trace: Trace, label: string): PlacedPolicy | null {
  if (trace.recordedPeakReservedBytes === null) return null
  const closed: PlacedMemory[] = []
  let open: PlacedMemory[] = trace.initialSegments.map(({ address, bytes }) => open_(address, bytes, BEFORE))
  for (let event = 0; event < trace.events; event++) {
    const action = trace.action[event]
    const [address, bytes] = [trace.address[event], trace.bytes[event]]
    if (action === Action.segmentAlloc || action === Action.segmentMap) open.push(open_(address, bytes, event))
    else if (action === Action.segmentFree || action === Action.segmentUnmap) {
      open = open.flatMap(range => without(range, address, address + bytes, event, closed))
    }
  }
  return { policy: 'recorded', label, address: trace.blocks.address, memory: [...closed, ...open] }
}

function open_(address: number, bytes: number, from: number): PlacedMemory {
  return { address, bytes, from, to: NEVER }
}

/** What is left of a range; the rest goes to `closed`. */
function without(range: PlacedMemory, from: number, to: number, event: number, closed: PlacedMemory[]): PlacedMemory[] {
  const end = range.address + range.bytes
  if (to <= range.address || end <= from) return [range]
  const [start, stop] = [Math.max(range.address, from), Math.min(end, to)]
  closed.push({ ...range, address: start, bytes: stop - start, to: event })
  return [
    { ...range, bytes: start - range.address },
    { ...range, address: stop, bytes: end - stop },
  ].filter(({ bytes }) => bytes > 0)
}
