// Recordings replayed through the caching pool on a GPU, every block stamped and compared. Fails without a GPU.

import assert from 'node:assert/strict'
import { basename } from 'node:path'
import { after, describe, it } from 'node:test'
import { fileURLToPath } from 'node:url'
import { GpuDevice } from '../../core/pool/gpu-device.fixture.js'
import { readRecording } from './formats/read-recording.js'
import { replay } from './replay.js'
import type { ReplayOptions } from './replay-options.js'
import type { ReplayRun } from './replay-result.js'

// Held until the end, because making a GPU's context anew for each pass takes long.
const held = new GpuDevice()
after(() => held.close())

async function replayed(recording: string, options: ReplayOptions): Promise<ReplayRun> {
  const file = fileURLToPath(new URL(`../../../../traces/${recording}.pickle.gz`, import.meta.url))
  const trace = readRecording(file)
  const { runs, device, lag } = await replay(trace, () => new GpuDevice(), {
    policies: ['cuda-mempool'],
    latency: false,
    ...options,
  })
  assert.deepEqual({ device, lag }, { device: { name: held.name, simulated: false }, lag: null })
  assert.equal(basename(trace.file), `${recording}.pickle.gz`)
  assert.equal(runs.length, 1)
  return runs[0]
}

describe('replay on a GPU', () => {
  for (const recording of ['mlp-train-stacks', 'multistream-random']) {
    it(`${recording}: every block keeps its contents`, async () => {
      const run = await replayed(recording, { verify: true })
      assert.deepEqual([run.failures, run.firstFailure], [0, null])
      assert.ok(run.verified !== null && run.verified.blocks > 100)
      assert.equal(run.verified.damaged, 0)
      assert.ok(run.deviceCalls !== null && run.deviceCalls['cuMemCreate']! > 0)
    })
  }

  it('gpt2-train-varlen: at most 8 % more is reserved than the peak in use', async () => {
    const run = await replayed('gpt2-train-varlen', {})
    assert.deepEqual([run.failures, run.firstFailure], [0, null])
    assert.ok(run.peakReservedBytes !== null && run.peakReservedBytes <= 1.08 * run.peakRequestedBytes)
    assert.equal(run.modelledDeviceSeconds, null, 'a GPU needs no model')
    assert.ok(run.eventsPerSecond! > 0)
  })
})
