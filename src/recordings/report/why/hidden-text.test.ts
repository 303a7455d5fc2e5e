import assert from 'node:assert/strict'
import { test } from 'node:test'
import { GiB, MiB } from '../../../core/base/bytes.js'
import { readRecording } from '../../trace/formats/read-recording.js'
import { replay } from '../../trace/replay.js'
import { replayDevices } from '../../trace/replay-devices.js'
import { Action, type Trace } from '../../trace/trace.js'
import { type FinalState, TraceBuilder } from '../../trace/trace-builder.js'
import { replayText } from '../replay-text.js'
import { PLAIN } from '../table.js'
import { unwrapped } from '../trace-texts.fixture.js'
import { whyText } from './why-text.js'

const STYLE = { width: 80, paint: PLAIN }
const textOf = (trace: Trace, deviceBytes: number | null = null) => unwrapped(whyText(trace, STYLE, { deviceBytes }))

/** Events with stacks of one frame, `name` at a line of `run.py`; sizes in MiB, addresses in GiB. */
class Recorded extends TraceBuilder {
  note(action: number, place: number, mebibytes: number, line = 0, name = 'f'): void {
    const stack = line === 0 ? 0 : this.stacks.number([this.stacks.entry('run.py', line, name)])
    this.add(action, place * GiB, mebibytes * MiB, 0, this.events, stack)
  }

  /** A segment with a block in it. */
  hold(place: number, mebibytes: number, line: number): void {
    this.note(Action.segmentAlloc, place, mebibytes, line)
    this.note(Action.alloc, place, mebibytes, line)
  }

  drop(place: number, mebibytes: number): void {
    this.note(Action.freeRequested, place, mebibytes)
    this.note(Action.freeCompleted, place, mebibytes)
  }
}

/** A program that empties the cache twice, and then runs full; `hasStacks` for a recording that says so. */
function givingBack(hasStacks = true): Trace {
  const builder = new Recorded()
  for (const [place, name] of [
    [1, 'empty_cache'],
    [2, 'empty_cache'],
    [3, 'whole'],
  ] as const) {
    builder.hold(place, 100, 5)
    builder.drop(place, 100)
    builder.note(Action.segmentFree, place, 100, hasStacks ? (name === 'whole' ? 88 : 40) : 0, name)
  }
  builder.hold(4, 150, 88)
  return builder.build({ file: 'run.pickle', settings: '' })
}

test('memory that was given back is named by line, and as the allocator’s or the program’s, in why and in replay', async () => {
  const trace = givingBack()
  const expected = [
    /The program itself called empty_cache\(\) 2 times, which gave back 200 MiB together, all at run\.py:40 empty_cache\./,
    /PyTorch ran full and gave back 100 MiB at run\.py:88 whole\. It then asks again, which waits for the GPU\./,
  ]
  const report = await replay(trace, replayDevices(trace, 'simulated'), { policies: ['recorded', 'pytorch'] })
  for (const text of [textOf(trace), unwrapped(replayText(report, STYLE))]) {
    for (const sentence of expected) assert.match(text, sentence)
    assert.doesNotMatch(text, /may have been/)
  }
})

test('without call stacks, memory that the allocator gave back may be the program’s', () => {
  assert.match(
    textOf(givingBack(false)),
    /PyTorch ran full .*waits for the GPU\. Without its call stacks, it may have been empty_cache\(\) too\./,
  )
})

test('memory outside of the recording follows from the size of the GPU', () => {
  const failing = (free: number, asked: number) => {
    const builder = new Recorded()
    builder.hold(1, 100, 5)
    builder.add(Action.outOfMemory, free, asked * MiB, 0, 9)
    return builder.build({ file: 'run.pickle' })
  }
  const tooLittle = failing(50 * MiB, 200)
  assert.match(textOf(tooLittle), /held then: --device-memory with the size of the GPU tells\./)
  assert.match(
    textOf(tooLittle, GiB),
    /Of 1 GiB, 100 MiB reserved and 50 MiB free at the failed request leave 874 MiB outside of PyTorch: other programs/,
  )
  assert.match(
    textOf(tooLittle, 140 * MiB),
    /--device-memory 140 MiB is too small: at the failed request the GPU had 100 MiB/,
  )
  assert.doesNotMatch(textOf(failing(500 * MiB, 200)), /device-memory/)
  const builder = new Recorded()
  builder.hold(1, 100, 5)
  const served = builder.build({ file: 'run.pickle' })
  assert.match(textOf(served, GiB), /Of 1 GiB, 924 MiB are left beside the 100 MiB that PyTorch reserved, for other/)
  assert.match(textOf(served, 64 * MiB), /--device-memory 64 MiB is too small: PyTorch reserved 100 MiB\./)
  assert.doesNotMatch(textOf(served), /device-memory/)
})

