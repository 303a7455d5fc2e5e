import assert from 'node:assert/strict'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { MiB } from '../../../core/base/bytes.js'
import { readRecording } from '../formats/read-recording.js'
import { Action, BEFORE, type Trace } from '../trace.js'
import { TraceBuilder } from '../trace-builder.js'
import { type HeldBlock, holding } from './run-growth.fixture.js'
import { type FigureName, type GrowthLimit, growthOf } from './run-growth.js'

const TWO_PERCENT = { percent: 2 }
const passed = (base: number, run: number, limit: GrowthLimit) =>
  growthOf(holding([[base]]), holding([[run]]), limit).figures[0].passed

test('memory in use may grow by a share of the base, or by bytes, and by no byte more', () => {
  assert.deepEqual(
    [102 * MiB, 102 * MiB + 1].map(run => passed(100 * MiB, run, TWO_PERCENT)),
    [true, false],
  )
  assert.deepEqual(
    [164 * MiB, 164 * MiB + 1].map(run => passed(100 * MiB, run, { bytes: 64 * MiB })),
    [true, false],
  )
  assert.deepEqual(
    [100, 101].map(run => passed(100, run, { percent: 0 })),
    [true, false],
  )
  assert.equal(passed(100 * MiB, 1, TWO_PERCENT), true)
})

test('reserved memory may always grow by the least segment of PyTorch', () => {
  const reserved = (run: number) =>
    growthOf(holding([[MiB]], { reservedBytes: 20 * MiB }), holding([[MiB]], { reservedBytes: run }), TWO_PERCENT)
      .figures[1].passed
  assert.deepEqual([20 * MiB, 22 * MiB, 24 * MiB].map(reserved), [true, true, false])
})

test('a request that fails in the run only is growth; failures of the base allow others', () => {
  const failing = holding([[MiB]], { failed: [[MiB], [MiB]] })
  const outcome = (base: typeof failing, run: typeof failing) => {
    const { figures, passed } = growthOf(base, run, TWO_PERCENT)
    return [figures[2].base, figures[2].run, figures[2].passed, passed]
  }
  assert.deepEqual(outcome(holding([[MiB]]), failing), [0, 2, false, false])
  assert.deepEqual(outcome(failing, failing), [2, 2, true, true])
  assert.deepEqual(outcome(failing, holding([[MiB]])), [2, 0, true, true])
})

/** Six blocks are allocated and freed, one after the other; each free completes `lag` allocations later. */
function streamed(lag: number, bytes: number, reservedBytes: number, recorder: Trace['recorder'] = 'PyTorch') {
  const builder = new TraceBuilder()
  const add = (action: number, address: number, size: number) => builder.add(action, address, size, 0, builder.events)
  const place = (i: number) => 2 ** 40 + i * bytes
  add(Action.segmentAlloc, place(0), reservedBytes)
  for (let i = 0; i < 6; i++) {
    add(Action.alloc, place(i), bytes)
    if (i >= lag && lag > 0) add(Action.freeCompleted, place(i - lag), bytes)
    add(Action.freeRequested, place(i), bytes)
    if (lag === 0) add(Action.freeCompleted, place(i), bytes)
  }
  return builder.build({ file: 'streamed', recorder })
}

test('reserved memory that grows because freed blocks wait longer is not growth of the program', () => {
  const reserved = (base: Trace, run: Trace) => {
    const { figures, waitingBytes } = growthOf(base, run, { bytes: 40 * MiB })
    return [figures[1].passed, figures[1].byTiming, ...waitingBytes.map(bytes => bytes / MiB)]
  }
  const base = streamed(1, 30 * MiB, 60 * MiB)
  assert.deepEqual(reserved(base, streamed(3, 30 * MiB, 120 * MiB)), [true, true, 30, 90])
  assert.deepEqual(reserved(base, streamed(1, 30 * MiB, 100 * MiB)), [true, false, 30, 30])
  assert.deepEqual(
    reserved(base, streamed(1, 30 * MiB, 120 * MiB)),
    [false, false, 30, 30],
    'waiting does not explain it',
  )
  assert.deepEqual(reserved(base, streamed(1, 60 * MiB, 120 * MiB)), [true, true, 30, 60])
  assert.deepEqual(reserved(base, streamed(1, 80 * MiB, 160 * MiB)), [false, false, 30, 80])
  assert.deepEqual(reserved(base, streamed(0, 30 * MiB, 120 * MiB)), [false, false, 30, 0])
  assert.deepEqual(reserved(streamed(0, 30 * MiB, 30 * MiB), streamed(3, 30 * MiB, 120 * MiB)), [false, false, 0, 90])
  const [own, larger] = [60, 120].map(size => streamed(1, 30 * MiB, size * MiB, 'cuda-mempool'))
  assert.deepEqual(reserved(own, larger), [null, true, 30, 30])
})

