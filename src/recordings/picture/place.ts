// The thing at a unit of an address map: a block, a hole between blocks, or no memory.

import type { LiveBlocks } from './live-blocks.js'
import { blockOverlaps, type MemoryRectangle, type PolicyPicture, unitsOf, visitBlock } from './picture.js'

/** A run of units with one thing in it. */
export interface Place {
  readonly at: number
  readonly units: number
  /** -1 for none */
  readonly block: number
  /** memory that no block uses; null for a block, and where the policy has no memory */
  readonly hole: Hole | null
}

/** Unused memory at addresses that follow each other. */
export interface Hole {
  /** the event since which all of it is unused; -1 since before the first */
  readonly since: number
  /** the blocks at its ends; -1 where the memory ends */
  readonly below: number
  readonly above: number
  /** in how many pieces the policy obtained it */
  readonly pieces: number
}

/** The run of units around a unit of a policy's map after an event. */
export function placeAt(live: LiveBlocks, policy: PolicyPicture, event: number, unit: number): Place {
  const { bytes } = live.picture.blocks
  let [low, high, below, above] = [0, unitsOf(policy), -1, -1]
  for (const block of live.at(event)) {
    let own: Place | null = null
    visitBlock(policy, block, bytes[block], (at, units) => {
      if (at <= unit && unit < at + units) own = { at, units, block, hole: null }
      else if (at > unit && at < high) [high, above] = [at, block]
      else if (at + units <= unit && at + units > low) [low, below] = [at + units, block]
    })
    if (own !== null) return own
  }
  const memory = policy.memory.filter(({ from, to }) => from <= event && event < to)
  const joined = joinedAt(policy, memory, unit)
  if (joined === null) {
    for (const { at, units } of memory) {
      if (at > unit) high = Math.min(high, at)
      else low = Math.max(low, at + units)
    }
    return { at: low, units: high - low, block: -1, hole: null }
  }
  if (joined.at > low) [low, below] = [joined.at, -1]
  if (joined.end < high) [high, above] = [joined.end, -1]
  const parts = memory.filter(({ at, units }) => at < high && at + units > low)
  const since = Math.max(lastUse(live, policy, event, low, high), ...parts.map(({ from }) => from))
  return { at: low, units: high - low, block: -1, hole: { since, below, above, pieces: parts.length } }
}

/** The memory around a unit whose addresses follow each other; null where the policy has no memory. */
function joinedAt(
  { ranges }: PolicyPicture,
  memory: readonly MemoryRectangle[],
  unit: number,
): { at: number; end: number } | null {
  const range = ranges.find(({ at, units }) => at <= unit && unit < at + units)
  if (range === undefined) return null
  const own = memory.filter(({ at }) => at >= range.at && at < range.at + range.units).sort((a, b) => a.at - b.at)
  let run: { at: number; end: number } | null = null
  for (const { at, units } of own) {
    if (run !== null && at <= run.end) run.end = Math.max(run.end, at + units)
    else if (run !== null && unit < run.end) break
    else run = { at, end: at + units }
  }
  return run !== null && run.at <= unit && unit < run.end ? run : null
}

/** The last free of a block in units `low` to `high` - 1, up to an event; -1 for none. */
function lastUse(live: LiveBlocks, policy: PolicyPicture, event: number, low: number, high: number): number {
  const { count, bytes, freeRequestedAt } = live.picture.blocks
  let last = -1
  for (let block = 0; block < count; block++) {
    const freed = freeRequestedAt[block]
    if (freed <= last || freed > event) continue
    if (blockOverlaps(policy, block, bytes[block], low, high)) last = freed
  }
  return last
}
