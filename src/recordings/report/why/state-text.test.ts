import assert from 'node:assert/strict'
import { mkdtempSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, test } from 'node:test'
import { MiB } from '../../../core/base/bytes.js'
import { FormatError } from '../../../core/base/errors.js'
import { readRecording, readRecordingOrText } from '../../trace/formats/read-recording.js'
import type { Trace } from '../../trace/trace.js'
import { PLAIN } from '../table.js'
import { unwrapped } from '../trace-texts.fixture.js'
import { snapshotState, stateText } from './state-text.js'

const folder = mkdtempSync(join(tmpdir(), 'cuda-mempool-state-'))
after(() => rmSync(folder, { recursive: true }))

const BASE = 0x7f0400000000
type Block = readonly [mebibytes: number, state: string]

/** A segment whose blocks follow each other. */
function segment(number: number, blocks: readonly Block[], device = 0) {
  let address = BASE + number * 1024 * MiB
  return {
    device,
    address,
    total_size: blocks.reduce((sum, [size]) => sum + size, 0) * MiB,
    stream: 0,
    blocks: blocks.map(([size, state]) => {
      const block = {
        address,
        size: size * MiB,
        requested_size: size * MiB,
        state,
        frames: [{ filename: 'serve.py', line: 7, name: 'load' }],
      }
      address += size * MiB
      return block
    }),
  }
}

const IN_USE = 'active_allocated'
const SEGMENTS = [
  segment(0, [
    [100, IN_USE],
    [200, 'inactive'],
    [60, 'active_awaiting_free'],
  ]),
  segment(1, [[300, 'inactive']]),
  segment(2, [
    [40, IN_USE],
    [20, 'inactive'],
  ]),
]

function stateOf(contents: unknown, device?: number): Trace {
  const path = join(folder, 'state.json')
  writeFileSync(path, JSON.stringify(contents))
  const found = readRecordingOrText(path, device === undefined ? {} : { device })
  assert.ok('events' in found)
  return found
}

const told = (contents: unknown) => unwrapped(stateText(stateOf(contents), { width: 80, paint: PLAIN }))

test('a snapshot without events has its memory in use, waiting and idle', () => {
  const trace = stateOf({ segments: SEGMENTS, device_traces: [[]] })
  assert.equal(trace.events, 0)
  const { pins, pools, ...state } = snapshotState(trace)
  assert.deepEqual(state, {
    reservedBytes: 720 * MiB,
    segments: 3,
    inUseBytes: 140 * MiB,
    blocks: 2,
    waitingBytes: 60 * MiB,
    idleBytes: 520 * MiB,
    pieces: 3,
    largestBytes: 300 * MiB,
    wholeSegments: 1,
    wholeBytes: 300 * MiB,
    privateBytes: 0,
  })
  assert.deepEqual(
    pins.map(({ site, idleBytes }) => [site, idleBytes]),
    [['serve.py:7 load', 200 * MiB]],
  )
  assert.equal(pools.length, 1)
})

test('its text has the holders, what empty_cache gives back, and what is kept', () => {
  const text = told({ segments: SEGMENTS, device_traces: [[]] })
  assert.match(text, /A snapshot without events: the memory at one moment\./)
  assert.match(text, /idle 520 MiB in 3 pieces, the largest 300 MiB reserved 720 MiB in 3 segments/)
  assert.match(
    text,
    /empty_cache\(\) would give 300 MiB back\. 220 MiB are idle beside blocks in use.* A setting may help/,
  )
  assert.match(text, /Held then, by call site: 140 MiB .*serve\.py:7 load \(2 blocks\)/)
  assert.match(text, /still in use on another stream, by call site: 60 MiB serve\.py:7 load \(1 block\)/)
})

test('a block of PyTorch 2.0 has its size and its call stack in the list of its allocations', () => {
  const { blocks, ...rest } = segment(0, [[100, IN_USE]])
  const [{ address, size, state, frames }] = blocks
  const history = [
    { addr: address, real_size: 99 * MiB, frames },
    { addr: address, real_size: 100 * MiB },
  ]
  assert.match(told([{ ...rest, blocks: [{ size, state, history }] }]), /by call site: 99 MiB .*serve\.py:7 load/)
  for (const damaged of [[], [1], [{ real_size: 200 * MiB }], 'history']) {
    assert.match(told([{ ...rest, blocks: [{ size, state, history: damaged }] }]), /in use 100 MiB in 1 block/)
  }
})

test('small pieces between blocks count, since the sizes of the blocks are recorded', () => {
  const pieces = segment(0, [
    [1, IN_USE],
    [1, 'inactive'],
    [1, IN_USE],
    [17, 'inactive'],
  ])
  assert.equal(snapshotState(stateOf([pieces])).idleBytes, 18 * MiB)
})

test('a bare list of segments is the same, and full memory has nothing idle', () => {
  assert.deepEqual(snapshotState(stateOf(SEGMENTS)), snapshotState(stateOf({ segments: SEGMENTS })))
  assert.match(told([segment(0, [[100, IN_USE]])]), /No memory is idle: the program holds all that is reserved\./)
})

test('of several devices the text is about the chosen one, by default with the most segments', () => {
  const contents = { segments: [segment(0, [[100, IN_USE]], 1), ...SEGMENTS], device_traces: [] }
  assert.equal(stateOf(contents).device, 0)
  assert.equal(snapshotState(stateOf(contents, 1)).reservedBytes, 100 * MiB)
  assert.match(told(contents), /This is the memory of GPU 0; the file also has that of GPU 1\. --gpu N chooses\./)
})

test('other readers refuse it in one line that names why', () => {
  for (const contents of [SEGMENTS, { segments: SEGMENTS, device_traces: [[], []] }]) {
    assert.throws(
      () => readRecording(Buffer.from(JSON.stringify(contents))),
      (error: Error) => {
        assert.ok(error instanceof FormatError)
        assert.match(
          error.message,
          /^recording: holds no events, only the state at its end, which cuda-mempool why reads; record with/,
        )
        return true
      },
    )
  }
})

test('a snapshot of nothing is refused', () => {
  assert.throws(() => stateOf({ segments: [], device_traces: [] }), /holds no events; record with/)
  assert.throws(() => stateOf([1, 2]), /is a bare list, but not of segments/)
  assert.throws(() => stateOf([{ total_size: 1 }]), /segments\[0\]\.address must be an address/)
})
