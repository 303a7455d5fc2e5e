import assert from 'node:assert/strict'
import { test } from 'node:test'
import { MiB } from '../../../core/base/bytes.js'
import { Action, type Trace } from '../trace.js'
import { TraceBuilder, type TraceOrigin } from '../trace-builder.js'
import { peakWaitingBytes, reservedWithoutWaiting } from './without-waiting.js'

type Call = readonly [action: number, address: number]

/** A recording of these events, whose blocks have 30 MiB each. */
function recorded(calls: readonly Call[], origin: Partial<TraceOrigin> = {}): Trace {
  const builder = new TraceBuilder()
  for (const [i, [action, address]] of calls.entries()) builder.add(action, address * 30 * MiB, 30 * MiB, 0, i)
  return builder.build({ file: 'recorded', ...origin })
}

const { alloc, freeRequested, freeCompleted } = Action
const WAITING: Call[] = [
  [alloc, 1],
  [alloc, 2],
  [freeRequested, 1],
  [freeRequested, 2],
  [alloc, 3],
  [freeCompleted, 1],
  [freeCompleted, 2],
]

test('blocks wait from their free until it has completed, unless nothing comes between', () => {
  assert.equal(peakWaitingBytes(recorded(WAITING)), 60 * MiB)
  assert.equal(peakWaitingBytes(recorded([WAITING[0], WAITING[2], WAITING[5]])), 0)
  assert.equal(peakWaitingBytes(recorded([WAITING[0], WAITING[2]])), 0, 'it does not say when frees complete')
  assert.equal(peakWaitingBytes(recorded([WAITING[0], WAITING[2]], { saysCompleted: true })), 30 * MiB)
  assert.equal(peakWaitingBytes(recorded([[freeCompleted, 1]])), 0, 'it waited before the recording')
})

test('without waiting a free serves the next request, whatever the recording had reserved', () => {
  const reserved = (trace: Trace) => reservedWithoutWaiting(trace, 500 * MiB) / MiB
  assert.equal(reserved(recorded(WAITING)), 470)
  const segments = [{ address: 0, bytes: 300 * MiB, stream: 0, expandable: false }]
  assert.equal(reserved(recorded(WAITING, { final: { segments, blocks: [] } })), 500 - 300 + 60)
})
