import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { gunzipSync } from 'node:zlib'
import { MiB } from '../../../core/base/bytes.js'
import { readRecording } from '../formats/read-recording.js'
import { ReservedSegments } from '../reserved-segments.js'
import { Action, BEFORE, framesOf, NEVER, stackFrames, type Trace } from '../trace.js'
import { readPickle } from './pickle.js'
import { writePickle } from './pickle-writer.js'
import { BASE, event, refused, snapshot } from './snapshot.fixture.js'

/** One small snapshot, pickled by Python 3.11 with each protocol, in gzip. */
const BY_PYTHON: Readonly<Record<number, string>> = {
  2:
    'H4sIAAAAAAACA3VUSVMTQRTuLIR9FXAXRIXBJYC4b4gbVaTg3JfU2GQaesrZ3nQPBWjEk6X8EKs8evboz/Di0d/gydfdIQlFcUmm' +
    '3+v3Le+9mU/5OhCHdhFCJN8KeaQk5KqA0YJDSxj1+LZf41CsENqJR+Z5KZcSOg50khT3aQ/+qVixwJX+HofSKiGThA7ou0EQ15ji' +
    'ns10rpE87dXxmvK3uQ126aC+nHLIuGxe7tZxTSFVylkIPcjf1xLpqt2EQy/t0KEQiaCPDralkzgOXN+D/gqpkM8wQPsx6UuX7yQs' +
    '8thGwGHwq8HfTFnIJQxVYdicN1DzOwkjVTjl1GHUES2nRU2gxY2tkaLoXvtbsPwKPcK46aEfWXNwWiDimawOZy1CUSMILMwLbU2M' +
    '06FWJ5qNgnO67DyWXbBlJVu2Sv5NENFdIWJcGOSLGc+YMWXn46qU1dDGpSpMVGESlV+249MMcQRT5u5hdwwfXDGG9EDh6qFHTYXj' +
    'Ez2NcSs/5G4m4dpB5/v0988fb0umzbU4TPyAu7U4UnxHwTQtYHR9bhlmDFEmeeqGXDGPKQYO1eAwi7auO2LKNM1KuCHamLGfmlcg' +
    '1wfLJabFjHDErHZ8Ez3dsou6idQRTg3K5ojW/aic7MKcMRT4EYf5Sp85mGsLdnKKJ3AbNSw6omzMBXGc6Lo7Yr5SEAs0j7Ff3+Eu' +
    '9rYO91CpsPraZtfQVz+u775YZFj2QBscMHvFudtcanh4gtOPR5EQ4ZFG0L5YFMVmtR6311Zyh6X7x0qfHCHXQwq4Jn96AvlxhGca' +
    'Qc8yjkNYMm9rY8E0JDxfTYZzRIxZNNKU8s0CZZzRkdaLH6eu5Er50ZaE5Tq8cGgOkzvwct087MKrL+ZhD16vLP0xiCSjo/iLO8XT' +
    'CD8pjR7gCkt4U4WVrPwfnU2J4bEEAAA=',
  4:
    'H4sIAAAAAAACA31TzW7TQBDeNI6T/qUF0XIEIX6CkAKIB0CckBK1b1CZbTzpWti7rnddJYVSTgiqOS6vgMSRM0ceg0uPPAMnZr1O' +
    '2ohCDla8nvn+ZvZ98Pm8yarfie1hR8NBBtJou2fdexjDUTICO2TY5nFcgNb2LHTVwSmuGGV4GunkGOyAsdsMuzxN1YgbiP3pDlvC' +
    'VT4yyRFcHHQLOCxBLxSF2hTAM8ezVkuIzDQHiy2dEajFjdlxrlQaJTGVDtkHi+uJjmCScxnz/RTsJwzHBc/AGcBwn9S8dn97ZEa0' +
    '5sqDmjgQyzu/msRhSLPFTiK9WCs292w56wlcj9ginVROj23crD3N7S42hL5hwH7fYmJ5yMS2uFkVQMlx3UcamYKPKpleHYYOU0ly' +
    'NHNaoVsMXPDz1B0sRS1W3EhMkkFU0kjab4qf37+9CnFjpLI8SSEaKWlgYiw2dx+/INBSQxFlYHjMDbfIvNo72PIs4u4FAUXi4MW9' +
    's/ZbDyvuiweiJx46E5XYzpg4JOVMoZGRRPbzKSlNE0m7soaB/xTQkHNP1Md2qlTuysSTYVM8xaUfX10glQrxqOK/FHTNf/I3v3jG' +
    'a+ndcQEQzbfpXx7eLWLUzR0uparGfrlt2Jh1nV7Z5Sldxin8h/Lq5qZSmcXVev4OyQ7yaw0mtjwIm5N/8f0lcLxe75gqIg3GJPJA' +
    'VzezMbG72Jjaj9g4ti+fn/s7XOINGjoUku5lbZB2ym1Z2f8DJj2BVusDAAA=',
  5:
    'H4sIAAAAAAACA31TzW7TQBDeNI6T/qUF0XIEIX6CkAKIB0CckBK1b1CZbTzpWti7rnddJYVSTgiqOS6vgMSRM0ceg0uPPAMnZr1O' +
    '2ohCDla8nvn+ZvZ96/N5k1W/E9vDjoaDDKTRds+69zCGo2QEdsiwzeO4AK3tWeiqg1NcMcrwNNLJMdgBY7cZdnmaqhE3EPvTHbaE' +
    'q3xkkiO4OOgWcFiCXigKtSmAZ45nrZYQmWkOFls6I1CLG7PjXKk0SmIqHbIPFtcTHcEk5zLm+ynYTxiOC56BM4DhPql57f72yIxo' +
    'zZUHNXEglnd+NYnDkGaLnUR6sVZs7tly1hO4HrFFOqmcHtu4WXua211sCH3DgP2+xcTykIltcbMqgJLjuo80MgUfVTK9OgwdppLk' +
    'aOa0QrcYuODnqTtYilqsuJGYJIOopJG03xQ/v397FeLGSGV5kkI0UtLAxFhs7j5+QaClhiLKwPCYG26RebV3sOVZxN0LAorEwYt7' +
    'Z+23HlbcFw9ETzx0JiqxnTFxSMqZQiMjieznU1KaJpJ2ZQ0D/ymgIeeeqI/tVKnclYknw6Z4iks/vrpAKhXiUcV/Keia/+RvfvGM' +
    '19K74wIgmm/Tvzy8W8SomztcSlWN/XLbsDHrOr2yy1O6jFP4D+XVzU2lMour9fwdkh3k1xpMbHkQNif/4vtL4Hi93jFVRBqMSeSB' +
    'rm5mY2J3sTG1H7FxbF8+P/d3uMQbNHQoJN3L2iDtlNuysv8Hz6+pZOsDAAA=',
}

