// Each format against a golden file, and its contents decoded again. `UPDATE_GOLDEN=1` writes the golden files anew.

import assert from 'node:assert/strict'
import { readFileSync, writeFileSync } from 'node:fs'
import { describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { gunzipSync } from 'node:zlib'
import { MiB } from '../../../core/base/bytes.js'
import { readRecording } from '../../trace/formats/read-recording.js'
import { Action } from '../../trace/trace.js'
import { TraceBuilder } from '../../trace/trace-builder.js'
import { collapsedStacks } from './collapsed.js'
import { allocationRows } from './csv.js'
import { heldStacks, peakEvent } from './moment.js'
import { perfettoTrace } from './perfetto.js'
import { recordedMemory, replayedMemory } from './policy-memory.js'
import { pprofProfile } from './pprof.js'
import { ProtobufMessage } from './protobuf.js'
import { reportJson } from './report-json.js'
import { pictureSvg } from './svg.js'

const MLP = fileURLToPath(new URL('../../../../../traces/mlp-train-stacks.pickle.gz', import.meta.url))
const BASE = 0x7f0000000000

/** Two streams, a block from before, two large blocks at once, a failed request, and hostile names. */
function tiny() {
  const builder = new TraceBuilder()
  const { stacks } = builder
  const main = stacks.entry('/home/a/train.py', 12, 'main')
  const forward = stacks.number([stacks.entry('/home/a/model.py', 30, 'forward'), main])
  const hostile = stacks.number([stacks.entry('/home/a/"x",;\n<b>.py', 1, '=cmd()'), main])
  builder.add(Action.segmentAlloc, BASE, 64 * MiB, 0, 1000)
  builder.add(Action.alloc, BASE, 20 * MiB, 0, 1010.5, forward)
  builder.add(Action.alloc, BASE + 20 * MiB, 16 * MiB, 7, 1020, hostile)
  builder.add(Action.alloc, BASE + 40 * MiB, 512, 0, 1020, forward)
  builder.add(Action.freeRequested, BASE, 20 * MiB, 0, 1030)
  builder.add(Action.freeCompleted, BASE, 20 * MiB, 0, 1035)
  builder.add(Action.freeRequested, BASE + 50 * MiB, 1000, 0, 1040)
  builder.add(Action.outOfMemory, NaN, 2 ** 40, 0, 1050, hostile)
  const marks = [
    ['step#1', 1005, 1030],
    ['step#2', 1025, 1060],
    ['all', NaN, 1060],
  ] as const
  const annotations = marks.flatMap(([name, startUs, endUs]) => [
    ...(Number.isNaN(startUs) ? [] : [{ isStart: true, name, timeUs: startUs }]),
    { isStart: false, name, timeUs: endUs },
  ])
  return builder.build({ file: 'tiny', peakReservedBytes: 64 * MiB, annotations })
}

function matchesGolden(name: string, actual: Buffer): void {
  const path = fileURLToPath(new URL(`../../../../../src/recordings/report/export/${name}`, import.meta.url))
  if (process.env['UPDATE_GOLDEN'] === '1') writeFileSync(path, actual)
  assert.deepEqual(actual.toString('latin1'), readFileSync(path).toString('latin1'))
}

/** The fields of a message by number: numbers, and bytes. */
function decoded(bytes: Buffer): Map<number, (number | Buffer)[]> {
  const fields = new Map<number, (number | Buffer)[]>()
  let at = 0
  const varint = () => {
    let [value, scale] = [0, 1]
    for (; ; scale *= 128) {
      const byte = bytes[at++]
      assert.ok(byte !== undefined, 'cut short')
      value += (byte % 128) * scale
      if (byte < 128) return value
    }
  }
  while (at < bytes.length) {
    const tag = varint()
    const length = varint()
    assert.ok(tag % 8 === 0 || tag % 8 === 2, `wire type ${tag % 8}`)
    const value = tag % 8 === 0 ? length : bytes.subarray(at, at + length)
    if (tag % 8 === 2) at += length
    fields.set(Math.floor(tag / 8), [...(fields.get(Math.floor(tag / 8)) ?? []), value])
  }
  assert.equal(at, bytes.length)
  return fields
}

/** The numbers of a packed field. */
function numbersIn(bytes: Buffer): number[] {
  const numbers: number[] = []
  let [value, scale] = [0, 1]
  for (const byte of bytes) {
    value += (byte % 128) * scale
    scale *= 128
    if (byte >= 128) continue
    numbers.push(value)
    value = 0
    scale = 1
  }
  return numbers
}

const message = (fields: Map<number, (number | Buffer)[]>, field: number) => decoded(fields.get(field)?.[0] as Buffer)
const textIn = (fields: Map<number, (number | Buffer)[]>, field: number) => String(fields.get(field)?.[0] ?? '')

describe('the moment', () => {
  test('of the peak is the first event with the most bytes in use', () => {
    const trace = tiny()
    assert.equal(peakEvent(trace), 3)
    const mlp = readRecording(MLP)
    const atPeak = heldStacks(mlp, peakEvent(mlp)).reduce((sum, { bytes }) => sum + bytes, 0)
    assert.equal(atPeak, mlp.peakRequestedBytes)
  })

  test('has each block that was held, and no other', () => {
    const trace = tiny()
    const at = (event: number) => heldStacks(trace, event).map(({ bytes, blocks }) => [bytes, blocks])
    assert.deepEqual(at(-1), [[1000, 1]])
    assert.deepEqual(at(3), [
      [20 * MiB + 512, 2],
      [16 * MiB, 1],
      [1000, 1],
    ])
    assert.deepEqual(at(7), [
      [16 * MiB, 1],
      [512, 1],
    ])
  })

  test('is refused without stacks, and beyond the recording', () => {
    const builder = new TraceBuilder()
    builder.add(Action.alloc, BASE, 1, 0, 0)
    const bare = (recorder: 'PyTorch' | 'RMM') => builder.build({ file: 'bare', recorder })
    assert.throws(() => heldStacks(bare('PyTorch'), 0), {
      name: 'FormatError',
      message: /^bare: no call stacks .*context/,
    })
    assert.throws(() => heldStacks(bare('RMM'), 0), { name: 'FormatError', message: /; RMM logs none$/ })
    assert.throws(() => heldStacks(tiny(), 8), { name: 'RangeError', message: /from 0 to 7, not 8/ })
  })
})

describe('a wrong argument', () => {
  const wrong: readonly unknown[] = [undefined, null, {}, 5, 'run.pickle']
  const name = 'TypeError'

  test('is refused by name where a trace is wanted', () => {
    const writers = { collapsedStacks, pprofProfile, allocationRows, perfettoTrace, pictureSvg }
    for (const [call, of] of Object.entries({ ...writers, peakEvent, heldStacks, recordedMemory })) {
      const message = new RegExp(`^${call}: trace must be a Trace of readRecording or recorded, not `)
      for (const trace of wrong) assert.throws(() => (of as (trace: unknown) => unknown)(trace), { name, message })
    }
  })

  test('is refused by name where the report of a replay is wanted', () => {
    for (const [call, of] of Object.entries({ reportJson, replayedMemory })) {
      const message = new RegExp(`^${call}: report must be what replay\\(trace, open\\) resolves to, not `)
      for (const report of wrong) assert.throws(() => of(report as never), { name, message })
    }
    const message = 'pictureSvg: replay must be what replay(trace, open) resolves to, not a Promise'
    assert.throws(() => pictureSvg(tiny(), Promise.resolve() as never), { name, message })
  })

  test('is refused by name where a list of policies is wanted', () => {
    for (const [call, of] of Object.entries({ allocationRows, perfettoTrace })) {
      const message = `${call}: policies must be a list, such as of replayedMemory(report), not an Object`
      assert.throws(() => of(tiny(), {} as never), { name, message })
    }
  })
})

describe('collapsed stacks', () => {
  test('are as the golden file has them', () =>
    matchesGolden('golden.fixture.collapsed', Buffer.from(collapsedStacks(tiny()))))

  test('have one line for each stack, with the bytes at its end', () => {
    const lines = collapsedStacks(readRecording(MLP)).trimEnd().split('\n')
    for (const line of lines) assert.match(line, /^[^;]+(;[^;]+)* \d+$/)
    const total = lines.reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(' '))), 0)
    assert.equal(total, readRecording(MLP).peakRequestedBytes)
  })
})

