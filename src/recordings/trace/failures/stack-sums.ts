// Sums of blocks by call stack. A recording may have many blocks, but it has few call stacks.

import { BEFORE, type Trace } from '../trace.js'

/** The sums over the blocks of one call stack. */
export interface StackSum {
  /** as requested */
  bytes: number
  blocks: number
}

/** By number of the stack; BEFORE for blocks from before the recording without a call stack. */
export function stackSums({ blocks }: Trace, numbers: readonly number[]): Map<number, StackSum> {
  const sums = new Map<number, StackSum>()
  for (const number of numbers) {
    const key = blocks.stack[number] || (number < blocks.initial ? BEFORE : 0)
    let sum = sums.get(key)
    if (sum === undefined) {
      sum = { bytes: 0, blocks: 0 }
      sums.set(key, sum)
    }
    sum.bytes += blocks.bytes[number]
    sum.blocks++
  }
  return sums
}