function recording(name: string): string {
  return fileURLToPath(new URL(`../../../../../traces/${name}.pickle.gz`, import.meta.url))
}

function parse(value: unknown, device?: number): Trace {
  return readRecording(writePickle(value), { name: 'file', ...(device === undefined ? {} : { device }) })
}

/** The blocks in use after `event`, by address. */
function held({ blocks, streams }: Trace, event: number): object[] {
  const used: { address: number; bytes: number; stream: number; pending: boolean }[] = []
  for (let block = 0; block < blocks.count; block++) {
    if (blocks.allocatedAt[block] > event || blocks.freeCompletedAt[block] <= event) continue
    const pending = blocks.freeRequestedAt[block] <= event
    const stream = streams[blocks.stream[block]]
    used.push({ address: blocks.address[block], bytes: blocks.bytes[block], stream, pending })
  }
  return used.sort((a, b) => a.address - b.address)
}

// peakLiveMiB in the table of recordings is PyTorch's allocated_bytes, with its rounding; requested bytes are less.
const RECORDINGS = [
  { name: 'gpt2-train-varlen', events: 68_640, allocations: 22_868, streams: 1, requested: 4894.358, reserved: 6066 },
  {
    name: 'resnet50-train-varbatch',
    events: 32_129,
    allocations: 10_656,
    streams: 1,
    requested: 9341.207,
    reserved: 15328,
  },
  { name: 'multistream-random', events: 18_045, allocations: 6000, streams: 4, requested: 695.994, reserved: 1434 },
  { name: 'gpt2-expandable', events: 68_644, allocations: 22_868, streams: 1, requested: 4894.358, reserved: 5848 },
  { name: 'oom-retry-2gib', events: 6067, allocations: 1983, streams: 1, requested: 1972.086, reserved: 2048 },
  { name: 'mlp-train-stacks', events: 794, allocations: 261, streams: 1, requested: 187.117, reserved: 198 },
]

