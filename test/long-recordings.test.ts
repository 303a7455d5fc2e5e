// Recordings with very many of one thing. The work of all that reads them grows little faster than their length: with
// work that grows by its square, each of these takes many times as long.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { MiB } from '../src/core/base/bytes.js'
import { printableJson } from '../src/core/base/shown-text.js'
import { policyPicture } from '../src/recordings/picture/policy-picture.js'
import { collapsedStacks } from '../src/recordings/report/export/collapsed.js'
import { perfettoTrace } from '../src/recordings/report/export/perfetto.js'
import { pprofProfile } from '../src/recordings/report/export/pprof.js'
import { traceDifference } from '../src/recordings/trace/analysis/stack-diff.js'
import { failedRequests, recordedOutOfMemories } from '../src/recordings/trace/failures/out-of-memory.js'
import { readRecording } from '../src/recordings/trace/formats/read-recording.js'
import { namedFrames } from '../src/recordings/trace/frames/call-sites.js'
import { replayPytorchPolicy } from '../src/recordings/trace/pytorch/pytorch-replay.js'
import { pickleSnapshot } from '../src/recordings/trace/pytorch/pytorch-snapshot-writer.js'
import { Action, NEVER, type Trace } from '../src/recordings/trace/trace.js'
import { TraceBuilder } from '../src/recordings/trace/trace-builder.js'
import { traceFigures } from '../src/recordings/trace/trace-figures.js'

const COUNT = 16_000
const BASE = 2 ** 40
const PAGE = 20 * MiB
const EXPANDABLE = { expandableSegments: true }

/** All numbers below `count`, in an order without runs. */
const mixed = (count: number) => Array.from({ length: count }, (_, i) => (i * 7919) % count)

function traceOf(fill: (add: (action: number, slot: number, bytes?: number) => number) => void): Trace {
  const builder = new TraceBuilder()
  fill((action, slot, bytes = PAGE) => builder.add(action, BASE + slot * PAGE, bytes, 0, builder.events))
  return builder.build({ file: 'long', final: { segments: [], blocks: [] } })
}

/** Blocks in segments of their own, half of them freed, whose segments go back one by one. */
function segmentsOf(take: number, give: number): Trace {
  return traceOf(add => {
    for (let i = 0; i < COUNT; i++) {
      add(take, 2 * i)
      add(Action.alloc, 2 * i)
    }
    for (const i of mixed(COUNT / 2)) {
      add(Action.freeRequested, 4 * i)
      add(Action.freeCompleted, 4 * i)
      add(give, 4 * i)
    }
  })
}

for (const [kind, take, give, settings] of [
  ['segments', Action.segmentAlloc, Action.segmentFree, {}],
  ['mapped ranges', Action.segmentMap, Action.segmentUnmap, EXPANDABLE],
] as const) {
  test(`many ${kind} are replayed as they are, with other settings, and written`, () => {
    const trace = segmentsOf(take, give)
    const own = replayPytorchPolicy(trace, { settings })
    assert.equal(own.placement?.allocations, COUNT)
    const other = replayPytorchPolicy(trace, { settings: { ...settings, maxSplitBytes: 200 * MiB } })
    assert.equal(other.peakReservedBytes, own.peakReservedBytes)
    assert.equal(readRecording(pickleSnapshot(trace), { name: 'written' }).blocks.count, COUNT)
  })
}

test('failed requests beside many blocks that overlap each look at few of them', () => {
  const trace = traceOf(add => {
    add(Action.segmentAlloc, 0)
    for (const i of mixed(2 * COUNT)) {
      add(Action.alloc, i, 2 ** 52)
      add(Action.freeRequested, i, 2 ** 52)
      add(Action.freeCompleted, i, 2 ** 52)
    }
    add(Action.outOfMemory, 0)
  })
  assert.equal(recordedOutOfMemories(trace).length, 1)
})

test('large blocks below many places that are free again each look for the next block in use', () => {
  const count = 6 * COUNT
  const builder = new TraceBuilder()
  const pass = (address: number, bytes: number) => {
    for (const action of [Action.alloc, Action.freeRequested, Action.freeCompleted]) {
      builder.add(action, address, bytes, 0, builder.events)
    }
  }
  for (let i = 0; i < count; i++) pass(BASE + 2 * MiB + 8 * i, 1)
  for (let i = 0; i < count; i++) pass(BASE, 2 * MiB)
  builder.add(Action.outOfMemory, 0, PAGE, 0, builder.events)
  assert.equal(recordedOutOfMemories(builder.build({ file: 'free places' })).length, 1)
})

test('stacks that repeat a long name for gigabytes are compared, written and printed', () => {
  const builder = new TraceBuilder()
  const { stacks } = builder
  const long = stacks.entry('/home/me/train.py', 1, 'n'.repeat(2e6))
  const stackOf = (line: number) =>
    stacks.number([stacks.entry('a.py', line, `f${line}`), ...new Array(900).fill(long)])
  for (let i = 0; i < 3; i++) builder.add(Action.alloc, BASE + i * PAGE, PAGE, 0, i, stackOf(i))
  for (let i = 0; i < 100; i++) builder.add(Action.outOfMemory, 0, PAGE, 0, 3 + i, stackOf(3))
  const trace = builder.build({ file: 'names' })
  assert.equal(traceDifference(trace, trace).stacks.length, 3)
  assert.ok(printableJson(traceFigures(trace)).length < 3e8)
  assert.ok(pprofProfile(trace).length < 1e6)
  assert.throws(() => collapsedStacks(trace), { name: 'RangeError', message: 'Invalid string length' })
})