test('without segments in one of them reserved memory is not compared', () => {
  const [without, with_] = [holding([[MiB]]), holding([[MiB]], { reservedBytes: 99 * MiB })]
  for (const pair of [[without, with_] as const, [with_, without] as const]) {
    const { figures, passed } = growthOf(...pair, TWO_PERCENT)
    assert.deepEqual([figures[1].passed, passed], [null, true])
  }
})

test('a peak lies in its step, behind the last one, or before the first event', () => {
  const blocks: HeldBlock[] = [[5], [6], [7]]
  const stepped = (endUs: number) => {
    const annotations = [true, false].map(isStart => ({ isStart, name: 'ProfilerStep#1', timeUs: isStart ? 0 : endUs }))
    return growthOf(holding(blocks), holding(blocks, { annotations }), TWO_PERCENT).peaks
  }
  assert.deepEqual(stepped(9), {
    base: { event: 2, events: 3, step: null, steps: 0 },
    run: { event: 2, events: 3, step: 1, steps: 1 },
  })
  assert.deepEqual(stepped(1).run, { event: 2, events: 3, step: null, steps: 1 })
  assert.equal(growthOf(holding([]), holding(blocks), TWO_PERCENT).peaks.base.event, BEFORE)
})

/** The call sites as [site, bytes in the base, bytes in the run], and what shrank. */
function sites(base: readonly HeldBlock[], run: readonly HeldBlock[]) {
  const { grown, shrunkBytes } = growthOf(holding(base), holding(run), TWO_PERCENT)
  return [...grown.map(({ site, bytes }) => [site, ...bytes]), shrunkBytes]
}

test('call sites are compared by line, most growth first, and what is new has no bytes in the base', () => {
  assert.deepEqual(
    sites(
      [
        [10, 'a.py:1 f'],
        [20, 'a.py:2 f'],
        [50, 'b.py:7 g'],
      ],
      [
        [20, 'a.py:1 f'],
        [40, 'a.py:2 f'],
        [5, 'a.py:3 f'],
      ],
    ),
    [['a.py:2 f', 20, 40], ['a.py:1 f', 10, 20], ['a.py:3 f', 0, 5], 50],
  )
})

test('lines that moved and folders with another name do not count', () => {
  const base: HeldBlock[] = [
    [10, '/home/me/src/a.py:10 f'],
    [20, '/home/me/src/a.py:11 f'],
  ]
  const moved: HeldBlock[] = [
    [10, 'C:\\work\\src\\a.py:11 f'],
    [20, 'C:\\work\\src\\a.py:13 f'],
  ]
  assert.deepEqual(sites(base, moved), [0])
  assert.deepEqual(sites(base, [...moved, [7, 'C:\\work\\src\\a.py:12 f']]), [['C:\\work\\src\\a.py:12 f', 0, 7], 0])
  assert.deepEqual(
    sites(base, [
      [11, '/ci/a.py:11 f'],
      [22, '/ci/a.py:12 f'],
    ]),
    [['/ci/a.py:12 f', 20, 22], ['/ci/a.py:11 f', 10, 11], 0],
  )
})

test('blocks without a call stack are compared with each other', () => {
  assert.deepEqual(sites([[10], [3, 'a.py:1 f']], [[15], [3, 'a.py:1 f']]), [[null, 10, 15], 0])
})

test('no recording grows against itself', () => {
  const trace = holding([[10, 'a.py:1 f'], [20]], { reservedBytes: 2 * MiB, failed: [[5]] })
  const { passed, figures, grown, shrunkBytes } = growthOf(trace, trace, { percent: 0 })
  const names: FigureName[] = ['inUse', 'reserved', 'failedRequests']
  assert.deepEqual([passed, grown, shrunkBytes, figures.map(({ name }) => name)], [true, [], 0, names])
})

const pair = (name: string) =>
  readRecording(fileURLToPath(new URL(`../../../../../traces/pairs/${name}.pickle.gz`, import.meta.url)))

test('a recorded program with four streams does not grow against itself, though it reserved a fifth more', () => {
  const [a, b] = [pair('streams-seed6-a'), pair('streams-seed6-b')]
  const { figures, passed, grown } = growthOf(a, b, TWO_PERCENT)
  assert.deepEqual([passed, grown], [true, []])
  assert.deepEqual(figures[1], {
    name: 'reserved',
    base: 624 * MiB,
    run: 766 * MiB,
    most: Math.floor(624 * MiB * 1.02),
    passed: true,
    byTiming: true,
  })
  assert.equal(growthOf(b, a, TWO_PERCENT).passed, true)
})

for (const [kind, plant, place] of [
  ['lstm-seed0', 'leak', /pairs\.py:\d+ leak_one$/],
  ['server-seed1', 'buffer', /pairs\.py:\d+ keep_buffer$/],
  ['transformer-seed0', 'hold', /pairs\.py:\d+ transformer$/],
] as const) {
  test(`in a recorded ${kind} the planted ${plant} is found`, () => {
    const { passed, grown } = growthOf(pair(`${kind}-a`), pair(`${kind}-grown-${plant}`), TWO_PERCENT)
    assert.equal(passed, false)
    assert.match(grown[0].site!, place)
  })
}
