// What a snapshot says about its blocks and its time beside the events: pools, metadata, tags, annotations, devices.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { FormatError } from '../../../core/base/errors.js'
import { excerptOf } from '../columns/excerpt.js'
import { readRecording, readRecordings } from '../formats/read-recording.js'
import { Action, type Trace } from '../trace.js'
import { TraceBuilder } from '../trace-builder.js'
import { readPickle } from './pickle.js'
import { PickleTuple, writePickle } from './pickle-writer.js'
import { pickleSnapshot } from './pytorch-snapshot-writer.js'

const BASE = 0x7f0400000000
const recording = (name: string) => fileURLToPath(new URL(`../../../../../traces/${name}.pickle.gz`, import.meta.url))

const event = (action: string, addr: number, more: object = {}) => ({
  action,
  addr,
  size: 512,
  stream: 0,
  time_us: 0,
  ...more,
})
const mark = (stage: string, name: string, time_us: number, more: object = {}) => ({ stage, name, time_us, ...more })
const asJson = (value: unknown) => readRecording(Buffer.from(JSON.stringify(value)), { name: 'file' })
const asPickle = (value: unknown) => readRecording(writePickle(value), { name: 'file' })
const again = (trace: Trace) => readRecording(pickleSnapshot(trace), { name: trace.file })

test('annotations have the events between their start and their end', () => {
  const times = [10, 20, 30, 40]
  const snapshot = {
    device_traces: [times.map((time_us, i) => event('alloc', BASE + 512 * i, { time_us }))],
    external_annotations: [
      mark('END', 'before', 5),
      mark('START', 'step', 15),
      mark('START', 'step', 20),
      mark('END', 'step', 21),
      mark('END', 'step', 40),
      mark('START', 'other device', 15, { device: 1 }),
      mark('START', 'open', 35, { device: 0 }),
    ],
  }
  for (const trace of [asPickle(snapshot), asJson(snapshot)]) {
    assert.deepEqual(trace.annotations, [
      { name: 'before', startUs: Number.NaN, endUs: 5, start: 0, end: 0 },
      { name: 'step', startUs: 15, endUs: 40, start: 1, end: 3 },
      { name: 'step', startUs: 20, endUs: 21, start: 1, end: 2 },
      { name: 'open', startUs: 35, endUs: Number.NaN, start: 3, end: 4 },
    ])
    assert.deepEqual(again(trace).annotations, trace.annotations)
  }
})

test('annotations that touch, or take no time, are the same when written and read again', () => {
  const builder = new TraceBuilder()
  for (let i = 0; i < 4; i++) builder.add(Action.alloc, BASE + i * 512, 512, 0, 10 * i)
  const marks = [0, 10, 10, 20, 20, 20].map((timeUs, i) => ({ isStart: i % 2 === 0, name: 'step', timeUs }))
  const trace = builder.build({ file: 'built', annotations: marks })
  assert.deepEqual(
    trace.annotations.map(({ startUs, endUs }) => [startUs, endUs]),
    [
      [0, 10],
      [10, 20],
      [20, 20],
    ],
  )
  assert.deepEqual(again(trace).annotations, trace.annotations)
})

test('where the clock goes back, the latest time so far counts, and the steps back are counted', () => {
  const times = [10, 30, 20, 40]
  const trace = asJson({
    device_traces: [times.map((time_us, i) => event('alloc', BASE + 512 * i, { time_us }))],
    external_annotations: [mark('START', 'a', 25), mark('END', 'a', 35)],
  })
  assert.deepEqual([trace.annotations[0].start, trace.annotations[0].end, trace.timesGoBack], [1, 3, 1])
  const backwards = asJson({
    device_traces: [[30, 10].map((time_us, i) => event('alloc', BASE + 512 * i, { time_us }))],
  })
  assert.equal(backwards.spanSeconds, 0)
  const between = asJson({
    device_traces: [[10, 30, 5].map((time_us, i) => event('alloc', BASE + 512 * i, { time_us }))],
  })
  assert.equal(between.spanSeconds, 20 / 1e6)
})

test('the recording of a training run has the ends of its steps', () => {
  const { annotations } = readRecording(recording('gpt2-train-varlen'))
  assert.equal(annotations.filter(({ name }) => name === 'Optimizer.step#AdamW.step').length, 12)
  for (const { start, end, startUs, endUs } of annotations) assert.ok(start <= end && startUs <= endUs)
})

