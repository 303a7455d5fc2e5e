import assert from 'node:assert/strict'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import fc from 'fast-check'
import { KiB, MiB } from '../../../core/base/bytes.js'
import { readRecording } from '../formats/read-recording.js'
import { Action, BEFORE, framesOf, NEVER, type Trace } from '../trace.js'
import { TraceBuilder } from '../trace-builder.js'
import { readPickle } from './pickle.js'
import { pickleSnapshot } from './pytorch-snapshot-writer.js'

function recording(name: string): string {
  return fileURLToPath(new URL(`../../../../../traces/${name}.pickle.gz`, import.meta.url))
}

for (const name of ['mlp-train-stacks', 'multistream-random', 'oom-retry-2gib', 'gpt2-expandable']) {
  test(`the recording ${name} stays the same when written and read again`, () => {
    const trace = readRecording(recording(name))
    assert.deepEqual(readRecording(pickleSnapshot(trace), { name: trace.file }), trace)
  })
}

for (const name of ['profiler.fixture.json', 'nsight.fixture.csv', 'rmm.fixture.csv']) {
  test(`${name} keeps its figures when written and read again, also the reserved peak without segments`, () => {
    const path = fileURLToPath(new URL(`../../../../../src/recordings/trace/formats/${name}`, import.meta.url))
    const trace = readRecording(path)
    assert.ok(trace.skippedEvents > 0)
    const again = readRecording(pickleSnapshot(trace), { name: path })
    const framesOfAll = (each: Trace) => Array.from(each.action, (_, event) => framesOf(each, event))
    assert.deepEqual(framesOfAll(again), framesOfAll(trace))
    // A pickle has one device, and numbers frames in another order.
    const { otherDevices, stacks, ...rest } = trace
    assert.deepEqual({ ...again, otherDevices, stacks }, { ...rest, otherDevices, stacks })
  })
}

test('anything but a trace is refused by name', () => {
  const message = /^pickleSnapshot: trace must be a Trace of readRecording or recorded, not /
  for (const wrong of [undefined, null, {}, 5]) {
    assert.throws(() => pickleSnapshot(wrong as never), { name: 'TypeError', message })
  }
})

test('any trace that can be built stays the same when written and read again', () => {
  const frame = fc.record({ filename: fc.string(), line: fc.nat(), name: fc.string() })
  const step = fc.record({
    slot: fc.nat(5),
    bytes: fc.integer({ min: 1, max: 64 * KiB }),
    stream: fc.constantFrom(0, 7, 2 ** 47),
    frames: fc.array(frame, { maxLength: 3 }),
    device: fc.constantFrom(0, 3),
  })
  fc.assert(
    fc.property(fc.array(step, { maxLength: 40 }), fc.nat(3), (steps, device) => {
      const builder = new TraceBuilder()
      const state = [0, 0, 0, 0, 0, 0]
      const order = [Action.alloc, Action.freeRequested, Action.freeCompleted]
      const base = 2 ** 40
      builder.add(Action.segmentAlloc, base, MiB, 0, 0)
      for (const { slot, bytes, stream, frames } of steps) {
        const stack = builder.stacks.number(
          frames.map(({ filename, line, name }) => builder.stacks.entry(filename, line, name)),
        )
        builder.add(order[state[slot]], base + slot * 64 * KiB, bytes, stream, builder.events, stack)
        state[slot] = (state[slot] + 1) % 3
      }
      builder.add(Action.outOfMemory, Number.NaN, 2 ** 50, 0, builder.events)
      builder.add(Action.snapshot, 0, 5, 0, builder.events)
      const trace = builder.build({ file: 'built', device })
      const { blocks, ...read } = readRecording(pickleSnapshot(trace), { name: 'built' })
      // A built trace has no sizes of blocks, but the written segments have.
      const { grantedBytes } = trace.blocks
      assert.deepEqual({ ...read, blocks: { ...blocks, grantedBytes } }, trace)
    }),
  )
})

