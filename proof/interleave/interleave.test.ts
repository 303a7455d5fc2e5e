// The project's thread code under a scheduler that decides at each access to shared memory. A small scenario runs in
// every interleaving with at most one unusual choice (choices.ts), and in some random ones; a large one runs once, at
// random. Each planted bug must be noticed.

import assert from 'node:assert/strict'
import { describe, it, test } from 'node:test'
import { build } from './build.js'
import { EQUIVALENT, MUTANTS } from './mutants.js'
import { describeFailing, namesOf, Play } from './play.js'

/**
 * Unusual choices in a run of a small scenario, where all such runs are tried. The campaign (explore.ts) tries more.
 */
const BOUND = 1
/** Random runs of a small scenario, and of a large one. */
const [RUNS, FEW] = [20, 1]
/** Random runs until a planted bug is noticed; most seeds in mutants.ts show theirs in the first. */
const MOST_RUNS = 2000

const built = await build()
const names = namesOf(built)

for (const arch of ['x64', 'arm64'] as const) {
  describe(`every interleaving holds as ${arch} orders memory`, () => {
    for (const name of names) {
      it(name, () => {
        const play = new Play(built, name, { arch })
        const outcomes = play.isLarge ? [play.byChance(1, FEW)] : [play.every(BOUND)]
        if (!play.isLarge && outcomes[0].runs > 1) outcomes.push(play.byChance(1, RUNS)) // a single run has no choices
        for (const { failing, steps } of outcomes) {
          assert.ok(failing === null, failing === null ? '' : describeFailing(name, { arch }, failing))
          assert.ok(steps > 10, `${steps} steps`)
        }
      })
    }
  })
}

test('what changes no result is not among the planted bugs', () => {
  const planted = MUTANTS.map(({ name }) => name).filter(name => Object.hasOwn(EQUIVALENT, name))
  assert.deepEqual(planted, [])
})

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