test('idle memory is shown with the blocks that keep it, where it matters', () => {
  const builder = new Recorded()
  for (const place of [1, 2, 3]) builder.note(Action.segmentAlloc, place, 100)
  for (const place of [1, 2]) builder.note(Action.alloc, place, 2, 7, 'put')
  builder.note(Action.segmentAlloc, 4, 100)
  const text = textOf(builder.build({ file: 'run.pickle' }))
  assert.match(
    text,
    /Most reserved: 400 MiB at event 5, 4 MiB in use then\. 396 MiB were idle, in 4 pieces, the largest/,
  )
  assert.match(text, /of this 200 MiB lie in 2 whole segments, which torch\.cuda\.empty_cache\(\) gives back\./)
  assert.match(text, /by call site: 196 MiB in 2 segments: run\.py:7 put \(2 blocks, 4 MiB\)/)
  assert.doesNotMatch(text, /By pool and stream/)
  const full = new Recorded()
  full.hold(1, 100, 5)
  assert.doesNotMatch(textOf(full.build({ file: 'run.pickle' })), /idle|Most reserved/)
})

test('memory that is reserved to the end, and over half of it idle, has a sentence', () => {
  const program = (ends: boolean) => {
    const builder = new Recorded()
    builder.hold(1, 500, 5)
    builder.drop(1, 500)
    builder.note(Action.alloc, 1, 12, 6)
    if (ends) builder.drop(1, 12)
    return textOf(builder.build({ file: 'run.pickle' }))
  }
  assert.match(program(false), /At the end of the recording 12 MiB are in use, and 500 MiB are still reserved\./)
  assert.doesNotMatch(program(true), /At the end/)
})

test('several pools or streams have a table at the peak', () => {
  const builder = new TraceBuilder()
  const pool = builder.pools.number('0,1')
  builder.add(Action.segmentAlloc, GiB, 20 * MiB, 0, 0)
  builder.notePool(builder.add(Action.segmentAlloc, 2 * GiB, 40 * MiB, 2 ** 40, 0), pool)
  builder.notePool(builder.add(Action.alloc, 2 * GiB, 30 * MiB, 2 ** 40, 0), pool)
  const text = whyText(builder.build({ file: 'run.pickle' }), STYLE)
  assert.match(text, /^By pool and stream then; none serves another:$/m)
  assert.match(text, /^\(0,1\) private +0x10000000000 +40 MiB +30 MiB +10 MiB +10 MiB$/m)
  assert.match(
    text,
    /^\d private pools?, .* ha(?:ve|s) \d+ MiB, 30 MiB of it in\s+use\.\s+Most in it:\n +30 MiB +\(0,1\), 40 MiB reserved: .*\(1 block\)$/m,
  )
  assert.match(text, /^\(0,0\) default +0 +20 MiB +0 B +20 MiB +20 MiB$/m)
})

test('memory that waits for another stream has a verdict, its call sites and a remedy in the program', () => {
  const builder = new Recorded()
  for (const place of [1, 2, 3]) {
    builder.hold(place, 100, 10)
    builder.note(Action.freeRequested, place, 100)
  }
  const served = textOf(builder.build({ file: 'run.pickle', saysCompleted: true }))
  assert.match(served, /together at most 300 MiB at event 7, 200 MiB more than is ever in use\./)
  assert.match(served, /No setting .*\.wait_stream\) instead of record_stream/)
  assert.match(served, /Waiting then, by call site: 200 MiB run\.py:10 f \(2 blocks\)/)
  builder.add(Action.outOfMemory, 50 * MiB, 200 * MiB, 0, 9)
  const failed = textOf(builder.build({ file: 'run.pickle', saysCompleted: true }))
  assert.match(failed, /→ Freed, but another stream still uses it: 300 MiB wait for the work of other streams/)
  assert.match(
    failed,
    /No setting of the allocator ends the wait\. In the program, .* A replay waits for these streams/,
  )
  assert.match(failed, /still in use on another stream, by call site: 300 MiB run\.py:10 f \(3 blocks\)/)
  assert.doesNotMatch(failed, /Fragmentation|no call stacks/)
})