test('the written segments are those after the last event, filled by their blocks', () => {
  const builder = new TraceBuilder()
  const base = 2 ** 40
  builder.add(Action.segmentAlloc, base, 2 * MiB, 9, 0)
  builder.add(Action.segmentAlloc, 2 * base, 20 * MiB, 9, 0)
  for (const action of [Action.alloc, Action.freeRequested, Action.freeCompleted]) {
    builder.add(action, 2 * base, 3 * MiB, 9, 0)
  }
  builder.add(Action.segmentFree, 2 * base, 20 * MiB, 9, 0)
  builder.add(Action.alloc, base + 512, 600, 9, 0)
  builder.add(Action.alloc, base + 2048, 1, 9, 0)
  builder.add(Action.freeRequested, base + 2048, 1, 9, 0)
  builder.add(Action.alloc, base + 2560, 100, 9, 0)
  builder.add(Action.alloc, base + 2660, 100, 9, 0)
  const read = readPickle(pickleSnapshot(builder.build({ file: 'built' })))
  const { segments } = JSON.parse(JSON.stringify(read))
  const block = (address: number, size: number, requested_size: number, state: string) => ({
    address,
    size,
    requested_size,
    state,
    frames: [],
  })
  assert.deepEqual(segments, [
    {
      device: 0,
      address: base,
      total_size: 2 * MiB,
      allocated_size: 1636,
      active_size: 2148,
      requested_size: 801,
      stream: 9,
      segment_type: 'small',
      segment_pool_id: [0, 0],
      is_expandable: false,
      frames: [],
      blocks: [
        block(base, 512, 0, 'inactive'),
        block(base + 512, 1024, 600, 'active_allocated'),
        block(base + 1536, 512, 0, 'inactive'),
        block(base + 2048, 512, 1, 'active_pending_free'),
        block(base + 2560, 100, 100, 'active_allocated'),
        block(base + 2660, 512, 100, 'active_allocated'),
        block(base + 3172, 2 * MiB - 3172, 0, 'inactive'),
      ],
    },
  ])
})

test('a freed block is idle in the written segments if the recording has no completed frees', () => {
  const builder = new TraceBuilder()
  const base = 2 ** 40
  builder.add(Action.segmentAlloc, base, 20 * MiB, 0, 0)
  builder.add(Action.alloc, base, 2 * MiB, 0, 1)
  builder.add(Action.alloc, base + 2 * MiB, 2 * MiB, 0, 2)
  builder.add(Action.freeRequested, base, 2 * MiB, 0, 3)
  builder.add(Action.freeRequested, base + 2 * MiB, 2 * MiB, 0, 4)
  builder.add(Action.alloc, base + MiB, 3 * MiB, 0, 5)
  const bytes = pickleSnapshot(builder.build({ file: 'built' }))
  const { segments } = readPickle(bytes) as { segments: { blocks: { state: string; size: number }[] }[] }
  assert.deepEqual(
    segments[0].blocks.map(({ state, size }) => [state, size / MiB]),
    [
      ['inactive', 1],
      ['active_allocated', 3],
      ['inactive', 16],
    ],
  )
  const again = readRecording(bytes, { name: 'built' })
  assert.deepEqual([...again.blocks.grantedBytes], [Number.NaN, Number.NaN, 3 * MiB])
  assert.deepEqual(readRecording(pickleSnapshot(again), { name: 'built' }), again)
})

test('a block whose free is pending from before the recording to its end stays pending', () => {
  const builder = new TraceBuilder()
  const base = 2 ** 40
  builder.add(Action.alloc, base, MiB, 0, 0)
  const trace = builder.build({
    file: 'built',
    final: {
      segments: [{ address: base, bytes: 20 * MiB, stream: 0, expandable: false }],
      blocks: [{ address: base + 2 * MiB, bytes: MiB, stream: 0, pending: true }],
    },
  })
  const { blocks } = readRecording(pickleSnapshot(trace), { name: 'built' })
  assert.deepEqual([blocks.initial, [...blocks.freeRequestedAt]], [1, [BEFORE, NEVER]])
})

test('a failed request has a number as its free memory, since viewers of PyTorch format it', () => {
  const builder = new TraceBuilder()
  builder.add(Action.outOfMemory, Number.NaN, MiB, 0, 0)
  const { device_traces } = readPickle(pickleSnapshot(builder.build({ file: 'built' }))) as {
    device_traces: { device_free: unknown }[][]
  }
  assert.ok(Object.is(device_traces[0][0].device_free, Number.NaN))
})
