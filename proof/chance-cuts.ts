// V8 itself cuts these calls short at random points: by a script's timeout, or by a full stack.

import assert from 'node:assert/strict'
import { Script } from 'node:vm'
import type { Random } from '../src/core/base/random.js'
import type { CUTS } from './cut-points.js'

/** Levels on which a call is made on the way back from a full stack, at first without room for it. */
const LEVELS = 50

/** Repeats `step` until it is cut short. */
export const CUT_BY_CHANCE: Readonly<Record<(typeof CUTS)[number], (step: () => void, random: Random) => void>> = {
  'a stopped script': (step, random) => {
    const repeat = () => {
      for (;;) step()
    }
    Object.assign(globalThis, { repeatUntilCut: repeat })
    const script = new Script('repeatUntilCut()')
    const stopped = { code: 'ERR_SCRIPT_EXECUTION_TIMEOUT' }
    assert.throws(() => script.runInThisContext({ timeout: 2 + random.below(5) }), stopped)
  },
  'a full stack': (step, random) => assert.throws(() => overflow(step, random), RangeError),
}

/** Fills the stack, and makes the step on some levels of the way back. */
function overflow(step: () => void, random: Random): void {
  try {
    overflow(step, random)
  } catch (error) {
    if (!(error instanceof RangeError) || random.below(LEVELS) === 0) throw error
    step()
    throw error
  }
}