for (const { name, events, allocations, streams, requested, reserved } of RECORDINGS) {
  test(`the recording ${name} has its known figures`, () => {
    const trace = readRecording(recording(name))
    assert.equal(trace.events, events)
    assert.equal(trace.skippedEvents, 0)
    assert.equal(trace.allocations, allocations)
    assert.equal(trace.eventStreams, streams)
    assert.equal((trace.peakRequestedBytes / MiB).toFixed(3), requested.toFixed(3))
    assert.equal(trace.recordedPeakReservedBytes, reserved * MiB)
    const { blocks } = trace
    assert.equal(blocks.count, blocks.initial + allocations)
    for (let block = 0; block < blocks.count; block++) {
      assert(blocks.allocatedAt[block] < blocks.freeRequestedAt[block])
      assert(blocks.freeRequestedAt[block] <= blocks.freeCompletedAt[block])
      if (block >= blocks.initial) assert.equal(trace.block[blocks.allocatedAt[block]], block)
    }
  })

  // A recording from a ring buffer: the last events, and the segments after the last one.
  for (const share of [0.3, 0.71]) {
    test(`the recording ${name} without its first ${share * 100} % starts with the right blocks`, () => {
      const whole = readRecording(recording(name))
      const cut = Math.floor(whole.events * share)
      const root = readPickle(gunzipSync(readFileSync(recording(name)))) as { device_traces: unknown[][] }
      const device = whole.device
      root.device_traces[device] = root.device_traces[device].slice(cut)
      const rest = parse(root)
      assert.equal(rest.events, whole.events - cut)
      assert.deepEqual(held(rest, BEFORE), held(whole, cut - 1))
      const set = new ReservedSegments(whole.initialSegments)
      for (let i = 0; i < cut; i++) set.apply(whole.action[i], whole.address[i], whole.bytes[i], whole.stream[i])
      const plain = (trace: Trace) => (segment: { stream: number }) => ({
        ...segment,
        stream: trace.streams[segment.stream],
      })
      assert.deepEqual(rest.initialSegments.map(plain(rest)), set.list().map(plain(whole)))
    })
  }
}

for (const protocol of [2, 4, 5]) {
  test(`a snapshot pickled by Python with protocol ${protocol} is read`, () => {
    const bytes = gunzipSync(Buffer.from(BY_PYTHON[protocol], 'base64'))
    const trace = readRecording(bytes, { name: 'small' })
    assert.equal(trace.file, 'small')
    assert.equal(trace.skippedEvents, 1, 'annotate')
    const { segmentAlloc, alloc, freeRequested, freeCompleted, outOfMemory } = Action
    assert.deepEqual([...trace.action], [segmentAlloc, alloc, alloc, freeRequested, freeCompleted, outOfMemory])
    assert.deepEqual([...trace.block], [-1, 0, 1, 0, 0, -1])
    assert.deepEqual([...trace.bytes], [2 * MiB, 1000, 512, 1000, 1000, 2 ** 40])
    assert.deepEqual([...trace.address], [BASE, BASE, BASE + 1024, BASE, BASE, 70000])
    assert.equal(trace.timeUs[0], 1795166337462907)
    assert.equal(trace.spanSeconds, 43 / 1e6)
    const inner = { filename: 'train.py', line: 12, name: 'step' }
    const outer = { filename: 'loop.py', line: 3, name: 'é' }
    assert.deepEqual(framesOf(trace, 1), [inner, outer])
    assert.deepEqual(framesOf(trace, 2), [outer])
    assert.deepEqual(framesOf(trace, 3), [])
    assert.equal(framesOf(trace, 1)[1], framesOf(trace, 2)[0], 'frames are shared')
    assert.deepEqual([...trace.blocks.freeRequestedAt], [3, NEVER])
    assert.equal(trace.peakRequestedBytes, 1512)
    assert.equal(trace.recordedPeakReservedBytes, 2 * MiB)
    assert.deepEqual(readRecording(Buffer.from(JSON.stringify(readPickle(bytes))), { name: 'small' }), trace, 'as JSON')
  })
}

