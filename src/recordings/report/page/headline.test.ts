import assert from 'node:assert/strict'
import { test } from 'node:test'
import { GiB, MiB } from '../../../core/base/bytes.js'
import { readRecording } from '../../trace/formats/read-recording.js'
import type { ReplayReport } from '../../trace/replay-result.js'
import { emptyRun } from '../../trace/run-figures.js'
import { Action, type Trace } from '../../trace/trace.js'
import { TraceBuilder } from '../../trace/trace-builder.js'
import { traceFigures } from '../../trace/trace-figures.js'
import { holding } from '../trace-texts.fixture.js'
import { growthSentence } from '../why/leak-text.js'
import { answerOf, verdictLines } from './headline.js'

const answerFor = (trace: Trace) => answerOf({ trace, replay: null, tuned: null })

test('the head says first that memory ran out, why, and what the verdict alone says of a remedy', () => {
  const failedWith = (freeBytes: number) => {
    const builder = new TraceBuilder()
    builder.add(Action.segmentAlloc, 2 ** 40, 2 * GiB, 0, 0)
    builder.add(Action.alloc, 2 ** 40, 2 * GiB, 0, 0)
    builder.add(Action.outOfMemory, freeBytes, 4 * GiB, 0, 0)
    return answerFor(builder.build({ file: 'run.pickle' })).verdict
  }
  const memory = 'PyTorch reserved at most 2 GiB for at most 2 GiB in use: 1.00 ×.'
  assert.deepEqual(failedWith(1 * GiB), [
    'Out of memory: really too little.',
    'No allocator could serve this: 3 GiB are missing.',
    memory,
  ])
  assert.deepEqual(failedWith(9 * GiB), [
    "Out of memory: the program's own limit.",
    'Raise the limit, or hold less.',
    memory,
  ])
})

test('the head says first that memory grows, and where, unless the growth is small', () => {
  const { verdict, held } = answerFor(readRecording('traces/pairs/lstm-seed0-grown-leak.pickle.gz'))
  assert.equal(verdict[0], 'Memory grows from step to step: 5.79 MiB a step at app/pairs.py:86 leak_one.')
  assert.match(verdict[1], /^PyTorch reserved at most 376 MiB for at most 268\.85 MiB in use: 1\.40 ×\.$/)
  assert.match(held!.title, /^Most in use: 268\.85 MiB at event 1,001, in step 7 of 8, .* Held then, by call site:$/)
  assert.deepEqual(held!.rows[2].text, 'app/pairs.py:86 leak_one (7 blocks)')
  assert.match(answerFor(readRecording('traces/pairs/lstm-seed0-a.pickle.gz')).verdict[0], /^PyTorch reserved/)

  const keeping = (otherMebibytes: number) => {
    const builder = new TraceBuilder()
    const stack = builder.stacks.number([builder.stacks.entry('serve.py', 7, 'keep')])
    let address = 2 ** 40
    const add = (action: number, at: number, mebibytes: number, ofStack = 0) =>
      builder.add(action, at, mebibytes * MiB, 0, builder.events, ofStack)
    add(Action.alloc, 2 ** 41, otherMebibytes)
    for (let i = 0; i < 40; i++) {
      add(Action.alloc, address, 1, stack)
      for (const action of [Action.alloc, Action.freeRequested, Action.freeCompleted]) add(action, address + GiB, 1)
      address += 2 * GiB
    }
    return answerFor(builder.build({ file: 'run.pickle' })).verdict
  }
  const grows =
    'Memory grows through the whole recording: 40 MiB at serve.py:7 keep. ' +
    'That is a leak, or a cache that is not full yet.'
  assert.equal(keeping(1)[0], grows)
  assert.equal(keeping(8000).at(-1), grows)
  const unnamed = { site: null, blockBytes: MiB, blocks: 40, bytes: 40 * MiB, firstBytes: null } as never
  const { text } = growthSentence({ steps: null, stepLeaks: null, sites: [unnamed] })!
  assert.match(text, /^Memory grows through the whole recording: 40 MiB without a call stack, blocks of 1 MiB\. /)
})

test('the three places that hold most at the peak are named, and the rest in one row; none without call stacks', () => {
  const blocks = [1, 2, 3, 4, 5].map(mebibytes => [mebibytes, ['train.py', mebibytes, `f${mebibytes}`]] as const)
  assert.deepEqual(
    answerFor(holding(blocks)).held!.rows.map(({ bytes, text }) => [bytes / MiB, text]),
    [
      [5, 'train.py:5 f5 (1 block)'],
      [4, 'train.py:4 f4 (1 block)'],
      [3, 'train.py:3 f3 (1 block)'],
      [3, 'other places'],
    ],
  )
  assert.equal(answerFor(holding([[1]])).held, null)
})

test('the verdict names the allocator that was recorded', () => {
  const firstOf = (recorder: Trace['recorder']) =>
    verdictLines(holding([[1]], { recorder, peakReservedBytes: 2 * MiB }), null)[0]
  assert.equal(firstOf('PyTorch'), 'PyTorch reserved at most 2 MiB for at most 1 MiB in use: 2.00 ×.')
  assert.equal(firstOf('CUDA'), 'CUDA reserved at most 2 MiB for at most 1 MiB in use: 2.00 ×.')
  assert.equal(firstOf('RMM'), 'RMM reserved at most 2 MiB for at most 1 MiB in use: 2.00 ×.')
  assert.equal(firstOf('cuda-mempool'), 'The pool reserved at most 2 MiB for at most 1 MiB in use: 2.00 ×.')
})

test('the verdict says how many requests the pool could not serve, though none failed in the recording', () => {
  const trace = holding([[1]])
  const run = { ...emptyRun('cuda-mempool', trace), peakReservedBytes: 0, overhead: 0, failures: 1 }
  const replay = { trace: traceFigures(trace), runs: [run] } as unknown as ReplayReport
  assert.equal(verdictLines(trace, replay)[1], 'cuda-mempool could not serve 1 request.')
})