test('bad annotations are refused with the place', () => {
  const wrong: [unknown, RegExp][] = [
    [7, /external_annotations must be a list/],
    [[7], /external_annotations\[0\] must be a dictionary/],
    [[mark('MIDDLE', 'a', 1)], /external_annotations\[0\]\.stage must be START or END/],
    [[mark('START', 7 as never, 1)], /external_annotations\[0\]\.name must be text/],
    [[mark('START', 'a', 'b' as never)], /external_annotations\[0\]\.time_us must be a number of microseconds/],
  ]
  for (const [external_annotations, message] of wrong) {
    const snapshot = { device_traces: [[event('alloc', BASE)]], external_annotations }
    for (const read of [asJson, asPickle]) {
      assert.throws(
        () => read(snapshot),
        (error: Error) => error instanceof FormatError && message.test(error.message),
      )
    }
  }
})

test('bad blocks from before are refused with the place', () => {
  const wrong: [unknown, RegExp][] = [
    [7, /blocks_before must be a list/],
    [[7], /blocks_before\[0\] must be a dictionary/],
    [[{ addr: BASE, size: -1, stream: 0 }], /blocks_before\[0\]\.size must be a whole number of bytes/],
  ]
  for (const [blocks_before, message] of wrong) {
    const snapshot = { device_traces: [[event('alloc', BASE)]], blocks_before }
    for (const read of [asJson, asPickle]) assert.throws(() => read(snapshot), { name: 'FormatError', message })
  }
})

test('a block has its pool, metadata, tag and granted size, which are the same when written and read again', () => {
  const labels = { user_metadata: 'layer 3', pool_id: new PickleTuple([0, 5]), tag: 'weights', granted: 1024 }
  const trace = asPickle({
    device_traces: [[event('alloc', BASE), event('alloc', BASE + 2048, labels), event('alloc', BASE + 4096)]],
  })
  for (const each of [trace, again(trace)]) {
    const { blocks, pools, metadata, tags } = each
    assert.deepEqual(
      [...blocks.pool].map(pool => pools[pool]),
      ['0,0', '0,5', '0,0'],
    )
    assert.deepEqual(
      [...blocks.metadata].map(number => metadata[number]),
      ['', 'layer 3', ''],
    )
    assert.deepEqual(
      [...blocks.tag].map(number => tags[number]),
      ['', 'weights', ''],
    )
    assert.deepEqual([...blocks.grantedBytes], [Number.NaN, 1024, Number.NaN])
  }
})

test('segments, failed requests and blocks that are freed have the pool of their event, also when read again', () => {
  const pool_id = new PickleTuple([0, 5])
  const trace = asPickle({
    segments: [],
    device_traces: [
      [
        event('free_requested', BASE, { pool_id }),
        event('free_completed', BASE, { pool_id }),
        event('segment_free', BASE, { pool_id, size: 4096 }),
        event('segment_alloc', 2 * BASE, { pool_id, size: 4096 }),
        { ...event('oom', BASE, { pool_id }), device_free: 0 },
        event('segment_alloc', BASE, { size: 4096 }),
      ],
    ],
  })
  for (const each of [trace, again(trace)]) {
    const names = (pools: Iterable<number>) => Array.from(pools, pool => each.pools[pool])
    assert.deepEqual(names(each.pool), ['0,5', '0,5', '0,5', '0,5', '0,5', '0,0'])
    assert.deepEqual(names(each.blocks.pool), ['0,5'])
    assert.deepEqual(names(each.initialSegments.map(({ pool }) => pool)), ['0,5'])
    assert.equal(names(excerptOf(each, 4, 6).initialSegments.map(({ pool }) => pool))[0], '0,5')
  }
})

