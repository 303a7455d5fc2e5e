import assert from 'node:assert/strict'
import { describe, it, test } from 'node:test'
import { GiB, MiB } from '../src/core/base/bytes.js'
import { FormatError } from '../src/core/base/errors.js'
import { openDevice } from '../src/core/device/open.js'
import type { PoolOptions } from '../src/core/pool/caching/options.js'
import { policy } from '../src/core/pool/policy.js'
import { PLAIN } from '../src/recordings/report/table.js'
import { outOfMemoryText } from '../src/recordings/report/why/out-of-memory-text.js'
import { recordedOutOfMemories } from '../src/recordings/trace/failures/out-of-memory.js'
import { readRecording } from '../src/recordings/trace/formats/read-recording.js'
import { writePickle } from '../src/recordings/trace/pytorch/pickle-writer.js'
import { recorded } from '../src/recordings/trace/recording/recorder.js'
import { replay } from '../src/recordings/trace/replay.js'
import { replayDevices } from '../src/recordings/trace/replay-devices.js'

/** A recording of 40 buffers of 3 MiB, which never lived at once. */
function recording() {
  using device = openDevice('simulated')
  const pool = recorded(device.createPool())
  for (let count = 0; count < 40; count++) pool.allocate(3 * MiB).free()
  return pool.trace('own')
}

async function reserved(pool: PoolOptions, capacityBytes?: number) {
  const trace = recording()
  const options = {
    policies: ['cuda-mempool'] as const,
    pool,
    ...(capacityBytes === undefined ? {} : { capacityBytes }),
  }
  const { runs } = await replay(trace, replayDevices(trace), options)
  return runs[0]
}

describe('replayDevices', () => {
  it('opens simulated devices with room for the recording, or of the size that is asked for', () => {
    const large = { recordedPeakReservedBytes: 100 * GiB, peakWithFailedBytes: 120 * GiB }
    for (const [open, bytes] of [
      [replayDevices(large), 240 * GiB],
      [replayDevices(large, 'simulated', 10 * GiB), 10 * GiB],
    ] as const) {
      using device = open()
      assert.deepEqual([device.simulated, device.totalBytes], [true, bytes])
      using searched = open(2 * GiB)
      assert.equal(searched.totalBytes, 2 * GiB)
    }
    assert.throws(() => replayDevices(large, 'simulated', -1), { name: 'RangeError', message: /capacityBytes/ })
  })

  it('refuses anything but a trace by name', () => {
    const message = /^replayDevices: trace must be a Trace of readRecording or recorded, not /
    for (const wrong of [undefined, null, {}, 'run.pickle']) {
      assert.throws(() => replayDevices(wrong as never), { name: 'TypeError', message })
    }
  })
})

describe('the option pool of replay', () => {
  it('gives the caching pool its options', async () => {
    assert.equal((await reserved({})).peakReservedBytes, policy.stepBytes)
    assert.equal((await reserved({ maxPoolBytes: 8 * MiB })).peakReservedBytes, 4 * MiB)
    assert.equal((await reserved({ initialBytes: 64 * MiB })).peakReservedBytes, 64 * MiB)
    assert.equal((await reserved({ maxPoolBytes: 2 * MiB })).failures, 40)
    assert.equal((await reserved({ maxPoolBytes: 2 * MiB }, 8 * MiB)).failures, 0, 'capacityBytes goes first')
  })

  it('refuses what no replay can use', async () => {
    await assert.rejects(reserved({ shared: true } as object), { name: 'TypeError', message: /pool: .*'shared'/ })
    await assert.rejects(reserved(3 as never), { name: 'TypeError', message: /pool must be options/ })
    await assert.rejects(reserved({ maxPoolByte: 1 } as object), { message: /maxPoolByte/ })
  })
})

test('a failed request beyond 2^53 bytes is read as the most that can be counted', async () => {
  const frames = [{ filename: 'train.py', line: 7, name: 'forward' }]
  const oom = { action: 'oom', device_free: 5 * MiB, size: 2 ** 60, stream: 0, time_us: 2, frames }
  const alloc = { action: 'alloc', addr: 0x7f0400000000, size: MiB, stream: 0, time_us: 1, frames }
  const snapshot = { segments: [], device_traces: [[alloc, oom]] }
  const texts = [writePickle(snapshot), Buffer.from(JSON.stringify(snapshot))]
  for (const bytes of texts) {
    const trace = readRecording(bytes, { name: 'huge' })
    assert.deepEqual([...trace.bytes], [MiB, Number.MAX_SAFE_INTEGER])
    const [failed] = recordedOutOfMemories(trace)
    assert.equal(failed.askedBytes, Number.MAX_SAFE_INTEGER)
    const report = await replay(trace, replayDevices(trace), { policies: ['cuda-mempool'] })
    assert.equal(report.runs[0].failures, 1)
    const [text] = outOfMemoryText(report, { width: 100, paint: PLAIN })
    assert.match(text, /asked +at least 8192 TiB/)
  }
  const bad = { ...snapshot, device_traces: [[{ ...oom, size: 0.5 }]] }
  assert.throws(() => readRecording(Buffer.from(JSON.stringify(bad)), { name: 'bad' }), FormatError)
})
