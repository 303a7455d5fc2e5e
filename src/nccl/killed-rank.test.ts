import assert from 'node:assert/strict'
import { test } from 'node:test'
import { withKilledRank } from './killed-rank.fixture.js'

test('processes of simulated devices survive a rank that is killed', async () => {
  const [beside, left] = await withKilledRank(3, 0)
  assert.deepEqual(beside, Array(2).fill({ sums: true, kept: true, error: 'ERR_COMMUNICATOR' }))
  assert.deepEqual(left, Array(2).fill({ sums: true, kept: true, error: null }))
})
