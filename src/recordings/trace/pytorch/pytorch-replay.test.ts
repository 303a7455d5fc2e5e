import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { gunzipSync } from 'node:zlib'
import { MiB } from '../../../core/base/bytes.js'
import { readRecording } from '../formats/read-recording.js'
import { Action, type ActionCode, framesOf, frameText } from '../trace.js'
import { type FinalState, TraceBuilder } from '../trace-builder.js'
import { readPickle } from './pickle.js'
import { writePickle } from './pickle-writer.js'
import { replayPytorchPolicy } from './pytorch-replay.js'

const path = (name: string) => fileURLToPath(new URL(`../../../../../traces/${name}.pickle.gz`, import.meta.url))
const recording = (name: string) => readRecording(path(name))

const EXPANDABLE = { expandableSegments: true }

// Every allocation must get PyTorch's own address; the granted peak is then PyTorch's reported peak of
// allocated_bytes.
const RECORDINGS = [
  { name: 'gpt2-train-varlen', allocations: 22_868, grantedMiB: 4897, cuMemAlloc: 44, cuMemFree: 0 },
  { name: 'resnet50-train-varbatch', allocations: 10_656, grantedMiB: 9349, cuMemAlloc: 161, cuMemFree: 0 },
  { name: 'multistream-random', allocations: 6000, grantedMiB: 706, cuMemAlloc: 79, cuMemFree: 0 },
  { name: 'oom-retry-2gib', allocations: 1983, grantedMiB: 1978, cuMemAlloc: 62, cuMemFree: 39 },
  { name: 'mlp-train-stacks', allocations: 261, grantedMiB: 187, cuMemAlloc: 11, cuMemFree: 0 },
]

for (const { name, allocations, grantedMiB, cuMemAlloc, cuMemFree } of RECORDINGS) {
  test(`the policy puts every block of ${name} at PyTorch's address`, () => {
    const trace = recording(name)
    const result = replayPytorchPolicy(trace)
    assert.deepEqual(result.placement, { allocations, exact: allocations })
    assert.deepEqual(result.deviceCalls, { cuMemAlloc, cuMemFree })
    assert.equal(result.peakRequestedBytes, trace.peakRequestedBytes)
    assert.equal(result.peakReservedBytes, trace.recordedPeakReservedBytes)
    assert.equal(Math.round(result.peakGrantedBytes / MiB), grantedMiB)
    assert.deepEqual([result.failures, result.firstFailure], [0, null])
  })
}

test("the policy with expandable segments puts every block of gpt2-expandable at PyTorch's address", () => {
  const trace = recording('gpt2-expandable')
  const result = replayPytorchPolicy(trace, { settings: EXPANDABLE })
  assert.deepEqual(result.placement, { allocations: 22_868, exact: 22_868 })
  assert.equal(result.peakReservedBytes, trace.recordedPeakReservedBytes)
  assert.deepEqual(result.deviceCalls, {
    cuMemAddressReserve: 2,
    cuMemCreate: 296,
    cuMemMap: 296,
    cuMemSetAccess: trace.action.reduce((sum, action) => sum + (action === Action.segmentMap ? 1 : 0), 0),
    cuMemUnmap: 0,
    cuMemRelease: 0,
    cuMemAddressFree: 0,
  })
})

test('a policy ignores recorded segments of the other kind, and then reports no placement', () => {
  const plain = recording('gpt2-train-varlen')
  const expandable = recording('gpt2-expandable')
  for (const settings of [{}, EXPANDABLE]) {
    const isExpandable = 'expandableSegments' in settings
    const own = replayPytorchPolicy(isExpandable ? expandable : plain, { settings })
    const other = replayPytorchPolicy(isExpandable ? plain : expandable, { settings })
    assert.deepEqual(other, { ...own, placement: null, reservedAlike: null, seconds: other.seconds })
  }
})

test('a recorded release of a segment of the other kind makes the policy release all free memory', () => {
  const base = 2 ** 40
  const trace = build([
    [Action.alloc, base, 3 * MiB],
    [Action.freeRequested, base, 3 * MiB],
    [Action.freeCompleted, base, 3 * MiB],
    [Action.segmentFree, base, 20 * MiB],
    [Action.segmentFree, 2 * base, 20 * MiB],
    [Action.alloc, base, 3 * MiB],
  ])
  const { deviceCalls, peakReservedBytes } = replayPytorchPolicy(trace, { settings: EXPANDABLE })
  assert.equal(peakReservedBytes, 20 * MiB)
  assert.deepEqual([deviceCalls['cuMemMap'], deviceCalls['cuMemUnmap'], deviceCalls['cuMemAddressFree']], [2, 1, 1])
})

