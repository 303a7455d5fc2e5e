import assert from 'node:assert/strict'
import { test } from 'node:test'
import { BASE, event } from '../pytorch/snapshot.fixture.js'
import { chooseDevices } from './format-options.js'
import { readRecording } from './read-recording.js'

const COUNTS = new Map([
  [0, 7],
  [1, 120],
  [2, 30],
])
const preferred = (failures: ReadonlyMap<number, { count: number; firstUs: number }>) =>
  chooseDevices(COUNTS, 'preferred', failures)[0]

test('the device whose request failed first is preferred, else the one with the most events', () => {
  assert.equal(preferred(new Map()).device, 1)
  assert.equal(preferred(new Map([[0, { count: 1, firstUs: 9 }]])).device, 0)
  const both = new Map([
    [0, { count: 5, firstUs: 9 }],
    [2, { count: 1, firstUs: 8 }],
  ])
  assert.equal(preferred(both).device, 2)
  assert.deepEqual(preferred(both).otherDevices, [
    { device: 0, events: 7, failedRequests: 5 },
    { device: 1, events: 120 },
  ])
  assert.equal(chooseDevices(COUNTS, 1, both)[0].device, 1)
})

test('a snapshot is read on the device that failed first', () => {
  const failed = (time_us: number) => ({ action: 'oom', device_free: 0, size: 1, stream: 0, time_us })
  const busy = [event('alloc', BASE, 8), event('free_requested', BASE, 8), event('free_completed', BASE, 8)]
  const read = (device_traces: unknown, device?: number) =>
    readRecording(Buffer.from(JSON.stringify({ device_traces })), device === undefined ? {} : { device })
  assert.equal(read([[failed(3)], busy]).device, 0)
  assert.equal(read([[failed(3)], busy, [failed(2), failed(9)]]).device, 2)
  assert.deepEqual(read([[failed(3)], busy], 1).otherDevices, [{ device: 0, events: 1, failedRequests: 1 }])
  assert.equal(read([[event('alloc', BASE, 8)], busy]).device, 1)
})

test('a trace of the profiler is read on the device that failed first', () => {
  const memory = (device: number, ts: number, failed = false) => ({
    ph: 'i',
    name: failed ? '[OutOfMemory]' : '[memory]',
    ts,
    args: { 'Device Type': 1, 'Device Id': device, Addr: ts, Bytes: 512, 'Total Reserved': 0 },
  })
  const traceEvents = [memory(0, 1), memory(0, 2), memory(0, 3), memory(1, 4, true)]
  const trace = readRecording(Buffer.from(JSON.stringify({ traceEvents })))
  assert.deepEqual([trace.device, trace.otherDevices], [1, [{ device: 0, events: 3 }]])
})
