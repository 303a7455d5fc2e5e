// Questions about two markers, and about one block.

import { Action } from '../trace/trace.js'
import type { LiveBlocks } from './live-blocks.js'
import { blockOverlaps, type Picture, type PolicyPicture, runsOf } from './picture.js'

/** The questions about events A and B, with A before B. */
export const QUESTIONS = {
  heldAtA: 'held at A',
  grown: 'new since A, and held at B',
  gone: 'held at A, and freed by B',
  through: 'held at A and at B',
  between: 'born and gone between A and B',
  allocated: 'allocated between A and B',
  freed: 'freed between A and B',
} as const
export type Question = keyof typeof QUESTIONS

/** The blocks that answer a question. */
export function answerOf(live: LiveBlocks, question: Question, a: number, b: number): Int32Array {
  const { allocatedAt, freeRequestedAt } = live.picture.blocks
  switch (question) {
    case 'heldAtA':
      return live.at(a)
    case 'through':
      return live.at(a).filter(block => freeRequestedAt[block] > b)
    case 'gone':
      return live.at(a).filter(block => freeRequestedAt[block] <= b)
    case 'grown':
      return live.at(b).filter(block => allocatedAt[block] > a)
    case 'between':
      return allocatedIn(live, a, b).filter(block => freeRequestedAt[block] <= b)
    case 'allocated':
      return allocatedIn(live, a, b)
    case 'freed': {
      const { block, action } = live.picture
      return block.subarray(a + 1, b + 1).filter((_, i) => action[a + 1 + i] === Action.freeRequested)
    }
  }
}

/** The blocks of the allocations after `a`, up to that of event `b`. */
function allocatedIn(live: LiveBlocks, a: number, b: number): Int32Array {
  const [from, to] = [live.allocatedBy(a), live.allocatedBy(b)]
  return Int32Array.from({ length: Math.max(0, to - from) }, (_, i) => from + i)
}

/** The blocks that held the address of `block`, which is its first unit: itself among them, in order of allocation. */
export function historyOf({ blocks }: Picture, policy: PolicyPicture, block: number): number[] {
  const found: number[] = []
  const [unit] = runsOf(policy, block, blocks.bytes[block])
  if (unit === undefined) return found
  for (let other = 0; other < blocks.count; other++) {
    if (blockOverlaps(policy, other, blocks.bytes[other], unit, unit + 1)) found.push(other)
  }
  return found
}
