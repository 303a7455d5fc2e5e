// The least capacity at which a policy serves everything. It is searched by bisection between what any allocator needs
// and what the policy takes without a limit.

import { MiB } from '../../../core/base/bytes.js'

/** Devices give memory in steps of this size, and no less. */
export const LEAST_CAPACITY_BYTES = 2 * MiB
/** The search ends at steps of this share of the result. */
const FINENESS = 1 / 512
const GROWTH = 1.05
const MOST_GROWTHS = 10

/**
 * Searches from `neededBytes`, below which nothing is served, to `peakBytes`. `serves` replays within a capacity. Null
 * if no capacity up to 1.6 times `peakBytes` serves everything.
 */
export async function leastCapacity(
  neededBytes: number,
  peakBytes: number,
  serves: (capacityBytes: number) => Promise<boolean>,
): Promise<number | null> {
  if (peakBytes === 0) return 0 // no device is so small
  const fineness = Math.max(LEAST_CAPACITY_BYTES, wholeSteps(neededBytes * FINENESS))
  let tooLittle = Math.max(0, neededBytes - 1) // no device has 0 bytes
  let enough = Math.max(wholeSteps(peakBytes), wholeSteps(neededBytes))
  for (let growth = 0; !(await serves(enough)); growth++) {
    if (growth === MOST_GROWTHS) return null
    tooLittle = enough
    enough = wholeSteps(enough * GROWTH)
  }
  while (enough - tooLittle > fineness) {
    const middle = Math.min(wholeSteps((enough + tooLittle) / 2), enough - LEAST_CAPACITY_BYTES)
    if (middle <= tooLittle) break
    if (await serves(middle)) enough = middle
    else tooLittle = middle
  }
  return enough
}

function wholeSteps(bytes: number): number {
  return Math.ceil(bytes / LEAST_CAPACITY_BYTES) * LEAST_CAPACITY_BYTES
}
