import assert from 'node:assert/strict'
import { test } from 'node:test'
import { MiB } from '../../../core/base/bytes.js'
import { readRecording } from '../formats/read-recording.js'
import { recordedPlacements } from './recorded-placements.js'

test('memory that is given back twice leaves none, and not less', () => {
  const event = (action: string) => ({ action, addr: 0, size: 2 * MiB, stream: 0 })
  const events = ['segment_alloc', 'segment_free', 'segment_free', 'segment_alloc'].map(event)
  const trace = readRecording(Buffer.from(JSON.stringify({ device_traces: [events], segments: [] })), {
    name: 'twice.json',
  })
  assert.deepEqual([...recordedPlacements(trace).reservedBytes!], [2 * MiB, 0, 0, 2 * MiB])
  assert.equal(trace.recordedPeakReservedBytes, 2 * MiB)
})