test('other devices of a file are listed, and a recording of a pool of this package is known', () => {
  const rows = [event('alloc', BASE, 8)]
  const value = { segments: [], device_traces: [rows, [], [...rows, event('free_requested', BASE, 8)]] }
  assert.deepEqual([parse(value).device, parse(value).otherDevices], [2, [{ device: 0, events: 1 }]])
  assert.deepEqual(parse(value, 0).otherDevices, [{ device: 2, events: 2 }])
  assert.deepEqual(parse(snapshot(rows)).otherDevices, [])
  assert.equal(parse(snapshot(rows)).recorder, 'PyTorch')
  assert.equal(parse(snapshot(rows, [], { recorder: 'cuda-mempool' })).recorder, 'cuda-mempool')
})

test('a block from before the recording has the call stack that the final state has, as pickle and as JSON', () => {
  const frames = [{ filename: 'model.py', line: 7, name: 'build' }]
  const blocks = [{ address: BASE, size: 512, requested_size: 500, state: 'active_allocated', frames }]
  const segments = [{ device: 0, address: BASE, total_size: 2 * MiB, stream: 0, blocks }]
  const value = snapshot([event('alloc', BASE + 512, 8)], segments)
  for (const trace of [parse(value), readRecording(Buffer.from(JSON.stringify(value)), { name: 'file' })]) {
    assert.deepEqual(
      [...trace.blocks.stack].map(stack => stackFrames(trace.stacks, stack)),
      [frames, []],
    )
  }
})

test('a wrong argument is one typed error that names it', () => {
  const wrong: [() => unknown, string, RegExp][] = [
    [() => readRecording('f', null as never), 'TypeError', /readRecording: options must be an object/],
    [
      () => readRecording('f', { gpu: 0 } as never),
      'TypeError',
      /unknown option 'gpu'; the options are device, name, onProg/,
    ],
    [() => readRecording('f', { devices: 0 } as never), 'TypeError', /unknown option 'devices'.*did you mean device\?/],
    [() => readRecording('f', { device: -1 }), 'RangeError', /device must be a device number/],
    [() => readRecording('f', { onProgress: 1 as never }), 'TypeError', /onProgress must be a function, not 1/],
  ]
  for (const [call, name, message] of wrong) assert.throws(call, { name, message })
})

test('brackets and quotes within JSON text are text', () => {
  const name = `\\"${'['.repeat(2000)}`
  const trace = readRecording(
    Buffer.from(JSON.stringify(snapshot([event('alloc', BASE, 8, { frames: [{ filename: 'f', line: 1, name }] })]))),
    { name: 'file' },
  )
  assert.equal(framesOf(trace, 0)[0].name, name)
})