// Of the memory from before only addresses and requested bytes are known. Blocks of the later cuts were freed before
// any event showed their size; it follows from requests that were not served behind them.
for (const [name, shares] of [
  ['gpt2-train-varlen', [0.175, 0.575]],
  ['resnet50-train-varbatch', [0.275, 0.725]],
  ['multistream-random', [0.005, 0.265, 0.575, 0.655]],
  ['oom-retry-2gib', [0.125, 0.345, 0.485, 0.595]],
  ['gpt2-expandable', [0.275, 0.725]],
] as const) {
  test(`every block has PyTorch's address in the rest of ${name}, wherever it begins`, () => {
    const root = readPickle(gunzipSync(readFileSync(path(name)))) as { device_traces: unknown[][] }
    for (const share of shares) {
      const events = root.device_traces[0]
      const rest = writePickle({ ...root, device_traces: [events.slice(Math.floor(share * events.length))] })
      const settings = name === 'gpt2-expandable' ? EXPANDABLE : {}
      const { placement } = replayPytorchPolicy(readRecording(rest, { name }), { settings })
      assert.equal(placement?.exact, placement?.allocations, `from ${share}`)
    }
  })
}

test('a trace without segments uses segments of its own', () => {
  const result = replayPytorchPolicy(
    build([
      [Action.alloc, 1, 100],
      [Action.alloc, 2, 3 * MiB],
    ]),
  )
  assert.equal(result.placement, null)
  assert.equal(result.peakReservedBytes, 22 * MiB)
  assert.deepEqual(result.deviceCalls, { cuMemAlloc: 2, cuMemFree: 0 })
})

test('with a capacity, failures are counted, and the first is described', () => {
  const trace = recording('mlp-train-stacks')
  const result = replayPytorchPolicy(trace, { capacityBytes: 150 * MiB })
  assert(result.peakReservedBytes <= 150 * MiB)
  assert(result.peakRequestedBytes < trace.peakRequestedBytes)
  assert(result.failures > 0)
  const failure = result.firstFailure!
  assert.equal(trace.action[failure.event], Action.alloc)
  assert.equal(failure.bytes, trace.bytes[failure.event])
  const isMachinery = (frame: string) => /_call_impl|optim\/optimizer\.py/.test(frame)
  const frames = framesOf(trace, failure.event).map(frameText)
  assert.ok(frames.some(isMachinery))
  assert.deepEqual(
    failure.frames,
    frames.filter(frame => !isMachinery(frame)),
  )
  assert.equal(replayPytorchPolicy(trace, { capacityBytes: trace.recordedPeakReservedBytes! }).failures, 0)
})

test('a recorded segment serves only a request that needs one of its size', () => {
  const base = 2 ** 40
  const result = replayPytorchPolicy(
    build([
      [Action.segmentAlloc, base, 20 * MiB],
      [Action.alloc, base, 100],
      [Action.alloc, base + MiB, 3 * MiB],
    ]),
  )
  assert.deepEqual(result.placement, { allocations: 2, exact: 0 })
  assert.equal(result.peakReservedBytes, 22 * MiB)
})

test('a segment that the policy still uses is not given back, and its address not reused', () => {
  const base = 2 ** 40
  const result = replayPytorchPolicy(
    build([
      [Action.segmentAlloc, base, 2 * MiB],
      [Action.alloc, base, 100],
      [Action.segmentFree, base, 2 * MiB],
      [Action.segmentAlloc, base + MiB, 20 * MiB],
      [Action.alloc, base + MiB, 3 * MiB],
    ]),
  )
  assert.deepEqual(result.placement, { allocations: 2, exact: 1 })
  assert.deepEqual(result.deviceCalls, { cuMemAlloc: 2, cuMemFree: 0 })
})

