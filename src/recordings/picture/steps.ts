// Blocks that steps leave behind: allocated in a step, they are still held two steps later. Weights and state stay
// from the first step; a step that leaves more and more is a leak.

import type { LiveBlocks } from './live-blocks.js'

const LATER_STEPS = 2

/** The blocks that step `step` (from 0) left; null if the recording ends too early. */
export function leftBehind(live: LiveBlocks, step: number): Int32Array | null {
  const { blocks, steps } = live.picture
  if (step + LATER_STEPS >= steps.length) return null
  const start = step === 0 ? -1 : steps[step - 1]
  const end = steps[step]
  const at = live.at(steps[step + LATER_STEPS])
  return at.filter(block => blocks.allocatedAt[block] > start && blocks.allocatedAt[block] <= end)
}

/** The bytes that each step left; the last two steps are missing. */
export function bytesLeftBehind(live: LiveBlocks): number[] {
  const left: number[] = []
  for (let step = 0; ; step++) {
    const list = leftBehind(live, step)
    if (list === null) return left
    left.push(list.reduce((sum, block) => sum + live.picture.blocks.bytes[block], 0))
  }
}