test('a bad snapshot is refused with the place', () => {
  const good = event('alloc', BASE, 8)
  const { action: _, ...noAction } = good
  const wrong: [unknown, RegExp][] = [
    [[1, 2], /is a bare list/],
    [1, /the snapshot must be a dictionary/],
    [{}, /is no memory snapshot of PyTorch/],
    [{ segments: [], device_traces: [[], []] }, /holds no events; record with torch/],
    [{ device_traces: {} }, /device_traces must be a list/],
    [{ device_traces: [good] }, /device_traces\[0\] must be a list/],
    [snapshot([good, noAction]), /device_traces\[0\]\[1\] must be an event with an action/],
    [snapshot([good, -1]), /device_traces\[0\]\[1\] must be an event/],
    [snapshot([good, -2]), /device_traces\[0\]\[1\] must be an event/],
    [snapshot([good, null]), /device_traces\[0\]\[1\] must be an event/],
    [snapshot([{ ...good, action: 7 }]), /device_traces\[0\]\[0\]\.action must be text/],
    [snapshot([{ ...good, size: 1.5 }]), /device_traces\[0\]\[0\]\.size must be a whole number of bytes/],
    [snapshot([{ ...good, size: -1 }]), /\.size must be/],
    [snapshot([{ ...good, size: '8' }]), /\.size must be/],
    [snapshot([{ ...good, size: 2 ** 53 }]), /\.size must be/],
    [snapshot([{ ...good, addr: null }]), /\.addr must be an address/],
    [snapshot([{ ...good, stream: 'a' }]), /\.stream must be a stream handle/],
    [snapshot([{ ...good, time_us: 'a' }]), /\.time_us must be a number of microseconds/],
    [snapshot([{ ...good, frames: 'a' }]), /\.frames must be a list of stack frames/],
    [snapshot([{ ...good, frames: [{ filename: 'a' }] }]), /\.frames must be/],
    [snapshot([{ ...good, frames: [7] }]), /\.frames must be/],
    [
      snapshot([good, { ...good, addr: BASE }]),
      /event 1 allocates a block that is still live \(address 0x7f0400000000\)/,
    ],
    [snapshot([good, event('free_completed', BASE, 8)]), /event 1 completes a free that was never requested/],
    [
      snapshot([good, event('free_requested', BASE, 8), event('free_requested', BASE, 8)]),
      /event 2 frees a block again/,
    ],
    [
      snapshot([event('free_completed', BASE, 8), event('free_requested', BASE, 8)]),
      /event 1 frees a block that is already free/,
    ],
  ]
  for (const [value, message] of wrong) {
    refused(() => parse(value), message)
    refused(
      () => readRecording(Buffer.from(` ${JSON.stringify(value)}`), { name: 'file' }),
      typeof value === 'number' ? /./ : message,
    )
  }
})

test('an event that the file lists twice is refused', () => {
  const good = event('alloc', BASE, 8)
  refused(() => parse(snapshot([good, good])), /device_traces\[0\]\[1\] must be an event/)
})

test('bad segments are refused with the place', () => {
  const segment = { device: 0, address: BASE, total_size: 4096, stream: 0, blocks: [] as object[] }
  const block = { size: 512, requested_size: 500, address: BASE, state: 'active_allocated' }
  const wrong: [unknown, RegExp][] = [
    ['a', /segments must be a list/],
    [[7], /segments\[0\] must be a dictionary/],
    [[{ ...segment, address: -1 }], /segments\[0\]\.address must be an address/],
    [[{ ...segment, total_size: null }], /segments\[0\]\.total_size must be a whole number of bytes/],
    [[{ ...segment, stream: null }], /segments\[0\]\.stream must be a stream handle/],
    [[{ ...segment, blocks: 7 }], /segments\[0\]\.blocks must be a list/],
    [[segment, { ...segment }], /segments\[1\]\.address is that of another segment too/],
    [
      [{ ...segment, blocks: [block, block] }],
      /segments\[0\]\.blocks\[1\] lies outside its segment, or over the block before/,
    ],
    [[{ ...segment, blocks: [{ ...block, size: 8192 }] }], /segments\[0\]\.blocks\[0\] lies outside/],
    [
      [{ ...segment, blocks: [{ ...block, state: 'gone' }] }],
      /segments\[0\]\.blocks\[0\]\.state is none that is known/,
    ],
    [[{ ...segment, blocks: [{ ...block, size: '' }] }], /segments\[0\]\.blocks\[0\]\.size must be/],
  ]
  for (const [segments, message] of wrong) refused(() => parse(snapshot([event('snapshot', 0, 0)], segments)), message)
  const { address: _, ...anywhere } = block
  const shared = [anywhere]
  const twice = [1, 2].map(i => ({ ...segment, address: BASE * i, blocks: shared }))
  refused(
    () => parse(snapshot([event('snapshot', 0, 0)], twice)),
    /segments\[1\]\.blocks are those of another segment too/,
  )
})

test('the device is the one with most events, or the chosen one', () => {
  const devices = [[], [event('alloc', 1, 1)], [event('alloc', 2, 2), event('alloc', 3, 3)], []]
  const segment = (device: number) => ({ device, address: 4096 * device, total_size: 4096, stream: 0, blocks: [] })
  const value = { segments: [segment(1), segment(2)], device_traces: devices }
  assert.equal(parse(value).device, 2)
  assert.deepEqual([...parse(value).address], [2, 3])
  assert.deepEqual(
    parse(value).initialSegments.map(each => each.address),
    [8192],
  )
  assert.deepEqual([...parse(value, 1).address], [1])
  assert.deepEqual(
    parse(value, 1).initialSegments.map(each => each.address),
    [4096],
  )
  refused(() => parse(value, 0), /holds no events of device 0; it has some of device 1, 2/)
  refused(() => parse(value, 9), /holds no events of device 9; it has some of device 1, 2/)
  assert.throws(() => parse(value, -1), RangeError)
  assert.throws(() => parse(value, 0.5), RangeError)
})

