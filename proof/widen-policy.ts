// Pools of a small device have no room: their growths and pieces are single granules. So half of the programs run with
// steps and pieces of several granules, as pools with room have them.

import { MiB } from '../src/core/base/bytes.js'
import { policy } from '../src/core/pool/policy.js'

const WIDE = { stepBytes: 2 * MiB, stepOfRoom: 1 / 2, slabBytes: 3 * MiB }

/** Changes the policy for the program of a seed; returns how to undo that. */
export function widenPolicy(seed: number): () => void {
  if (seed % 2 === 0) return () => {}
  const before = { ...policy }
  Object.assign(policy, WIDE)
  return () => {
    Object.assign(policy, before)
  }
}
