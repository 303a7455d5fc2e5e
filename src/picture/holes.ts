// Memory that a policy has after an event, and no block uses.

import type { LiveBlocks } from './live-blocks.js'
import { type Picture, type PolicyPicture, visitBlock } from './picture.js'

/** Unused memory that touches: squeezed units `at` to `at + units`. */
export interface Hole {
  readonly at: number
  readonly units: number
}

/** The holes after an event by rising address. Neighbouring pieces of memory are one hole. */
export function holesAt({ blocks }: Picture, policy: PolicyPicture, live: LiveBlocks, event: number): Hole[] {
  const { place, memory, ranges } = policy
  if (place === null) return []
  const changes: [at: number, memory: number, used: number][] = []
  for (const { at, units, from, to } of memory) {
    if (from <= event && event < to) changes.push([at, 1, 0], [at + units, -1, 0])
  }
  for (const block of live.at(event)) {
    visitBlock(policy, block, blocks.bytes[block], (at, units) => changes.push([at, 0, 1], [at + units, 0, -1]))
  }
  // Squeezed ranges touch, though their addresses do not.
  for (const { at } of ranges) changes.push([at, 0, 0])
  changes.sort((a, b) => a[0] - b[0])
  const starts = new Set(ranges.map(({ at }) => at))
  const holes: { at: number; units: number }[] = []
  let [has, used, before] = [0, 0, 0]
  for (const [at, memoryChange, usedChange] of changes) {
    if (at > before && has > 0 && used <= 0) {
      const last = holes.at(-1)
      if (last !== undefined && last.at + last.units === before && !starts.has(before)) last.units += at - before
      else holes.push({ at: before, units: at - before })
    }
    before = at
    has += memoryChange
    used += usedChange
  }
  return holes
}
