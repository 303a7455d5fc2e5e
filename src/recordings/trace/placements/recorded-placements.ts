import { hasSegments } from '../reserved-segments.js'
import { Action, type Trace } from '../trace.js'
import { PlacementCollector, type Placements } from './placements.js'

/** The placements that a recording itself has. */
export function recordedPlacements(trace: Trace): Placements {
  const { action, address, bytes, blocks, initialSegments } = trace
  const curve = recordedReserved(trace)
  if (curve === null) return { address: blocks.address, ranges: null, reservedBytes: null }
  const collector = new PlacementCollector(trace)
  for (const segment of initialSegments) collector.mapped(segment.address, segment.bytes)
  for (let event = 0; event < trace.events; event++) {
    if (action[event] === Action.segmentAlloc || action[event] === Action.segmentMap) {
      collector.mapped(address[event], bytes[event])
    } else if (action[event] === Action.segmentFree || action[event] === Action.segmentUnmap) {
      collector.unmapped(address[event], bytes[event])
    }
    collector.after(event, curve[event])
  }
  return { ...collector.placements(), address: blocks.address }
}

/** By event: bytes taken from the device after it; null if the recording does not tell. */
export function recordedReserved(trace: Trace): Float64Array | null {
  if (!hasSegments(trace)) return null
  const { action, bytes, events, initialSegments } = trace
  const reserved = new Float64Array(events)
  let now = initialSegments.reduce((sum, segment) => sum + segment.bytes, 0)
  for (let event = 0; event < events; event++) {
    if (action[event] === Action.segmentAlloc || action[event] === Action.segmentMap) now += bytes[event]
    else if (action[event] === Action.segmentFree || action[event] === Action.segmentUnmap) {
      now = Math.max(0, now - bytes[event]) // a contradictory recording frees what it never had
    }
    reserved[event] = now
  }
  return reserved
}