describe('the profile for pprof', () => {
  test('is as the golden file has it', () => matchesGolden('golden.fixture.pprof', gunzipSync(pprofProfile(tiny()))))

  test('has the held bytes of each stack, innermost frame first', () => {
    const profile = decoded(gunzipSync(pprofProfile(tiny())))
    const texts = profile.get(6)!.map(String)
    assert.equal(texts[0], '')
    const types = profile.get(1)!.map(type => texts[decoded(type as Buffer).get(1)![0] as number])
    assert.deepEqual(types, ['inuse_objects', 'inuse_space', 'alloc_objects', 'alloc_space'])
    const functions = new Map(
      profile.get(5)!.map(each => {
        const fields = decoded(each as Buffer)
        assert.equal(fields.has(3), false, 'pprof would shorten a name that is its own system name')
        return [fields.get(1)![0], `${texts[fields.get(4)![0] as number]} ${texts[fields.get(2)![0] as number]}`]
      }),
    )
    const locations = new Map(
      profile.get(4)!.map(each => {
        const fields = decoded(each as Buffer)
        const line = message(fields, 4)
        return [fields.get(1)![0], `${functions.get(line.get(1)![0])}:${line.get(2)![0]}`]
      }),
    )
    const samples = profile.get(2)!.map(each => {
      const fields = decoded(each as Buffer)
      const [path] = fields.get(1) as Buffer[]
      return [...path].map(id => locations.get(id)).join(' < ')
    })
    assert.deepEqual(samples, [
      'model.py forward:30 < train.py main:12',
      '"x",;\n<b>.py =cmd():1 < train.py main:12',
      ' (before the recording):0',
    ])
    assert.equal(texts[profile.get(14)![0] as number], 'inuse_space')
  })
})

