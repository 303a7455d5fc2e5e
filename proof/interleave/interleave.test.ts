// The project's thread code under a scheduler that decides at each access to shared memory: a few random interleavings of each
// scenario, and all of those with one unusual choice where a scenario is small. A planted bug must be noticed.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { build } from './build.js'
import { MUTANTS } from './mutants.js'
import { describeFailing, namesOf, Play } from './play.js'

/** Of small scenarios, for each kind of processor. The campaign (explore.ts) does more. */
const RUNS = 40
/** Of scenarios with a whole pool. */
const FEW = 1
/** Until a planted bug is noticed; the seeds in mutants.ts show each within a few. */
const MOST_RUNS = 2000
/** Unusual choices in a run, where all runs are tried. */
const SMALL_BOUND = 1

const built = await build()
const names = namesOf(built)

for (const arch of ['x64', 'arm64'] as const) {
  describe(`every interleaving holds as ${arch} orders memory`, () => {
    for (const name of names) {
      it(name, () => {
        const play = new Play(built, name, { arch })
        const outcomes = play.isLarge ? [play.byChance(1, FEW)] : [play.every(SMALL_BOUND), play.byChance(1, RUNS)]
        for (const { failing, steps } of outcomes) {
          assert.ok(failing === null, failing === null ? '' : describeFailing(name, { arch }, failing))
          assert.ok(steps > 10, `${steps} steps`)
        }
      })
    }
  })
}

describe('a planted bug is noticed', () => {
  for (const mutant of MUTANTS) {
    it(mutant.name, () => {
      const { failing } = new Play(built, mutant.scenario, { arch: mutant.arch ?? 'x64', mutant }).byChance(
        mutant.seed ?? 1,
        MOST_RUNS,
      )
      assert.ok(failing !== null, `not in ${MOST_RUNS} runs of: ${mutant.scenario}`)
    })
  }
})

it('what failed fails again in the same steps', () => {
  const [mutant] = MUTANTS
  const play = new Play(built, mutant.scenario, { arch: 'x64', mutant })
  const { failing } = play.byChance(1, MOST_RUNS)
  const { error, steps } = play.trace(failing!)
  assert.equal(error?.message, failing!.error.message)
  assert.deepEqual(play.trace(failing!).steps, steps)
})
