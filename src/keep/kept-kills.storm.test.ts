// KEEP_SEED and KEEP_KILLS replay and lengthen. KEEP_DEVICE=gpu runs it on the first GPU.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { runKills } from './kept-kills.fixture.js'

const SEED = Number(process.env['KEEP_SEED'] ?? 1)
const KILLS = Number(process.env['KEEP_KILLS'] ?? 20)
const DEVICE = process.env['KEEP_DEVICE'] ?? 'simulated'

if (process.platform !== 'linux') test('killed processes', { skip: `need Linux, not ${process.platform}` }, () => {})
else {
  test(`processes with regions, killed at random moments (KEEP_SEED=${SEED} KEEP_KILLS=${KILLS})`, async t => {
    const isSimulated = DEVICE === 'simulated'
    const counts = await runKills({ kills: KILLS, seed: SEED, isSimulated, roundsToDrain: 25 })
    t.diagnostic(JSON.stringify({ ...counts, errors: Object.fromEntries(counts.errors) }))
    assert.ok(counts.filled > KILLS / 10 && counts.compared > KILLS / 4, JSON.stringify(counts))
  })
}