describe('machinery', () => {
  const torch = '/env/lib/python3.11/site-packages/torch/nn/modules'
  const lines = [
    ['??', 0, 'torch::unwind::unwind()'],
    ['', 0, 'c10::cuda::CUDACachingAllocator::Native::NativeCachingAllocator::allocate(unsigned long)'],
    [`${torch}/linear.py`, 125, 'forward'],
    [`${torch}/module.py`, 1790, '_call_impl'],
    ['/home/a/model.py', 30, 'forward'],
  ] as const
  const node = ['??', 0, 'torch::autograd::generated::MmBackward0::apply(std::vector<at::Tensor>&&)'] as const
  const engine = ['??', 0, 'torch::autograd::Engine::thread_main()'] as const
  const builder = new TraceBuilder()
  const stackOf = (frames: readonly (readonly [string, number, string])[]) =>
    builder.stacks.number(frames.map(frame => builder.stacks.entry(...frame)))
  builder.add(Action.alloc, BASE, 20 * MiB, 0, 1, stackOf(lines))
  builder.add(Action.alloc, BASE + 20 * MiB, 16 * MiB, 0, 2, stackOf([...lines.slice(0, 2), node, engine]))
  builder.add(Action.freeRequested, BASE, 20 * MiB, 0, 3)
  builder.add(Action.alloc, BASE + 64 * MiB, MiB, 0, 4, stackOf([...lines.slice(0, 2), engine]))
  const trace = builder.build({ file: 'native' })

  test('is left out of collapsed stacks, and a stack of nothing else is a group', () => {
    assert.equal(
      collapsedStacks(trace),
      `model.py:30 forward;torch/nn/modules/linear.py:125 forward ${20 * MiB}\nbackward of mm ${16 * MiB}\n`,
    )
    assert.equal(collapsedStacks(trace, 3), `backward of mm ${16 * MiB}\nautograd's thread ${MiB}\n`)
  })

  test('is left out of profiles, whose sums are those in use and those of the whole recording', () => {
    const profile = decoded(gunzipSync(pprofProfile(trace, 3)))
    const texts = profile.get(6)!.map(String)
    assert.deepEqual(
      profile.get(5)!.map(each => texts[decoded(each as Buffer).get(2)![0] as number]),
      ['backward of mm', "autograd's thread", 'forward', 'forward'],
    )
    const values = profile.get(2)!.map(each => numbersIn((decoded(each as Buffer).get(2) as Buffer[])[0]))
    const sums = [0, 1, 2, 3].map(i => values.reduce((sum, sample) => sum + sample[i], 0))
    assert.deepEqual(sums, [2, 17 * MiB, 3, 37 * MiB])
  })

  test('never ends a stack with frames of C++: operators end it, or lines of programs and of PyTorch', () => {
    const allocators = /alloc|empty|resize|dispatch|handle_torch_function|unwind|PyObject|^[^.]*::call$/i
    const leaves = ['cnn-all', 'gpt-all', 'vit-all', 'gan-all'].flatMap(name => {
      const lines = collapsedStacks(readRecording(`traces/categories/${name}.pickle.gz`))
        .trimEnd()
        .split('\n')
      return lines.map(line => line.replace(/ \d+$/, '').split(';').at(-1)!)
    })
    assert.ok(leaves.includes('at::native::_to_copy') && leaves.length > 40, leaves.join('\n'))
    assert.deepEqual(
      leaves.filter(leaf => allocators.test(leaf)),
      [],
    )
  })

  test('names no allocation of the CSV and no counter', () => {
    const sites = [...allocationRows(trace)].join('').trimEnd().split('\n').slice(1)
    assert.deepEqual(
      sites.map(row => row.split(',')[9]),
      ['model.py:30 forward', 'backward of mm', "autograd's thread"],
    )
    const names = Buffer.concat([...perfettoTrace(trace)])
      .toString('latin1')
      .match(/held by [\w':. ]+/g)
    assert.deepEqual(names, ['held by model.py:30 forward', 'held by backward of mm'])
  })
})

describe('the CSV of allocations', () => {
  const csv = () => [...allocationRows(tiny())].join('')

  test('is as the golden file has it', () => matchesGolden('golden.fixture.csv', Buffer.from(csv())))

  test('has a row for each block and a column for each policy with addresses', () => {
    const trace = readRecording(MLP)
    const ours = {
      policy: 'cuda-mempool',
      address: new Float64Array(trace.blocks.count).fill(NaN),
      reservedBytes: null,
    }
    const unknown = { policy: 'driver-malloc', address: null, reservedBytes: null }
    const rows = [...allocationRows(trace, [recordedMemory(trace), ours, unknown])].join('').trimEnd().split('\n')
    assert.equal(rows.length, 1 + trace.blocks.count)
    assert.match(rows[0], /,site,recorded_address,cuda-mempool_address$/)
    for (const row of rows.slice(1)) assert.match(row, /,0x[0-9a-f]+,$/)
  })

  test('has no text that a spreadsheet takes for a formula, and negative numbers stay numbers', () => {
    const starts = ['=cmd()', '+1', '-1', '@SUM(1)', '\t=1', '\r=1', '=1,"2"']
    const builder = new TraceBuilder()
    starts.forEach((start, i) => {
      const stack = builder.stacks.number([builder.stacks.entry(`${start}.py`, 1, 'main')])
      builder.add(Action.alloc, BASE + i * MiB, 512, 0, 1000 - i, stack)
    })
    const rows = [...allocationRows(builder.build({ file: 'formulas' }))].join('')
    for (const start of starts) {
      const text = `'${start}.py:1 main`.replaceAll('"', '""')
      assert.ok(rows.includes(/[,\r]/.test(start) ? `,"${text}",` : `,${text},`), start)
    }
    assert.match(rows, /^1,512,,0,1,,,-1,,/m)
  })

  test('has empty times for a recording without times', () => {
    const trace = tiny()
    const rows = [...allocationRows({ ...trace, timeUs: new Float64Array(trace.events) })].join('').split('\n')
    const columns = rows[0].split(',')
    const [allocated, freed] = ['allocated_us', 'freed_us'].map(name => columns.indexOf(name))
    const first = rows[1].split(',')
    assert.deepEqual([first[allocated], first[freed]], ['', ''])
  })
})

describe("the trace for Perfetto's viewer", () => {
  const bytes = () => Buffer.concat([...perfettoTrace(tiny())])

  test('is as the golden file has it', () => matchesGolden('golden.fixture.pftrace', bytes()))

  test('has curves, failed requests, and large allocations on tracks of their own while they overlap', () => {
    const packets = decoded(bytes())
      .get(1)!
      .map(packet => decoded(packet as Buffer))
    const tracks = new Map<unknown, string>()
    const events: string[] = []
    for (const packet of packets) {
      assert.deepEqual(packet.get(10), [1], 'a sequence')
      if (packet.has(60)) {
        const track = message(packet, 60)
        tracks.set(track.get(1)![0], textIn(track, 2))
        if (track.has(8)) assert.deepEqual(message(track, 8).get(3), [3], 'in bytes')
      } else {
        const event = message(packet, 11)
        const kind = ['', 'begin', 'end', 'instant', 'counter'][event.get(9)![0] as number]
        const track = tracks.get(event.get(11)![0])
        assert.ok(track !== undefined, 'tracks come before their events')
        events.push(
          `${packet.get(8)![0]} ${kind} ${event.get(11)![0]} ${track}: ${event.get(30)?.[0] ?? textIn(event, 23)}`,
        )
      }
    }
    const isOfAnnotation = (event: string) => / (all|step): /.test(event)
    assert.deepEqual(events.filter(isOfAnnotation), [
      '0 begin 7 all: all',
      '5000 begin 8 step: step#1',
      '25000 begin 9 step: step#2',
      '30000 end 8 step: ',
      '50000 end 7 all: ',
      '50000 end 9 step: ',
    ])
    const hostile = 'held by "x",;\n<b>.py:1 =cmd()'
    assert.deepEqual(
      events.filter(event => !isOfAnnotation(event)),
      [
        '0 counter 2 in use: 1000',
        `0 counter 3 reserved: recorded: ${64 * MiB}`,
        '0 counter 10 largest idle piece: 0',
        `10500 counter 10 largest idle piece: ${50 * MiB}`,
        `10500 counter 2 in use: ${20 * MiB + 1000}`,
        `10500 counter 4 held by model.py:30 forward: ${20 * MiB}`,
        '10500 begin 11 allocations from 16 MiB on: 20 MiB model.py:30 forward',
        `20000 counter 10 largest idle piece: ${30 * MiB}`,
        `20000 counter 2 in use: ${36 * MiB + 1000}`,
        `20000 counter 5 ${hostile}: ${16 * MiB}`,
        '20000 begin 12 allocations from 16 MiB on: 16 MiB "x",;\n<b>.py:1 =cmd()',
        `20000 counter 10 largest idle piece: ${14 * MiB}`,
        `20000 counter 2 in use: ${36 * MiB + 1512}`,
        `20000 counter 4 held by model.py:30 forward: ${20 * MiB + 512}`,
        `30000 counter 10 largest idle piece: ${14 * MiB - 1024}`,
        `30000 counter 2 in use: ${16 * MiB + 1512}`,
        '30000 counter 4 held by model.py:30 forward: 512',
        '30000 end 11 allocations from 16 MiB on: ',
        `40000 counter 10 largest idle piece: ${20 * MiB}`,
        `40000 counter 2 in use: ${16 * MiB + 512}`,
        '50000 instant 6 out of memory: asked for 1 TiB',
        '50000 end 12 allocations from 16 MiB on: ',
      ],
    )
  })

  test('has an end for the times furthest apart, and refuses numbers that are none', () => {
    const builder = new TraceBuilder()
    const { MAX_SAFE_INTEGER: most } = Number
    for (const [i, time] of [-most, most].entries()) builder.add(Action.alloc, BASE + i, 1, 0, time)
    const trace = builder.build({ file: 'far' })
    const pieces = Buffer.concat([...perfettoTrace(trace, [recordedMemory(trace)])])
    const packets = decoded(pieces)
      .get(1)!
      .map(packet => decoded(packet as Buffer))
    assert.equal(Math.max(...packets.map(packet => (packet.get(8)?.[0] ?? 0) as number)), 2000 * most)
    for (const value of [Number.POSITIVE_INFINITY, Number.NaN, -1, 0.5, 2 ** 64]) {
      assert.throws(() => new ProtobufMessage().number(1, value), { name: 'AssertionError' })
    }
  })

  test('keeps the times of annotations if the clock of the recording goes back at its end', () => {
    const builder = new TraceBuilder()
    for (const [i, timeUs] of [1000, 1100, 1300, 1050].entries())
      builder.add(Action.alloc, BASE + i * 512, 1, 0, timeUs)
    const annotations = [true, false].map(isStart => ({ isStart, name: 'step', timeUs: isStart ? 1100 : 1250 }))
    const packets = decoded(Buffer.concat([...perfettoTrace(builder.build({ file: 'back', annotations }))])).get(1)!
    const times = packets
      .map(packet => decoded(packet as Buffer))
      .filter(packet => packet.has(11) && (message(packet, 11).get(9)![0] as number) < 3)
      .map(packet => packet.get(8)![0])
    assert.deepEqual(times, [100_000, 250_000])
  })
})