test('blocks from before the trace keep their addresses', () => {
  const base = 2 ** 40
  const final: FinalState = {
    segments: [{ address: base, bytes: 20 * MiB, stream: 0, expandable: false }],
    blocks: [
      { address: base, bytes: 2 * MiB, stream: 0, pending: false },
      { address: base + 6 * MiB, bytes: 2 * MiB, stream: 0, pending: true },
      { address: 7 * base, bytes: 512, stream: 0, pending: false },
    ],
  }
  const result = replayPytorchPolicy(
    build(
      [
        [Action.alloc, base + 2 * MiB, 4 * MiB],
        [Action.freeRequested, base + 2 * MiB, 4 * MiB],
        [Action.freeCompleted, base + 2 * MiB, 4 * MiB],
      ],
      final,
    ),
  )
  assert.deepEqual(result.placement, { allocations: 1, exact: 1 })
  assert.equal(result.peakGrantedBytes, 6 * MiB + 512, 'what is only pending is not live')
  assert.equal(result.peakReservedBytes, 22 * MiB, 'a block of no segment gets one')
  assert.deepEqual(result.deviceCalls, { cuMemAlloc: 0, cuMemFree: 0 })
})

test('blocks of a private pool lie in segments of their own, as PyTorch placed them', () => {
  const { placement, peakReservedBytes } = replayPytorchPolicy(withGraph([]))
  assert.deepEqual(placement, { allocations: 2, exact: 2 })
  assert.equal(peakReservedBytes, 124 * MiB)
  const expandable = replayPytorchPolicy(withGraph([]), { settings: EXPANDABLE })
  assert.equal(expandable.peakReservedBytes, 140 * MiB)
})

test('the segment of a private pool from before the recording serves no request of the default pool', () => {
  const base = 2 ** 40
  const graph = { address: base, bytes: 64 * MiB, stream: 0, expandable: false, pool: 1 }
  const own = { ...graph, address: 2 * base, bytes: 60 * MiB, pool: 0 }
  const events: PoolEvent[] = [
    [Action.segmentAlloc, own.address, own.bytes],
    [Action.alloc, own.address, own.bytes],
  ]
  const { placement } = replayPytorchPolicy(build(events, { segments: [graph, own], blocks: [] }))
  assert.deepEqual(placement, { allocations: 1, exact: 1 })
})

test('memory of a private pool is given back only after the recording gave some back', () => {
  const base = 2 ** 40
  const limited = { capacityBytes: 100 * MiB, programReleases: new Set<number>() }
  assert.equal(replayPytorchPolicy(withGraph([]), limited).failures, 1)
  const graphEnds: PoolEvent = [Action.segmentFree, base, 64 * MiB, 1]
  assert.equal(replayPytorchPolicy(withGraph([graphEnds]), limited).failures, 0)
  assert.equal(replayPytorchPolicy(withGraph([graphEnds]), limited).retries, 1)
  const usedLater = withGraph([graphEnds], [[Action.alloc, 4 * base, 512, 1]])
  assert.equal(replayPytorchPolicy(usedLater, limited).failures, 1)
})

test('memory of a private pool is kept in each round until its release', () => {
  const trace = withGraph([], [[Action.segmentFree, 2 ** 40, 64 * MiB, 1]])
  const limited = { capacityBytes: 100 * MiB, programReleases: new Set<number>(), repeat: 2 }
  assert.equal(replayPytorchPolicy(trace, limited).failures, 2)
})

test('a failed request of a private pool is made in its pool', () => {
  const trace = withGraph([], [[Action.outOfMemory, 0, 64 * MiB, 1]])
  assert.equal(replayPytorchPolicy(trace, { failedFrom: 0 }).peakReservedBytes, 124 * MiB)
})

type PoolEvent = readonly [ActionCode, number, number, number?]

/** A private pool takes 64 MiB and frees them, then the default pool takes 60 MiB; other events between and after. */
function withGraph(between: readonly PoolEvent[], after: readonly PoolEvent[] = []) {
  const base = 2 ** 40
  return build([
    [Action.segmentAlloc, base, 64 * MiB, 1],
    [Action.alloc, base, 64 * MiB, 1],
    [Action.freeRequested, base, 64 * MiB, 1],
    [Action.freeCompleted, base, 64 * MiB, 1],
    ...between,
    [Action.segmentAlloc, 2 * base, 60 * MiB],
    [Action.alloc, 2 * base, 60 * MiB],
    ...after,
  ])
}

function build(events: readonly PoolEvent[], final: FinalState | null = null) {
  const builder = new TraceBuilder()
  builder.pools.number('0,1')
  for (const [action, address, bytes, pool = 0] of events)
    builder.notePool(builder.add(action, address, bytes, 0, 0), pool)
  return builder.build({ file: 'built', final })
}
