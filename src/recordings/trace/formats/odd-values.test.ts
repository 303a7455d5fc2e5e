// Values that no clock, allocator or program has, in each format: refused with their place, or counted as unknown.

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { FormatError } from '../../../core/base/errors.js'
import { writePickle } from '../pytorch/pickle-writer.js'
import { BASE, event, snapshot } from '../pytorch/snapshot.fixture.js'
import { stackFrames } from '../trace.js'
import { readRecording } from './read-recording.js'

const NINES = '9'.repeat(400)
const RMM = 'Thread,Time,Action,Pointer,Size,Stream\n'
const NSIGHT = 'start,address,bytes,memKind,memoryOperationType\n'

function refused(file: string | Buffer, message: RegExp): void {
  assert.throws(
    () => readRecording(Buffer.from(file as string), { name: 'run' }),
    (error: Error) => {
      assert(error instanceof FormatError, String(error.stack))
      assert.match(error.message.replace(/^run: /, ''), message)
      return true
    },
  )
}

/** A trace of torch.profiler with one memory event. */
function profile(fields: object, args: object = {}): Buffer {
  const memory = { name: '[memory]', ts: 1, pid: 1, tid: 1, args: { 'Device Type': 1, Addr: 1, Bytes: 8, ...args } }
  return Buffer.from(JSON.stringify({ traceEvents: [{ ...memory, ...fields }] }))
}

describe('a time', () => {
  test('of more than 2^53 microseconds is refused with its place', () => {
    refused(
      `${RMM}1,${NINES}.0,allocate,0x10,512,0x0\n`,
      /^line 2: Time must be below 2\^53 microseconds, not '9{40}'$/,
    )
    refused(`${NSIGHT}${NINES},1,1,2,0\n`, /^line 2: start must be a whole number/)
    for (const ts of [1e308, -1e308, 2 ** 54]) {
      refused(profile({ ts }), /^traceEvents\[0\]\.ts must be a number of microseconds below 2\^53$/)
    }
    for (const time of [Number.POSITIVE_INFINITY, Number.NaN, 1e306, -(2 ** 54)]) {
      const value = snapshot([event('alloc', BASE, 8), event('alloc', BASE + 8, 8, { time_us: time })])
      refused(writePickle(value), /^device_traces\[0\]\[1\]\.time_us must be a number of microseconds below 2\^53$/)
      const annotations = [{ stage: 'START', name: 'step', time_us: time }]
      const annotated = snapshot([event('alloc', BASE, 8)], [], { external_annotations: annotations })
      refused(
        writePickle(annotated),
        /^external_annotations\[0\]\.time_us must be a number of microseconds below 2\^53$/,
      )
    }
  })

  test('of 2^53 microseconds is refused in a log that passes midnight at each line', () => {
    const lines = Array.from({ length: 220_000 }, (_, i) => `1,${i % 2 === 0 ? '12' : '00'}:00:00.0,free,0x10,8,0x0\n`)
    refused(RMM + lines.join(''), /^line 208\d{3}: Time must be below 2\^53 microseconds, not '00:00:00.0'$/)
  })
})

describe('sizes', () => {
  test('of more than 2^53 bytes at once are refused', () => {
    const most = Number.MAX_SAFE_INTEGER
    const damaged = /^has more than 2\^53 bytes in use at once, so its sizes are damaged$/
    refused(writePickle(snapshot([event('alloc', BASE, most), event('alloc', BASE + 1, most)])), damaged)
    refused(
      writePickle(snapshot([0, 1].map(i => event('segment_alloc', BASE + i, most)).concat(event('alloc', 1, 1)))),
      damaged,
    )
    refused(`${RMM}${[1, 2].map(i => `1,0:00:01.0,allocate,${i},${most},0x0\n`).join('')}`, damaged)
    refused(`${NSIGHT}${[1, 2].map(i => `1,${i},${most},2,0\n`).join('')}`, damaged)
  })
})

test('a device of a number below 0 is refused with its place', () => {
  const row = '0,1,8,2,0,-1'
  refused(`${NSIGHT.trim()},deviceId\n${row}\n`, /^line 2: localMemoryPoolSize and deviceId must be 0 or above$/)
})

describe('the line of a stack frame', () => {
  test('is 0 if it is no line', () => {
    for (const line of [-1, 1.5, Number.NaN, Number.POSITIVE_INFINITY, 1e300]) {
      const frames = [{ filename: 'a.py', line, name: 'f' }]
      const { stacks } = readRecording(writePickle(snapshot([event('alloc', BASE, 8, { frames })])), { name: 'run' })
      assert.deepEqual(stackFrames(stacks, 1), [{ filename: 'a.py', line: 0, name: 'f' }])
    }
  })
})

describe('a field of torch.profiler', () => {
  const objects: readonly unknown[] = [{ toString: 1 }, { valueOf: 1 }, [1], [], true, {}]

  test('is a number or a text', () => {
    for (const value of [...objects, '', 'many', 1.5]) {
      refused(profile({}, { Bytes: value }), /^traceEvents\[0\]\.args\['Bytes'\] must be a whole number$/)
      refused(profile({}, { 'Device Id': value }), /^traceEvents\[0\]\.args\['Device Id'\] must be a whole number$/)
    }
    assert.equal(readRecording(profile({}, { Bytes: '4096' }), { name: 'run' }).blocks.bytes[0], 4096)
  })

  test('that names a thread tells no threads apart if it is neither', () => {
    for (const pid of [...objects, null]) {
      const trace = readRecording(profile({ pid, tid: pid, cat: pid, dur: pid }), { name: 'run' })
      assert.equal(trace.events, 1)
    }
  })
})
