import assert from 'node:assert/strict'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { MiB } from '../../../core/base/bytes.js'
import { readRecording } from '../formats/read-recording.js'
import { Action, BEFORE, type Trace } from '../trace.js'
import { TraceBuilder } from '../trace-builder.js'
import { curvesOf, liveAfter } from './curves.js'
import { growthOf } from './run-growth.js'
import { traceDifference } from './stack-diff.js'
import { leftBlocks, stepAt, stepsOf } from './steps.js'

const recording = (name: string) => fileURLToPath(new URL(`../../../../../traces/${name}.pickle.gz`, import.meta.url))

/** A program with an event each microsecond: [address, bytes] allocates, [address] frees. */
function program(lines: readonly (readonly [number, number?])[], ends: readonly [string, number][]): Trace {
  const builder = new TraceBuilder()
  for (const [i, [address, bytes]] of lines.entries()) {
    builder.add(bytes === undefined ? Action.freeRequested : Action.alloc, address, bytes ?? 0, 0, i)
  }
  const annotations = ends.flatMap(([name, timeUs]) =>
    [true, false].map(isStart => ({ isStart, name, timeUs: isStart ? timeUs - 0.5 : timeUs })),
  )
  return builder.build({ file: 'program', annotations })
}

test('a step leaves behind what it allocated and two further steps did not free', () => {
  const lines: [number, number?][] = [[1, 10], [2, 20], [3, 30], [2], [4, 40], [3], [5, 50]]
  const trace = program(lines, [
    ['Optimizer.step#SGD.step', 2],
    ['Optimizer.step#SGD.step', 4],
    ['Optimizer.step#SGD.step', 6],
    ['Optimizer.step#SGD.step', 7],
  ])
  const found = stepsOf(trace)!
  assert.deepEqual(found, {
    name: 'Optimizer.step#SGD.step',
    steps: [
      { from: 0, to: 2, leftBytes: 10, leftBlocks: 1 },
      { from: 2, to: 4, leftBytes: 0, leftBlocks: 0 },
      { from: 4, to: 6, leftBytes: null, leftBlocks: null },
      { from: 6, to: 7, leftBytes: null, leftBlocks: null },
    ],
  })
  assert.deepEqual(
    found.steps.map((_, step) => leftBlocks(trace, found, step)),
    [[0], [], [], []],
  )
})

test('steps are those of the optimizer with most, else of the profiler, or what a pattern finds', () => {
  const named = (...names: string[]) =>
    stepsOf(
      program(
        [[1, 1]],
        names.map((name, i) => [name, i + 1]),
      ),
    )
  assert.equal(
    named('Optimizer.step#A.step', 'Optimizer.step#B.step', 'Optimizer.step#B.step')?.name.slice(15, 16),
    'B',
  )
  assert.equal(named('ProfilerStep#1', 'ProfilerStep#2', 'forward')?.name, 'ProfilerStep')
  assert.equal(named('forward'), null)
  assert.equal(named(), null)
  const trace = program(
    [
      [1, 1],
      [2, 1],
    ],
    [
      ['epoch 1', 1],
      ['epoch 2', 2],
      ['Optimizer.step#A.step', 2],
    ],
  )
  assert.deepEqual(
    stepsOf(trace, /^epoch/g)?.steps.map(({ to }) => to),
    [1, 2],
  )
  assert.equal(stepsOf(trace, /batch/), null)
  assert.throws(() => stepsOf(trace, 'epoch' as never), /stepsOf: pattern must be a regular expression, not 'epoch'/)
})

test('steps that ended before the first event of the recording are left out', () => {
  const trace = program(
    [
      [1, 1],
      [2, 1],
    ],
    [
      ['Optimizer.step#A.step', -5],
      ['Optimizer.step#A.step', 1],
    ],
  )
  assert.deepEqual(
    stepsOf(trace)?.steps.map(({ from, to }) => [from, to]),
    [[0, 1]],
  )
  assert.equal(stepsOf(program([[1, 1]], [['Optimizer.step#A.step', -5]])), null)
})

test('of the recorded training runs only the first step leaves memory behind', () => {
  const { steps } = stepsOf(readRecording(recording('gpt2-train-varlen')))!
  const [first, ...later] = steps.map(({ leftBytes }) => leftBytes)
  assert.deepEqual([steps.length, Math.round(first! / MiB)], [12, 1490])
  assert.ok(later.slice(0, -2).every(bytes => bytes === 0))
})

