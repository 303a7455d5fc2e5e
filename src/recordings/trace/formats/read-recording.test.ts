import assert from 'node:assert/strict'
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { after, describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { gzipSync } from 'node:zlib'
import { FormatError } from '../../../core/base/errors.js'
import { BASE, event } from '../pytorch/snapshot.fixture.js'
import { Action, BEFORE, framesOf, frameText, NEVER, type Trace } from '../trace.js'
import { csvCommand } from './nsight-sqlite.js'
import { readRecording, readRecordings } from './read-recording.js'

const folder = mkdtempSync(join(tmpdir(), 'cuda-mempool-formats-'))
after(() => rmSync(folder, { recursive: true }))

function fixture(name: string): string {
  return fileURLToPath(new URL(`../../../../../src/recordings/trace/formats/${name}`, import.meta.url))
}

const NAMES = new Map<number, string>(Object.entries(Action).map(([name, code]) => [code, name]))

/** Each event as one word list: time, action, address, bytes, stream. */
function eventsOf(trace: Trace): string[] {
  return Array.from({ length: trace.events }, (_, event) =>
    [
      trace.timeUs[event],
      NAMES.get(trace.action[event]),
      trace.address[event].toString(16),
      trace.bytes[event],
      trace.streams[trace.stream[event]].toString(16),
    ].join(' '),
  )
}

function refusal(bytes: string | Buffer, device?: number): string {
  try {
    readRecording(Buffer.from(bytes as string), { name: 'run', ...(device === undefined ? {} : { device }) })
  } catch (error) {
    assert.ok(error instanceof FormatError && error.message.startsWith('run: '), String(error))
    return error.message.slice('run: '.length)
  }
  assert.fail('accepted')
}

describe("RMM's CSV", () => {
  test('has its calls as events, also past midnight and with a last line that was cut short', () => {
    const trace = readRecording(fixture('rmm.fixture.csv'))
    const midnight = 86_400e6
    assert.deepEqual(eventsOf(trace), [
      '86399900000 alloc 7f0000000000 1048576 0',
      '86399950000 alloc 7f0000100000 2048 55d0c0ffee00',
      `${midnight + 1e5} freeRequested 7f0000000000 1048576 0`,
      `${midnight + 1e5} freeCompleted 7f0000000000 1048576 0`,
      `${midnight + 2e5} alloc 7f0000000000 524288 55d0c0ffee00`,
      `${midnight + 3e5} outOfMemory NaN 99999999 0`,
      `${midnight + 4e5} freeRequested 7eff00000000 4096 0`,
      `${midnight + 4e5} freeCompleted 7eff00000000 4096 0`,
    ])
    assert.equal(trace.recorder, 'RMM')
    assert.equal(trace.skippedEvents, 2, 'the request for 0 bytes, and the last line')
    assert.equal(trace.recordedPeakReservedBytes, null)
    const { blocks } = trace
    assert.deepEqual([...blocks.allocatedAt], [BEFORE, 0, 1, 4])
    assert.deepEqual([...blocks.freeRequestedAt], [6, 2, NEVER, NEVER])
  })

  test('goes on to the next day once, also if lines around midnight have changed places', () => {
    const times = ['23:59:59.8', '00:00:00.2', '23:59:59.9', '00:00:00.4', '22:00:00.0', '21:00:00.0']
    const lines = times.map((time, index) => `1,${time},allocate,0x${7 + index}f00,512,0x0`)
    const trace = readRecording(Buffer.from(['Thread,Time,Action,Pointer,Size,Stream', ...lines].join('\n')), {
      name: 'run',
    })
    const dayS = 86_400
    assert.deepEqual(
      Array.from(trace.timeUs, timeUs => timeUs / 1e6),
      [dayS - 0.2, dayS + 0.2, dayS + 0.2, dayS + 0.4, dayS + 79_200, dayS + 79_200],
      'times of a recording do not go back',
    )
  })

  test('is read with Windows line ends, a colon before the microseconds, seconds, and the word deallocate', () => {
    const trace = readRecording(
      Buffer.from(
        'Thread,Time,Action,Pointer,Size,Stream\r\n1,1:02:03:000004,allocate,7f00,512,0x0\r\n\r\n' +
          '1,1:02:03:000005,deallocate,7f00,512,0x0\r\n1,1634567890.5,allocate,0x7f00,512,(nil)\n',
      ),
      { name: 'run' },
    )
    assert.deepEqual(eventsOf(trace), [
      '3723000004 alloc 7f00 512 0',
      '3723000005 freeRequested 7f00 512 0',
      '3723000005 freeCompleted 7f00 512 0',
      '1634567890500000 alloc 7f00 512 0',
    ])
  })

  test('may have a free after the next allocation at its address', () => {
    const log = [
      'Thread,Time,Action,Pointer,Size,Stream',
      '1,00:00:01.0,allocate,0x10,512,0x0',
      '2,00:00:02.0,allocate,0x10,256,0x0',
      '1,00:00:01.5,free,0x10,512,0x0',
      '2,00:00:03.0,free,0x10,256,0x0',
      '2,00:00:04.0,free,0x10,256,0x0',
    ]
    const trace = readRecording(Buffer.from(log.join('\n')), { name: 'run' })
    assert.deepEqual([...trace.blocks.bytes], [512, 256])
    assert.deepEqual([...trace.blocks.freeRequestedAt], [1, 4])
    assert.equal(trace.skippedEvents, 3, 'the missing free, the late free, and the second free')
    assert.deepEqual([...trace.timeUs], [1e6, 2e6, 2e6, 2e6, 3e6, 3e6])
  })

  test('leaves out the late free of a block that has the size of the next one at its address', () => {
    const log = [
      'Thread,Time,Action,Pointer,Size,Stream',
      '1,00:00:01.0,allocate,0x10,512,0x0',
      '2,00:00:02.0,allocate,0x10,512,0x0',
      '1,00:00:03.0,free,0x10,512,0x0',
      '1,00:00:04.0,allocate,0x1000,512,0x0',
      '2,00:00:05.0,free,0x10,512,0x0',
      '2,00:00:06.0,allocate,0x10,512,0x0',
    ]
    const trace = readRecording(Buffer.from(log.join('\n')), { name: 'run' })
    const { address, freeRequestedAt } = trace.blocks
    assert.deepEqual([...address], [0x10, 0x10, 0x1000, 0x10])
    assert.deepEqual([...freeRequestedAt], [1, 5, NEVER, NEVER])
    assert.equal(trace.peakRequestedBytes, 1024)
    assert.equal(trace.skippedEvents, 2, 'the missing free and the late free')
  })

  test('is refused with the first bad line', () => {
    const log = (line: string) => refusal(`Thread,Time,Action,Pointer,Size,Stream\n${line}\n`)
    assert.match(log('1,now,allocate,0x10,512,0x0'), /^line 2: Time must be like 13:05:59.123456, not 'now'$/)
    assert.match(log('1,0:00:00.1,take,0x10,512,0x0'), /^line 2: Action must be allocate, .* not 'take'$/)
    assert.match(
      log('1,0:00:00.1,allocate,here,512,0x0'),
      /^line 2: Pointer must be an address like 0x7f00, not 'here'/,
    )
    assert.match(log('1,0:00:00.1,allocate,0xffffffffffffffff,512,0x0'), /^line 2: Pointer/)
    assert.match(log('1,0:00:00.1,allocate,0x10,-5,0x0'), /^line 2: Size must be bytes, not '-5'/)
    assert.match(log('1,0:00:00.1,allocate,0x10,5,main'), /^line 2: Stream must be/)
    assert.match(log('1,0:00:00.1,allocate'), /^line 2 has 3 fields; the first line names 6$/)
    assert.match(log(`1,${'x'.repeat(70_000)}`), /^line 2 is longer than 64 KiB$/)
    assert.match(log(''), /^holds no events; RMM writes them through a LoggingResourceAdaptor$/)
  })
})

describe('an export of Nsight Systems', () => {
  test('has device memory of the busiest process, and the peak of the pools of the driver', () => {
    const trace = readRecording(fixture('nsight.fixture.csv'))
    assert.deepEqual(eventsOf(trace), [
      '0 alloc 7f544a44c000 2097152 0',
      '2 alloc 7f544a64c000 65536 d',
      '3 freeRequested 7f544a44c000 2097152 0',
      '3 freeCompleted 7f544a44c000 2097152 0',
      '6 freeRequested 7f544a64c000 65536 d',
      '6 freeCompleted 7f544a64c000 65536 d',
    ])
    assert.equal(trace.recorder, 'CUDA')
    assert.equal(trace.skippedEvents, 2, 'pinned memory, and the other process')
    assert.deepEqual(trace.otherDevices, [{ device: 1, events: 1 }])
    assert.equal(trace.recordedPeakReservedBytes, 33_554_432 + 2_097_152)
    const second = readRecording(fixture('nsight.fixture.csv'), { device: 1 })
    assert.deepEqual([second.device, second.allocations], [1, 1])
  })

  test('has a trace for each device', () => {
    const path = fixture('nsight.fixture.csv')
    const each = [0, 1].map(device => readRecording(path, { device }))
    assert.deepEqual(readRecordings(path), each)
    assert.deepEqual(readRecordings(readFileSync(path), { name: path }), each)
    assert.equal(readRecordings(fixture('rmm.fixture.csv')).length, 1)
  })

  test('needs only the columns of older versions', () => {
    const trace = readRecording(
      Buffer.from('start,address,bytes,memKind,memoryOperationType\n20,512,64,2,1\n10,1024,32,2,0\n'),
      { name: 'run' },
    )
    assert.deepEqual(eventsOf(trace), [
      '0 alloc 400 32 0',
      '0.01 freeRequested 200 64 0',
      '0.01 freeCompleted 200 64 0',
    ])
    assert.equal(trace.recordedPeakReservedBytes, 96, 'memory from before counts')
  })

  test('is refused with the first bad line', () => {
    const header = 'start,address,bytes,memKind,memoryOperationType,deviceId\n'
    assert.match(refusal(`${header}x,1,1,2,0,0\n`), /^line 2: start must be a whole number, not 'x'$/)
    assert.match(refusal(`${header}1,,1,2,0,0\n`), /^line 2: address must be a whole number, not ''$/)
    assert.match(refusal(`${header}1\r\x1b2,1,1,2,0,0\n`), /^line 2: start must be a whole number, not '1 2'$/)
    assert.match(refusal(`${header}1,-1,1,2,0,0\n`), /^line 2: address and bytes must be 0 or above$/)
    assert.match(refusal(`${header}1,1,1,1,0,0\n`), /^holds no events of device memory; record with nsys profile/)
    assert.match(refusal(`${header}1,1,1,2,0,0\n`, 3), /^holds no events of device 3; it has some of device 0$/)
  })

  const hasSqlite = process.getBuiltinModule('node:sqlite' as 'node:fs') !== undefined
  test('is read from the database', { skip: !hasSqlite && 'this Node has no node:sqlite' }, () => {
    const { file: _, ...read } = readRecording(fixture('nsight.fixture.sqlite'))
    const { file: __, ...csv } = readRecording(fixture('nsight.fixture.csv'))
    assert.deepEqual(read, csv)
    const text = join(folder, 'damaged.sqlite')
    writeFileSync(text, readFileSync(fixture('nsight.fixture.sqlite')).fill(0xff, 1024))
    assert.throws(() => readRecording(text), FormatError)
  })

  test('names the command for a Node without SQLite', { skip: hasSqlite && 'this Node has node:sqlite' }, () => {
    const path = fixture('nsight.fixture.sqlite')
    assert.throws(() => readRecording(path), {
      name: 'FormatError',
      message: `${path}: is an SQLite database, which Node ${process.version} cannot read; run: ${csvCommand(path)}`,
    })
  })
})

describe('a trace of torch.profiler', () => {
  const text = readFileSync(fixture('profiler.fixture.json'), 'utf8')

  test('has the memory events of CUDA in the order of time, with the slices around them as stacks', () => {
    const trace = readRecording(fixture('profiler.fixture.json'))
    assert.deepEqual(eventsOf(trace), [
      '0 alloc 7f544a44c000 4096 0',
      '344.875 alloc 7f544a44d000 1048576 0',
      '444.875 freeRequested 7f544a44c000 4096 0',
      '444.875 freeCompleted 7f544a44c000 4096 0',
      '544.875 outOfMemory NaN 999999999 0',
    ])
    assert.deepEqual(framesOf(trace, 0).map(frameText), [':0 aten::empty', 'model.py:30 forward', 'train.py:12 main'])
    assert.deepEqual(framesOf(trace, 1).map(frameText), ['train.py:12 main'])
    assert.equal(trace.recordedPeakReservedBytes, 4_194_304)
    assert.deepEqual(trace.annotations, [
      { name: 'ProfilerStep#1', startUs: -65.125, endUs: 384.875, start: 0, end: 2 },
    ])
    assert.equal(trace.skippedEvents, 1, 'memory of the host')
    assert.equal(trace.recorder, 'PyTorch')
  })

  test('may be a bare list that has no end', () => {
    const list = text.slice(text.indexOf('[\n'), text.indexOf('],\n  "traceName"'))
    const { file: _, ...whole } = readRecording(Buffer.from(text), { name: 'run' })
    const { file: __, ...bare } = readRecording(Buffer.from(list), { name: 'run' })
    assert.deepEqual(bare, whole)
  })

  test('is refused with the place of the first bad event', () => {
    assert.match(refusal(text.slice(0, 1600)), /^traceEvents\[7\] \(byte 1600\) is cut short$/)
    assert.match(refusal(text.replace('"dur": 900.0', '"dur": ,')), /^traceEvents\[0\] \(byte \d+\) is not valid JSON$/)
    assert.match(refusal(text.replace('"Bytes": 4096', '"Bytes": "many"')), /^traceEvents\[5\].args\['Bytes'\] must be/)
    assert.match(refusal(text.replace('"ts": 255.125', '"ts": null')), /^traceEvents\[5\].ts must be a number/)
    assert.match(refusal(`{"traceEvents": [${'['.repeat(200)}`), /^traceEvents\[0\] .* containers more than 100 deep$/)
    assert.match(refusal('{"traceEvents": []}'), /^holds no memory events of CUDA; record with torch.profiler/)
    assert.match(refusal('{"a": "\\"traceEvents\\"", "b": {"traceEvents": []}}'), /^has no list traceEvents$/)
    assert.match(refusal(text, 5), /^holds no events of device 5; it has some of device 0$/)
  })
})

describe('a recording of many devices', () => {
  const snapshotOf = (devices: number) =>
    JSON.stringify({ device_traces: Array.from({ length: devices }, (_, i) => [event('alloc', BASE + i, 8)]) })
  const nsightOf = (devices: number) =>
    'start,address,bytes,memKind,memoryOperationType,deviceId\n' +
    Array.from({ length: devices }, (_, i) => `${i},${i},1,2,0,${i}\n`).join('')
  const profileOf = (devices: number) =>
    JSON.stringify({
      traceEvents: Array.from({ length: devices }, (_, i) => ({
        ...{ name: '[memory]', ts: i, pid: 1, tid: 1 },
        args: { 'Device Type': 1, 'Device Id': i, Addr: 1, Bytes: 1 },
      })),
    })

  for (const [name, of] of Object.entries({ snapshotOf, nsightOf, profileOf })) {
    test(`has a trace for each, by ${name}`, () => {
      const bytes = Buffer.from(of(64))
      const traces = readRecordings(bytes, { name: 'run' })
      assert.deepEqual(
        traces.map(({ device }) => device),
        Array.from({ length: 64 }, (_, i) => i),
      )
      for (const device of [0, 63]) assert.deepEqual(traces[device], readRecording(bytes, { name: 'run', device }))
    })

    // Read once for each device, this takes minutes.
    test(`is read only one by one if it has thousands, by ${name}`, () => {
      const bytes = Buffer.from(of(20_000))
      assert.throws(() => readRecordings(bytes, { name: 'run' }), {
        name: 'FormatError',
        message:
          /^run: holds events of 20000 devices, and at most 64 are read at once; choose one by --gpu, or by the option/,
      })
      assert.equal(readRecording(bytes, { name: 'run', device: 19_999 }).device, 19_999)
      assert.match(refusal(bytes, 20_000), / 7 and 19992 more$/)
    })
  }
})

describe('a recording', () => {
  test('may be packed by gzip, in each format', () => {
    for (const name of ['rmm.fixture.csv', 'nsight.fixture.csv', 'profiler.fixture.json']) {
      const path = join(folder, `${name}.gz`)
      writeFileSync(path, gzipSync(readFileSync(fixture(name))))
      assert.deepEqual(readRecording(path), { ...readRecording(fixture(name)), file: path })
    }
  })

  test('of another format is refused in one line that starts with the path', () => {
    const path = join(folder, 'foreign')
    const refused = (content: string | Buffer) => {
      writeFileSync(path, content)
      try {
        readRecording(path)
      } catch (error) {
        assert.ok(error instanceof FormatError && error.message.startsWith(`${path}: `), String(error))
        return error.message.slice(path.length + 2)
      }
      assert.fail('accepted')
    }
    assert.match(refused(''), /^the file is empty$/)
    assert.match(refused('hello'), /^is no recording: .*nsys export --type sqlite/)
    assert.match(refused('PK\x03\x04'), /^is a ZIP archive/)
    assert.match(refused(gzipSync('a,b\n1,2\n')), /^is no recording/)
    assert.match(refused(gzipSync('SQLite format 3\0')), /^is an SQLite database/)
    assert.match(refused('{"name":"a"}'), /^is no memory snapshot of PyTorch, .*; _dump_snapshot\(\) writes one$/)
    assert.match(refused('{"device_traces":[]}'), /^holds no events; record with torch.cuda.memory._record_memory_hist/)
    rmSync(path)
    assert.throws(() => readRecording(path), { message: `${path}: no such file` })
    assert.throws(() => readRecording(folder), /is a directory/)
  })

  test('has a source and known options', () => {
    for (const source of ['', undefined, null, 7, [1], new Float64Array(1)]) {
      const message = /source must be the path of a recording or its bytes, not/
      for (const door of [readRecording, readRecordings]) {
        assert.throws(() => door(source as never), { name: 'TypeError', message })
      }
    }
    assert.throws(() => readRecording('x', { name: 7 as never }), { name: 'TypeError', message: /name must be a str/ })
    assert.throws(() => readRecording('x', { gpu: 1 } as never), { name: 'TypeError', message: /unknown option 'gpu'/ })
  })
})
