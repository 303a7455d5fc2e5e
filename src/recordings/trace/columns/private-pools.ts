// The private pool of each block and segment. Older versions of PyTorch name it only for the segments at the end of a
// recording.

import { firstIndex } from '../../../core/base/binary-search.js'
import { Action } from '../trace.js'
import type { EventColumns } from './event-columns.js'

interface PoolSegment {
  readonly address: number
  readonly bytes: number
  readonly pool?: number
}

interface PlacedBlocks {
  readonly count: number
  readonly address: Float64Array
  readonly allocatedAt: Int32Array
  readonly pool: Uint32Array
}

/**
 * Gives blocks of the default pool the private pool of the segment that they lie in at the end, and the event that
 * obtained such a segment.
 */
export function placeInPools(blocks: PlacedBlocks, events: EventColumns, segments: readonly PoolSegment[]): void {
  const own = segments.filter(({ pool = 0 }) => pool > 0).sort((a, b) => a.address - b.address)
  if (own.length === 0) return
  /** by address of a segment: the event that obtained it last */
  const since = new Map(own.map(({ address }) => [address, Number.NEGATIVE_INFINITY]))
  for (let event = 0; event < events.events; event++) {
    const address = events.address[event]
    if (events.action[event] === Action.segmentAlloc && since.has(address)) since.set(address, event)
  }
  for (const { address, pool } of own) {
    const event = since.get(address)!
    if (event >= 0) events.notePool(event, pool!)
  }
  for (let number = 0; number < blocks.count; number++) {
    const address = blocks.address[number]
    const segment = own[firstIndex(own.length, i => own[i].address > address) - 1]
    if (segment === undefined || address >= segment.address + segment.bytes) continue
    if (blocks.allocatedAt[number] >= since.get(segment.address)!) blocks.pool[number] ||= segment.pool!
  }
}