for (const name of ['mlp-train-stacks', 'oom-retry-2gib', 'gpt2-expandable']) {
  test(`the curves of ${name} reach the peaks of its trace`, () => {
    const trace = readRecording(recording(name))
    const { inUseBytes, reservedBytes, peakEvent } = curvesOf(trace)
    const most = (values: Float64Array) => values.reduce((a, b) => Math.max(a, b))
    assert.equal(most(inUseBytes), trace.peakRequestedBytes)
    assert.equal(most(reservedBytes!), trace.recordedPeakReservedBytes)
    assert.equal(inUseBytes[peakEvent], trace.peakRequestedBytes)
    const live = liveAfter(trace, peakEvent)
    assert.equal(
      live.reduce((sum, block) => sum + trace.blocks.bytes[block], 0),
      trace.peakRequestedBytes,
    )
  })
}

test('a recording that only frees has its peak before the first event', () => {
  const builder = new TraceBuilder()
  builder.add(Action.freeRequested, 1, 10, 0, 0)
  const trace = builder.build({ file: 'frees' })
  assert.equal(curvesOf(trace).peakEvent, BEFORE)
  assert.deepEqual(liveAfter(trace, BEFORE), [0])
})

type Call = readonly [bytes: number, ...stack: (readonly [file: string, line: number, name: string])[]]

function holding(...calls: Call[]): Trace {
  const builder = new TraceBuilder()
  calls.forEach(([bytes, ...frames], i) => {
    const stack = builder.stacks.number(frames.map(frame => builder.stacks.entry(...frame)))
    builder.add(Action.alloc, i + 1, bytes, 0, i, stack)
  })
  return builder.build({ file: 'holding' })
}

test('stacks are compared by files and functions, without lines, and then by functions', () => {
  const main = ['main.py', 9, 'main'] as const
  const { stacks, peakBytes, hasStacks } = traceDifference(
    holding([10, ['a.py', 1, 'f'], main], [5, ['a.py', 2, 'f'], main], [7, ['old.py', 1, 'g']], [3, ['b.py', 1, 'h']]),
    holding([40, ['a.py', 70, 'f'], main], [6, ['new.py', 1, 'g']], [100, ['c.py', 1, 'k'], main]),
  )
  assert.deepEqual(
    stacks.map(({ site, bytes, blocks }) => [site, ...bytes, ...blocks]),
    [
      ['c.py:1 k', 0, 100, 0, 1],
      ['a.py:70 f', 10, 40, 1, 1],
      ['a.py:2 f', 5, 0, 1, 0],
      ['b.py:1 h', 3, 0, 1, 0],
      ['new.py:1 g', 7, 6, 1, 1],
    ],
  )
  assert.deepEqual([peakBytes, hasStacks], [[25, 146], true])
})

const LINEAR = ['/env/lib/python3.11/site-packages/torch/nn/modules/linear.py', 125, 'forward'] as const
const MODEL = ['/home/me/model.py', 44, 'forward'] as const
const STEP = ['/home/me/train.py', 60, 'step'] as const

/** The sites with the bytes of both recordings. */
function sitesOf(before: Trace, after: Trace): unknown[][] {
  return traceDifference(before, after).sites.map(({ site, bytes }) => [site, ...bytes])
}

test('a call further out, and machinery between, change nothing', () => {
  const wrapped = ['/home/me/amp.py', 5, 'wrapped'] as const
  const unwind = ['??', 0, 'torch::unwind::unwind()'] as const
  const [before, after] = [holding([300, LINEAR, MODEL, STEP]), holding([300, unwind, LINEAR, MODEL, wrapped, STEP])]
  assert.deepEqual(sitesOf(before, after), [['/home/me/model.py:44 forward', 300, 300]])
  assert.deepEqual(
    traceDifference(before, after).stacks.map(({ bytes }) => bytes),
    [[300, 300]],
  )
})

test('a decorator around functions has their memory, without a difference', () => {
  const timed = ['/home/me/timing.py', 5, 'timed'] as const
  const loss = ['/home/me/model.py', 60, 'loss'] as const
  const before = holding([300, LINEAR, MODEL, STEP], [40, LINEAR, loss, STEP], [10, LINEAR, STEP])
  const after = holding([300, LINEAR, timed, MODEL, STEP], [40, LINEAR, timed, loss, STEP], [10, LINEAR, STEP])
  const site = '/home/me/timing.py:5 timed'
  assert.deepEqual(sitesOf(before, after), [
    ['/home/me/train.py:60 step', 10, 10],
    [site, 340, 340],
  ])
  const [grown] = growthOf(before, holding([90, LINEAR, timed, MODEL, STEP]), { percent: 2 }).grown
  assert.deepEqual([grown.site, grown.bytes], [site, [0, 90]])
  const { grown: none, shrunkBytes } = growthOf(before, after, { percent: 2 })
  assert.deepEqual([none, shrunkBytes], [[], 0])
  const same = traceDifference(before, after).stacks.every(({ bytes: [from, to] }) => from === to)
  assert.equal(same, true)
})