test('growth is named by line, with steps and without', () => {
  const recording = (endsSteps: boolean) => {
    const builder = new Recorded()
    const marks: { name: string; timeUs: number; isStart: boolean }[] = []
    for (let cycle = 1; cycle <= 9; cycle++) {
      builder.note(Action.alloc, 100 + cycle, 10, 44, 'forward')
      builder.note(Action.alloc, cycle, 3, 66, 'log_loss')
      builder.drop(100 + cycle, 10)
      const mark = { name: 'Optimizer.step#SGD.step', timeUs: builder.events - 0.5 }
      if (endsSteps) marks.push({ ...mark, isStart: true }, { ...mark, isStart: false })
    }
    return textOf(builder.build({ file: 'run.pickle', annotations: marks }))
  }
  assert.match(
    recording(false),
    /That is a leak, or a cache that is not full yet\. No steps are marked: .* 27 MiB run\.py:66 log_loss \(9 blocks of 3 MiB, kept to the end\)/,
  )
  assert.match(
    recording(true),
    /3 MiB a step run\.py:66 log_loss \(6 blocks in 6 of 6 steps; kept to the end: 9 blocks, 27 MiB\)/,
  )
})

test('blocks that few steps leave to the end are named, without the word growth', () => {
  const builder = new Recorded()
  const marks: { name: string; timeUs: number; isStart: boolean }[] = []
  for (let step = 1; step <= 12; step++) {
    builder.note(Action.alloc, 100 + step, 10, 44, 'forward')
    if (step === 4 || step === 7) builder.note(Action.alloc, step, 16, 9, 'evaluate')
    builder.drop(100 + step, 10)
    const mark = { name: 'Optimizer.step#SGD.step', timeUs: builder.events - 0.5 }
    marks.push({ ...mark, isStart: true }, { ...mark, isStart: false })
  }
  const text = textOf(builder.build({ file: 'run.pickle', annotations: marks }))
  assert.match(text, /To the end stay 32 MiB of run\.py:9 evaluate \(2 blocks\)\. The last 2 are too near/)
  assert.doesNotMatch(text, /grows/)
})

test('blocks of several layers that grow are counted', () => {
  const builder = new Recorded()
  for (let token = 1; token <= 9; token++) {
    for (const layer of [1, 2, 3]) {
      builder.note(Action.alloc, 10 * token + layer, token, 481, 'update')
      if (token > 1) builder.drop(10 * (token - 1) + layer, token - 1)
    }
  }
  assert.match(
    textOf(builder.build({ file: 'run.pickle' })),
    /27 MiB run\.py:481 update \(3 blocks, each instead of a smaller one, the first 1 MiB\)/,
  )
})

test('a snapshot without events has an answer', () => {
  const final: FinalState = {
    segments: [{ address: GiB, bytes: 100 * MiB, stream: 0, expandable: true }],
    blocks: [{ address: GiB, bytes: 10 * MiB, stream: 0, pending: false }],
  }
  const text = textOf(new TraceBuilder().build({ file: 'state.pickle', final }))
  assert.match(text, /Most in use: 10 MiB in the snapshot, 100 MiB reserved then\./)
  assert.match(text, /Most reserved: 100 MiB in the snapshot, 10 MiB in use then\. 90 MiB were idle, in one piece/)
  assert.match(text, /expandable segments go back when PyTorch runs full/)
  assert.doesNotMatch(text, /count from 0/)
})

test('a recording of the real allocator has its waiting memory beside its peak', () => {
  const text = textOf(readRecording('traces/offload-train.pickle.gz'))
  assert.match(text, /together at most 1\.04 GiB at event 1,849, in step 4 of 10, 339\.82 MiB more than is ever in use/)
})

test('names in all lists are shown without control characters, within the width', () => {
  const name = `evil\x1b[2J${'x'.repeat(500)}`
  const builder = new Recorded()
  for (let cycle = 1; cycle <= 9; cycle++) {
    builder.note(Action.segmentAlloc, cycle, 20, 1, name)
    builder.note(Action.alloc, cycle, 3, 1, name)
    builder.note(Action.alloc, 100 + cycle, 3, 1, name)
    builder.drop(100 + cycle, 3)
    builder.hold(300 + cycle, 1, 5)
    builder.drop(300 + cycle, 1)
    builder.note(Action.segmentFree, 200, 0, 2, `${name}empty_cache`)
  }
  const text = whyText(builder.build({ file: 'run.pickle' }), { width: 40, paint: PLAIN })
  assert.match(text, /Memory grows/)
  assert.match(text, /Blocks that keep/)
  // biome-ignore lint/suspicious/noControlCharactersInRegex: they are what may not be there
  assert.doesNotMatch(text, /[\x00-\x09\x0b-\x1f]/)
  assert.deepEqual(
    text.split('\n').filter(line => line.length > 40),
    [],
  )
})
