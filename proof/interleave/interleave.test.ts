// The project's thread code under a scheduler that decides at each access to shared memory: small scenarios in all
// interleavings up to a bound, and by chance beyond that; and the same with a bug planted, which must be noticed.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { build } from './build.js'
import { MUTANTS } from './mutants.js'
import { describeFailing, namesOf, Play } from './play.js'
import { isWaiting } from './scenarios.js'

const RUNS = 200
/** Of scenarios with a whole pool. */
const FEW = 4
/** Until a planted bug is noticed; most are within a hundred. */
const MOST_RUNS = 10_000

const built = await build()
const names = namesOf(built)

for (const arch of ['x64', 'arm64'] as const) {
  describe(`whoever goes on when, as ${arch} orders memory`, () => {
    for (const name of names.filter(each => !isWaiting(each, arch))) {
      it(name, () => {
        const play = new Play(built, name, { arch })
        const outcomes = play.isLarge ? [play.byChance(1, FEW)] : [play.every(), play.byChance(1, RUNS)]
        for (const { failing, steps } of outcomes) {
          assert.ok(failing === null, failing === null ? '' : describeFailing(name, { arch }, failing))
          assert.ok(steps > 50, `${steps} steps`)
        }
      })
    }
  })
}

describe('a planted bug is noticed', () => {
  for (const mutant of MUTANTS.filter(({ scenario, arch }) => !isWaiting(scenario, arch ?? 'x64'))) {
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
