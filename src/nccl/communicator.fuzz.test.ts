// Random programs of communicators against a shadow of the contents, on simulated devices.
//
// POOL_FUZZ_SEED and POOL_FUZZ_STEPS replay and lengthen a program; test names contain the seed.

import assert from 'node:assert/strict'
import { after, describe, it } from 'node:test'
import { seedsFrom } from '../core/base/seeds.fixture.js'
import { RandomProgram, STEP_WEIGHTS } from './random-program.fixture.js'

const SEED = Number(process.env['POOL_FUZZ_SEED'] ?? 1)
const USUAL_STEPS = 150
const STEPS = Number(process.env['POOL_FUZZ_STEPS'] ?? USUAL_STEPS)

/** Events in some of the usual programs, besides the steps. */
const THINGS = [
  'compared',
  'compared offsets',
  'shrunk',
  'closedStream',
  'keptAwake',
  'refusedAsleep',
  'unordered',
  'launched',
  'refused',
  'ring',
  'allToAll',
]

describe(`random programs of communicators (POOL_FUZZ_SEED=${SEED} POOL_FUZZ_STEPS=${STEPS})`, () => {
  const taken = new Set<string>()
  for (const { ranks, usual, hasFaults } of [
    { ranks: 1, usual: 8, hasFaults: false },
    { ranks: 2, usual: 6, hasFaults: false },
    { ranks: 3, usual: 3, hasFaults: false },
    { ranks: 1, usual: 8, hasFaults: true },
    { ranks: 2, usual: 6, hasFaults: true },
  ]) {
    for (const seed of seedsFrom(SEED, usual, STEPS / USUAL_STEPS)) {
      it(`${ranks} rank${ranks === 1 ? '' : 's'}${hasFaults ? ' with faults' : ''}, seed ${seed}`, async () => {
        const program = new RandomProgram(seed, ranks, hasFaults)
        await program.run(STEPS)
        for (const thing of program.taken.keys()) taken.add(thing)
      })
    }
  }

  after(() => {
    for (const thing of [...Object.keys(STEP_WEIGHTS), ...THINGS]) assert.ok(taken.has(thing), `${thing} happened`)
  })
})