test('stacks of equal size are of one function only if they share a caller', () => {
  const other = ['/home/me/other.py', 7, 'build'] as const
  const [before, after] = [holding([300, LINEAR, MODEL]), holding([300, LINEAR, other])]
  assert.equal(sitesOf(before, after).length, 2)
  const [held, more] = [holding([300, LINEAR, MODEL, STEP]), holding([310, LINEAR, other, STEP])]
  assert.deepEqual(sitesOf(held, more), [
    ['/home/me/other.py:7 build', 0, 310],
    ['/home/me/model.py:44 forward', 300, 0],
  ])
})

test('a site has the sum of its stacks, and each stack says who called it and what it called', () => {
  const softmax = ['/env/lib/python3.11/site-packages/torch/nn/functional.py', 2000, 'softmax'] as const
  const evaluate = ['/home/me/train.py', 90, 'evaluate'] as const
  const { sites, stacks } = traceDifference(
    holding([300, LINEAR, MODEL, STEP], [100, softmax, MODEL, STEP]),
    holding([200, LINEAR, MODEL, STEP], [150, softmax, MODEL, evaluate]),
  )
  assert.deepEqual(
    sites.map(({ site, bytes }) => [site, ...bytes]),
    [['/home/me/model.py:44 forward', 400, 350]],
  )
  assert.deepEqual(
    sites[0].stacks.map(i => [stacks[i].through, stacks[i].caller, ...stacks[i].bytes]),
    [
      [`${LINEAR[0]}:125 forward`, '/home/me/train.py:60 step', 300, 200],
      [`${softmax[0]}:2000 softmax`, '/home/me/train.py:90 evaluate', 100, 150],
    ],
  )
})

test('lines of one function are told apart, also when lines move', () => {
  const line = (row: number) => ['/home/me/model.py', row, 'forward'] as const
  const before = holding([10, line(44)], [20, line(50)])
  assert.deepEqual(sitesOf(before, holding([10, line(44)], [50, line(50)], [5, line(52)])), [
    ['/home/me/model.py:50 forward', 20, 50],
    ['/home/me/model.py:52 forward', 0, 5],
    ['/home/me/model.py:44 forward', 10, 10],
  ])
  assert.deepEqual(sitesOf(before, holding([10, line(46)], [50, line(52)])), [
    ['/home/me/model.py:52 forward', 20, 50],
    ['/home/me/model.py:46 forward', 10, 10],
  ])
})

test('a site whose file moved to another folder is the same', () => {
  const moved = ['/srv/app/net/model.py', 46, 'forward'] as const
  const around = ['/srv/app/amp.py', 1, 'run'] as const
  assert.deepEqual(sitesOf(holding([10, MODEL, STEP]), holding([30, moved, around, STEP])), [
    ['/srv/app/net/model.py:46 forward', 10, 30],
  ])
})

test('the peaks have their events, and their steps', () => {
  const trace = readRecording(recording('mlp-train-stacks'))
  const { peakEvents, peakSteps } = traceDifference(trace, holding([5]))
  assert.deepEqual(
    [peakEvents, peakSteps],
    [
      [131, 0],
      [1, null],
    ],
  )
  const { steps } = stepsOf(trace)!
  assert.deepEqual(
    [0, steps[0].to - 1, steps[0].to, trace.events - 1].map(event => stepAt(trace, event)),
    [1, 1, 2, steps.length + 1],
  )
})

test('a recording compared with itself has no change, and without stacks all is one group', () => {
  const trace = readRecording(recording('mlp-train-stacks'))
  assert.ok(traceDifference(trace, trace).stacks.every(({ bytes: [before, after] }) => before === after))
  const { stacks, hasStacks } = traceDifference(holding([1], [2]), holding([5]))
  assert.deepEqual([stacks.map(({ site, bytes }) => [site, ...bytes]), hasStacks], [[[null, 3, 5]], false])
})
