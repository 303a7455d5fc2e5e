import { NEVER } from '../trace/trace.js'
import { firstAtOrAfter } from './moments.js'
import type { Picture } from './picture.js'

const WITH_STEPS = ['several steps or longer', 'into the next step', 'within one step', 'momentary']
const WITHOUT_STEPS = [
  '1/2 of all events or longer',
  '1/16 of all events or longer',
  '1/256 of all events or longer',
  'shorter',
]
/** Most events in the life of a momentary block. */
const MOMENTARY_EVENTS = 16

/** How long blocks live, in a few classes: weights and state outlive activations and temporaries. */
export function lifetimeNames({ steps }: Picture): readonly string[] {
  return steps.length > 1 ? WITH_STEPS : WITHOUT_STEPS
}

/** The class of a block's lifetime: an index into `lifetimeNames`. */
export function lifetimeOf({ steps, events, blocks }: Picture, block: number): number {
  const from = blocks.allocatedAt[block]
  const freed = blocks.freeRequestedAt[block]
  const to = Math.min(events, freed)
  if (steps.length > 1) {
    const passed = firstAtOrAfter(steps, to) - firstAtOrAfter(steps, from)
    if (freed === NEVER || passed >= 2) return 0
    if (passed === 1) return 1
    return to - from > MOMENTARY_EVENTS ? 2 : 3
  }
  const share = (to - from) / events
  return share >= 1 / 2 ? 0 : share >= 1 / 16 ? 1 : share >= 1 / 256 ? 2 : 3
}