test('what the events do not say about a block comes from the memory at the end', () => {
  const block = { address: BASE, size: 1024, requested_size: 500, state: 'active_allocated', tag: 'old' }
  const segment = (at: number, blocks: object[], pool: number) => ({
    ...{ device: 0, address: at, total_size: 4096, stream: 0, blocks },
    segment_pool_id: new PickleTuple([0, pool]),
  })
  const trace = asPickle({
    segments: [segment(BASE, [{ ...block, user_metadata: 'begin' }], 3), segment(2 * BASE, [], 4)],
    device_traces: [
      [
        event('alloc', 2 * BASE),
        event('free_requested', 2 * BASE),
        event('free_completed', 2 * BASE),
        event('segment_free', 2 * BASE, { size: 4096 }),
        event('segment_alloc', 2 * BASE, { size: 4096 }),
        event('alloc', 2 * BASE + 512),
      ],
    ],
  })
  for (const each of [trace, again(trace)]) {
    const { blocks, pools, metadata, tags } = each
    assert.deepEqual([tags[blocks.tag[0]], metadata[blocks.metadata[0]]], ['old', 'begin'])
    assert.equal(blocks.grantedBytes[0], 1024)
    assert.deepEqual(
      [...blocks.pool].map(pool => pools[pool]),
      ['0,3', '0,0', '0,4'],
      'a segment that was obtained anew says nothing about blocks before it',
    )
    assert.equal(pools[each.pool[4]], '0,4', 'the event that obtained the segment')
    assert.equal(each.pool[3], 0, 'the event that gave back an earlier segment there')
  }
})

test('a trace says whether it begins with nothing held, and how many events were lost', () => {
  const whole = { device_traces: [[event('alloc', BASE)]] }
  assert.deepEqual([asJson(whole).complete, asJson(whole).dropped], [true, null])
  const late = { device_traces: [[event('free_requested', BASE)]], dropped: 7 }
  assert.deepEqual([asJson(late).complete, asJson(late).dropped], [false, 7])
  assert.equal(again(asJson(late)).dropped, 7)
})

test('all devices of a file are read at once, each as by itself', () => {
  const rows = (device: number, count: number) => {
    const frames = [{ filename: 'train.py', line: device, name: 'step' }]
    return Array.from({ length: count }, (_, i) => event('alloc', BASE + 512 * i, { frames, tag: `tag ${device}` }))
  }
  const snapshot = {
    segments: [{ device: 2, address: BASE, total_size: 2 ** 21, stream: 0, blocks: [] }],
    device_traces: [rows(0, 2), [], [{ action: 'dance' }, ...rows(2, 3)], rows(3, 1)],
    external_annotations: [mark('START', 'a', 0, { device: 2 })],
  }
  const bytes = writePickle(snapshot)
  assert.deepEqual(
    readRecordings(bytes, { name: 'file' }).map(({ device, events, skippedEvents }) => [device, events, skippedEvents]),
    [
      [0, 2, 0],
      [2, 3, 1],
      [3, 1, 0],
    ],
  )
  for (const [i, device] of [0, 2, 3].entries()) {
    assert.deepEqual(readRecordings(bytes, { name: 'file' })[i], readRecording(bytes, { name: 'file', device }))
    assert.deepEqual(
      readRecordings(Buffer.from(JSON.stringify(snapshot)), { name: 'file' })[i],
      readRecordings(bytes, { name: 'file' })[i],
    )
  }
  const [only] = readRecordings(recording('mlp-train-stacks'))
  assert.deepEqual(only, readRecording(recording('mlp-train-stacks')))
})

test('readRecordings refuses what readRecording refuses', () => {
  assert.throws(
    () => readRecordings(writePickle({ device_traces: [[], []] }), { name: 'file' }),
    /holds no events; record with/,
  )
  assert.throws(() => readRecordings('f', { device: 0 } as never), /readRecordings: unknown option 'device'/)
  assert.throws(() => readRecordings('/no/such'), /^FormatError: \/no\/such: no such file$/)
  const shared = [event('alloc', BASE)]
  assert.throws(
    () => readRecordings(writePickle({ device_traces: [shared, shared] }), { name: 'file' }),
    /device_traces\[1\]\[0\] must be an event with an action/,
  )
})

test('a written annotation, tag and granted size lie beside the keys of PyTorch', () => {
  const builder = new TraceBuilder()
  const made = builder.add(Action.alloc, BASE, 500, 0, 1)
  builder.noteTag(made, 'weights')
  builder.noteGranted(made, 512)
  const marks = [{ isStart: true, name: 'step', timeUs: 1 }]
  const root = readPickle(pickleSnapshot(builder.build({ file: 'built', annotations: marks })))
  const { device_traces, external_annotations } = JSON.parse(JSON.stringify(root))
  const { action, addr, size, tag, granted } = device_traces[0][0]
  assert.deepEqual([action, addr, size, tag, granted], ['alloc', BASE, 500, 'weights', 512])
  assert.deepEqual(external_annotations, [{ stage: 'START', name: 'step', device: 0, time_us: 1 }])
})
