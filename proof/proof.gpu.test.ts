// The programs of the proof on a real GPU, checked by contents, with kernels that spin to keep work pending. Without
// a GPU it fails. PROOF_SEED chooses the programs.

import assert from 'node:assert/strict'
import { after, describe, it } from 'node:test'
import { openDevice } from '../src/index.js'
import { GpuMachine } from './gpu-machine.js'
import { runOnGpu } from './gpu-program.js'

const SEED = Number(process.env['PROOF_SEED'] ?? 1)
const PROGRAMS = 100
const MUTANT_PROGRAMS = 400
const OPERATIONS = 400
const SPIN_NS = 200_000
const MOST_MS = 12_000

const device = openDevice(0)
after(() => device.close())
const machine = new GpuMachine(device, SPIN_NS)

describe(`random programs on a GPU (PROOF_SEED=${SEED})`, () => {
  it(`up to ${PROGRAMS} programs of ${OPERATIONS} operations, as many as ${MOST_MS / 1000} s have room for`, async t => {
    const started = performance.now()
    let programs = 0
    while (programs < PROGRAMS && performance.now() - started < MOST_MS)
      await runOnGpu(machine, SEED + programs++, OPERATIONS)
    t.diagnostic(`${programs} programs in ${((performance.now() - started) / 1000).toFixed(1)} s`)
    assert.ok(programs > 0)
  })

  // Last, since the broken library's leftovers are not cleaned up.
  it(`a library whose frees are not stamped is noticed within ${MUTANT_PROGRAMS} programs`, async () => {
    await assert.rejects(async () => {
      for (let seed = SEED; seed < SEED + MUTANT_PROGRAMS; seed++) {
        await runOnGpu(machine, seed, OPERATIONS, 'a free is stamped')
      }
    }, /words at 0x[0-9a-f]+ were not/)
  })
})
