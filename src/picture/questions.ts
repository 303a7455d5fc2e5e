// Questions about two markers, and about one block.

import type { LiveBlocks } from './live-blocks.js'
import { blockUnits, NOWHERE, type Picture, type PolicyPicture } from './picture.js'

/** What can be asked of events A and B, with A before B. */
export const QUESTIONS = {
  heldAtA: 'held at A',
  grown: 'new since A, and held at B',
  gone: 'held at A, and freed by B',
  through: 'held at A and at B',
  between: 'born and gone between A and B',
} as const
export type Question = keyof typeof QUESTIONS

/** The blocks that answer a question. */
export function answerOf({ blocks }: Picture, live: LiveBlocks, question: Question, a: number, b: number): Int32Array {
  const { freedAt } = blocks
  switch (question) {
    case 'heldAtA':
      return live.at(a)
    case 'through':
      return live.at(a).filter(block => freedAt[block] > b)
    case 'gone':
      return live.at(a).filter(block => freedAt[block] <= b)
    case 'grown':
      return live.at(b).filter(block => blocks.allocatedAt[block] > a)
    case 'between': {
      const [from, to] = [live.allocatedBy(a), live.allocatedBy(b)]
      const born = Int32Array.from({ length: Math.max(0, to - from) }, (_, i) => from + i)
      return born.filter(block => freedAt[block] <= b)
    }
  }
}

/** The blocks that lay where `block` lies, itself among them, in order of allocation. */
export function historyOf({ blocks }: Picture, { place }: PolicyPicture, block: number): number[] {
  const at = place?.[block] ?? NOWHERE
  if (place === null || at === NOWHERE) return []
  const end = at + blockUnits(blocks.bytes[block])
  const found: number[] = []
  for (let other = 0; other < blocks.count; other++) {
    const start = place[other]
    if (start !== NOWHERE && start < end && start + blockUnits(blocks.bytes[other]) > at) found.push(other)
  }
  return found
}
