// A few kills; kept-kills.storm.test.ts runs many.

import { test } from 'node:test'
import { runKills } from './kept-kills.fixture.js'

const SEED = 3
const KILLS = 10

if (process.platform !== 'linux') test('killed processes', { skip: `need Linux, not ${process.platform}` }, () => {})
else {
  test('processes with regions are killed, and nothing is lost, half, or left behind', async () => {
    await runKills({ kills: KILLS, seed: SEED, isSimulated: true, roundsToDrain: 5 })
  })
}
