import type { Placements } from '../trace/placements/placements.js'
import type { PlacedMemory, PlacedPolicy } from './policy-picture.js'

/** The placements of a replay, as a picture takes them. */
export function placedPolicy(policy: string, label: string, placements: Placements): PlacedPolicy {
  const { address, ranges, reservedBytes } = placements
  const memory: PlacedMemory[] = Array.from({ length: ranges?.count ?? 0 }, (_, i) => ({
    address: ranges!.address[i],
    bytes: ranges!.bytes[i],
    memory: ranges!.memory[i],
    from: ranges!.from[i],
    to: ranges!.to[i],
  }))
  return { policy, label, address, memory, ...(reservedBytes === null ? {} : { reservedBytes }) }
}
