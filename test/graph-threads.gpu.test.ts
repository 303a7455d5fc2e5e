// The programs of graph-threads.fuzz.test.ts on a GPU, with larger buffers: launches of threads never overlap there.
// SEED repeats the steps of each thread.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { openDevice } from '../src/core/device/open.js'
import { runGraphThreads } from './graph-threads.fixture.js'

const STEPS = 200
const SCALE = 16
const FIRST = Number(process.env['SEED'] ?? 1)
const PROGRAMS = process.env['SEED'] === undefined ? 6 : 1

for (let seed = FIRST; seed < FIRST + PROGRAMS; seed++) {
  test(`threads with one group of graphs on a GPU have right results, seed ${seed}`, async () => {
    const taken = await runGraphThreads(openDevice(0), seed, STEPS, SCALE)
    assert.ok(taken.reduce((sum, { launch }) => sum + launch, 0) > 0)
  })
}