test('a name of digits is looked at once for its number', () => {
  const name = `${'1'.repeat(1e6)}x`
  const annotations = [0, 1].map(timeUs => ({ isStart: timeUs === 0, name, timeUs }))
  const builder = new TraceBuilder()
  builder.add(Action.alloc, BASE, PAGE, 0, 0)
  assert.ok([...perfettoTrace(builder.build({ file: 'digits', annotations }))].length > 0)
})

test('a name that begins again and again as one of torch.compile is looked at once', () => {
  const name = 'torch_dynamo_resume_in_'.repeat(40_000)
  const frames = [{ filename: '/home/me/train.py', line: 1, name }]
  assert.deepEqual(
    namedFrames(frames).map(frame => frame.name),
    [name],
  )
})

test('of idle pieces at many failed requests only the largest are kept', () => {
  const trace = traceOf(add => {
    for (let i = 0; i < COUNT; i++) add(Action.segmentAlloc, 2 * i, PAGE + (i % 7) * MiB)
    for (let i = 0; i < 20; i++) add(Action.outOfMemory, i)
  })
  for (const { failed, largestIdle } of failedRequests(trace)) {
    assert.deepEqual([failed.idlePieces, largestIdle.length], [COUNT, 60])
    assert.deepEqual(new Set(largestIdle), new Set([PAGE + 6 * MiB]))
  }
})

test('many segments that a recording gave back and the policy still uses are compared with many new ones', () => {
  const trace = traceOf(add => {
    for (let i = 0; i < COUNT; i++) add(Action.segmentFree, 2 * i)
    for (let i = 0; i < COUNT; i++) add(Action.segmentAlloc, 2 * i, PAGE + MiB)
    for (let i = 0; i < 9; i++) add(Action.alloc, 2 * i)
  })
  assert.equal(replayPytorchPolicy(trace).failures, 0)
})

test('many requests without room, beside much idle memory that does not fit, each look at little of it', () => {
  const trace = traceOf(add => {
    for (let i = 0; i < COUNT; i++) add(Action.alloc, i, MiB)
    for (let i = 0; i < COUNT; i += 2) add(Action.freeRequested, i, MiB)
    for (let i = 0; i < COUNT; i += 2) add(Action.freeCompleted, i, MiB)
    for (let i = 0; i < COUNT; i++) add(Action.alloc, COUNT + i, 2 * PAGE)
  })
  for (const settings of [{}, EXPANDABLE]) {
    const { retries } = replayPytorchPolicy(trace, { settings, capacityBytes: COUNT * MiB + PAGE })
    assert.ok(retries >= COUNT / 2, `${retries}`)
  }
})

test('many private pools that end, and many streams of many pools', () => {
  const builder = new TraceBuilder()
  const add = (action: number, slot: number, stream: number, pool: number) => {
    const event = builder.add(action, BASE + slot * PAGE, PAGE, stream, builder.events)
    builder.notePool(event, builder.pools.number(`0,${pool}`))
  }
  for (let i = 0; i < COUNT; i++) add(Action.segmentAlloc, i, i, i + 1)
  for (let i = 0; i < COUNT; i++) add(Action.alloc, i, i, i + 1)
  for (let i = 0; i < COUNT; i++) {
    add(Action.segmentFree, i, i, i + 1)
    add(Action.snapshot, 0, 0, 0)
  }
  const trace = builder.build({ file: 'pools' })
  assert.equal(replayPytorchPolicy(trace).peakReservedBytes, COUNT * PAGE)
})

test('many failed requests beside many blocks become a trace for Perfetto, and so do slices that overlap', () => {
  const count = COUNT / 4
  const trace = traceOf(add => {
    for (let i = 0; i < count; i++) {
      add(Action.segmentAlloc, 2 * i)
      add(Action.alloc, 2 * i)
      add(Action.outOfMemory, 2 * i)
    }
    for (const i of mixed(count)) add(Action.freeRequested, 2 * i)
    for (let i = 0; i < count; i++) add(Action.alloc, 2 * i)
  })
  const bytes = [...perfettoTrace(trace)].reduce((sum, piece) => sum + piece.length, 0)
  assert.ok(bytes > 4 * count)
})

test('many pieces of memory, and blocks outside of all, have a place in a picture', () => {
  const pieces = mixed(COUNT).flatMap(i => [0, 1].map(view => ({ i, view })))
  const existing = {
    count: pieces.length,
    address: Float64Array.from(pieces, ({ i, view }) => BASE + (2 * i + view) * 2 * MiB),
    bytes: new Float64Array(pieces.length).fill(MiB),
    memory: Float64Array.from(pieces, ({ i }) => i * MiB),
    from: Int32Array.from(pieces, ({ view }) => view),
    to: new Int32Array(pieces.length).fill(NEVER),
  }
  const address = Float64Array.from({ length: COUNT }, (_, i) => i)
  const none = new Int32Array(COUNT)
  const bytes = new Float64Array(COUNT).fill(512)
  const columns = { allocatedAt: none, freeRequestedAt: none, stack: none, stream: none, pool: none, tag: none }
  const blocks = { count: COUNT, initial: 0, bytes, ...columns }
  const placed = { policy: 'own', label: 'own', address, reservedBytes: null }
  const { ranges } = policyPicture({ ...placed, ranges: existing }, blocks, 9)
  assert.equal(ranges.length, COUNT)
  const apart = { ...existing, memory: existing.memory.map((_, i) => i * MiB) }
  const { place } = policyPicture({ ...placed, ranges: apart }, blocks, 9)
  assert.ok(place?.every(each => each === place[0]))
})