test('events of unknown kinds are left out and counted', () => {
  const trace = parse(snapshot([event('alloc', BASE, 8), { action: 'dance' }, event('free_requested', BASE, 8)]))
  assert.equal(trace.events, 2)
  assert.equal(trace.skippedEvents, 1)
  assert.deepEqual([...trace.block], [0, 0])
})

test('old snapshots without times, block addresses or requested sizes are read', () => {
  const blocks = [
    { size: 512, state: 'inactive' },
    { size: 1024, state: 'active_allocated' },
    { size: 2560, state: 'active_awaiting_free' },
  ]
  const segments = [{ address: BASE, total_size: 4096, stream: 3, blocks }]
  const trace = parse({ segments, device_traces: [[{ action: 'snapshot', addr: 0, size: 0, stream: 0 }]] })
  assert.equal(trace.spanSeconds, 0)
  assert.deepEqual(held(trace, BEFORE), [
    { address: BASE + 512, bytes: 1024, stream: 3, pending: false },
    { address: BASE + 1536, bytes: 2560, stream: 3, pending: true },
  ])
  assert.equal(trace.peakRequestedBytes, 1024, 'what is only pending is not live')
  assert.equal(trace.eventStreams, 1)
})

test('without segments, reserved memory is unknown', () => {
  assert.equal(parse({ device_traces: [[event('alloc', BASE, 8)]] }).recordedPeakReservedBytes, null)
  assert.equal(parse(snapshot([event('alloc', BASE, 8)])).recordedPeakReservedBytes, null)
  assert.equal(parse({ device_traces: [[event('segment_alloc', BASE, 8)]] }).recordedPeakReservedBytes, 8)
})

test('a reused address completes a free that the recording left open', () => {
  const trace = parse(snapshot([event('alloc', 1, 1), event('free_requested', 1, 1), event('alloc', 1, 2)]))
  assert.deepEqual([...trace.block], [0, 0, 1])
  assert.deepEqual([...trace.blocks.freeCompletedAt], [2, NEVER])
})

test('stacks of any depth are read, and equal stacks are stored once', () => {
  const deep = Array.from({ length: 2500 }, (_, i) => ({ filename: 'deep.py', line: i, name: 'f' }))
  const events = [999, 1000, 1001, 2500].flatMap(depth => [0, 1].map(i => ({ depth, i })))
  const value = snapshot(
    events.map(({ depth, i }) => event('alloc', depth * 10 + i, 1, { frames: deep.slice(0, depth) })),
  )
  const trace = parse(value)
  for (const [i, { depth }] of events.entries()) assert.deepEqual(framesOf(trace, i), deep.slice(0, depth))
  assert.equal(trace.stacks.count, 5)
})

test('progress ends at 1', () => {
  const told: number[] = []
  const events = Array.from({ length: 60_000 }, (_, i) => event('snapshot', 0, i))
  readRecording(writePickle(snapshot(events)), { name: 'file', onProgress: fraction => told.push(fraction) })
  assert(told.length > 1)
  assert.deepEqual(
    told,
    [...told].sort((a, b) => a - b),
  )
  assert.equal(told[told.length - 1], 1)
})

test('a block without a requested size is alike at the end, unless it is smaller than the allocation', () => {
  const atEnd = (mebibytes: number) => {
    const blocks = [{ size: 20 * MiB, state: 'active_allocated' }]
    const events = [event('segment_alloc', BASE, 20 * MiB), event('alloc', BASE, mebibytes * MiB)]
    const segments = [{ address: BASE, total_size: 20 * MiB, stream: 0, blocks }]
    return readRecording(Buffer.from(JSON.stringify(snapshot(events, segments)))).contradictions.atEnd
  }
  assert.deepEqual([atEnd(19), atEnd(20), atEnd(21)], [0, 0, 1])
})
