import { hasSegments } from '../reserved-segments.js'
import { Action, type Trace } from '../trace.js'
import { PlacementCollector, type Placements } from './placements.js'

/** The placements that a recording itself has. */
export function recordedPlacements(trace: Trace): Placements {
  const { action, address, bytes, blocks, initialSegments } = trace
  if (!hasSegments(trace)) return { address: blocks.address, ranges: null, reservedBytes: null }
  const collector = new PlacementCollector(trace)
  let reservedBytes = 0
  for (const segment of initialSegments) {
    collector.mapped(segment.address, segment.bytes)
    reservedBytes += segment.bytes
  }
  for (let event = 0; event < trace.events; event++) {
    if (action[event] === Action.segmentAlloc || action[event] === Action.segmentMap) {
      collector.mapped(address[event], bytes[event])
      reservedBytes += bytes[event]
    } else if (action[event] === Action.segmentFree || action[event] === Action.segmentUnmap) {
      collector.unmapped(address[event], bytes[event])
      reservedBytes = Math.max(0, reservedBytes - bytes[event]) // a contradictory recording frees what it never had
    }
    collector.after(event, reservedBytes)
  }
  return { ...collector.placements(), address: blocks.address }
}
