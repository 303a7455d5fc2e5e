// Colours, holders, steps and questions, against their definitions.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { Random } from '../../core/base/random.js'
import { stepsOf } from '../trace/analysis/steps.js'
import { readRecording } from '../trace/formats/read-recording.js'
import { recordedPlacements } from '../trace/placements/recorded-placements.js'
import { Action } from '../trace/trace.js'
import { TraceBuilder } from '../trace/trace-builder.js'
import { Cell } from './cells.js'
import { cellsOf, chosenBlocks, colouringOf, GROUPINGS, usefulGroupings } from './colouring.js'
import { keyOf } from './drawing/icicle.js'
import { eventRows } from './event-list.js'
import { holderRows, icicleOf } from './holders.js'
import { LiveBlocks } from './live-blocks.js'
import { makePicture } from './make-picture.js'
import { type Picture, UNIT_BYTES } from './picture.js'
import { randomPicture } from './pictures.fixture.js'
import { Pyramid } from './pyramid.js'
import { answerOf, historyOf } from './questions.js'
import { findBlocks } from './stack-text.js'

const trace = readRecording('traces/mlp-train-stacks.pickle.gz')
const mlp = makePicture(trace, [{ policy: 'recorded', label: 'recorded', ...recordedPlacements(trace) }])
const live = new LiveBlocks(mlp)
const sum = (picture: Picture, blocks: Iterable<number>) => {
  let bytes = 0
  for (const block of blocks) bytes += picture.blocks.bytes[block]
  return bytes
}

test('the blocks held at every event are those allocated and not freed', () => {
  const picture = randomPicture(new Random(2), 40_000, 80)
  const held = new LiveBlocks(picture)
  const { allocatedAt, freeRequestedAt, count } = picture.blocks
  for (const event of [-1, 0, 1, 16_383, 16_384, 16_385, 33_000, 39_999]) {
    const expected = Array.from({ length: count }, (_, block) => block).filter(
      block => allocatedAt[block] <= event && freeRequestedAt[block] > event,
    )
    assert.deepEqual([...held.at(event)], expected, `event ${event}`)
    if (event >= 0) assert.equal(held.inUse[event], sum(picture, expected))
  }
})

test('the pyramid finds the first event with most bytes of any range', () => {
  const random = new Random(4)
  const values = Float64Array.from({ length: 1000 }, () => random.below(50))
  const pyramid = new Pyramid(values)
  for (let i = 0; i < 500; i++) {
    const from = random.below(1000)
    const to = from + random.below(1001 - from)
    const range = values.slice(from, to)
    const expected = range.length === 0 ? -1 : from + range.indexOf(Math.max(...range))
    assert.equal(pyramid.most(from, to), expected, `${from} to ${to}`)
  }
})

test('the peak of a picture is the peak of its trace', () => {
  assert.equal(live.peakBytes, trace.peakRequestedBytes)
})

test('rows and the icicle add up to the bytes in use, by every grouping', () => {
  for (const grouping of usefulGroupings(mlp)) {
    const colouring = colouringOf(live, grouping)
    for (const event of [0, live.peakEvent, mlp.events - 1]) {
      const list = live.at(event)
      const { rows } = holderRows(mlp, colouring, list, null, Infinity)
      assert.equal(
        rows.reduce((total, row) => total + row.bytes, 0),
        live.inUse[event],
        grouping,
      )
      for (const inverted of [false, true]) {
        const { boxes } = icicleOf(mlp, colouring, list, { inverted, machinery: false, under: [] })
        assert.equal(boxes[0].bytes, live.inUse[event])
        const tops = boxes.filter(({ depth }) => depth === 1)
        assert.ok(tops.reduce((total, box) => total + box.bytes, 0) <= live.inUse[event])
      }
    }
  }
  assert.equal(GROUPINGS.length, 8)
})

test('of very many call stacks an icicle has those that hold most, and the others as one box', () => {
  const builder = new TraceBuilder()
  const { stacks } = builder
  const main = stacks.entry('main.py', 1, 'main')
  for (let i = 0; i < 20_010; i++) {
    const stack = stacks.number([stacks.entry('made.py', i, 'made'), main])
    builder.add(Action.alloc, 2 ** 40 + i * 4096, i < 10 ? 512 : 1024, 0, i, stack)
  }
  const many = new LiveBlocks(makePicture(builder.build({ file: 'many' }), []))
  const list = many.at(many.peakEvent)
  const { boxes } = icicleOf(many.picture, colouringOf(many, 'stack'), list, {
    inverted: false,
    machinery: false,
    under: [keyOf({ label: '10 stacks that hold less', place: '' })],
  })
  assert.deepEqual(
    boxes.map(({ label, bytes }) => [label, bytes]),
    [
      ['all', 20_005 * 1024],
      ['main', 20_000 * 1024],
      ['10 stacks that hold less', 10 * 512],
    ],
  )
})

test('rows have the groups with most bytes, and those that only an earlier moment holds behind them', () => {
  const colouring = colouringOf(live, 'size')
  const bytesOf = (event: number) => {
    const sums = new Map<number, number>()
    for (const block of live.at(event)) {
      const group = colouring.group[block]
      sums.set(group, (sums.get(group) ?? 0) + mlp.blocks.bytes[block])
    }
    return sums
  }
  const [event, before] = [mlp.events - 1, live.peakEvent]
  const [held, earlier] = [bytesOf(event), bytesOf(before)]
  const { rows, groups } = holderRows(mlp, colouring, live.at(event), live.at(before), 1000)
  assert.equal(groups, new Set([...held.keys(), ...earlier.keys()]).size)
  assert.equal(rows.length, groups)
  assert.ok(groups > held.size, 'some are gone')
  for (const { group, bytes, grown } of rows) {
    assert.deepEqual([bytes, bytes - grown], [held.get(group) ?? 0, earlier.get(group) ?? 0])
  }
  const order = rows.map(({ bytes, grown }) => [bytes, bytes - grown])
  assert.deepEqual(
    order,
    order.toSorted(([a, aBefore], [b, bBefore]) => b - a || (a === 0 ? bBefore - aBefore : 0)),
  )
  const few = holderRows(mlp, colouring, live.at(event), live.at(before), 2)
  assert.deepEqual([few.groups, few.rows], [groups, rows.slice(0, 2)])
})

test('the legend has the groups with most bytes at the peak, at most eight, and the others as one', () => {
  const { legend } = colouringOf(live, 'stack')
  assert.ok(legend.length <= 9 && legend.length > 2)
  const named = legend.filter(({ cell }) => cell !== Cell.rest)
  assert.deepEqual(
    named.map(({ bytes }) => bytes),
    named.map(({ bytes }) => bytes).sort((a, b) => b - a),
  )
  assert.equal(
    legend.reduce((total, { bytes }) => total + bytes, 0),
    live.peakBytes,
  )
})

test('blocks are grouped by the names of their call stacks, and calls of machinery are hidden', () => {
  const builder = new TraceBuilder()
  const { stacks } = builder
  const capture = stacks.entry('??', 0, 'torch::unwind::unwind()')
  const engine = stacks.entry('??', 0, 'torch::autograd::Engine::thread_main()')
  const nodes = ['??', 'Functions.cpp'].map(file =>
    stacks.entry(file, 0, 'torch::autograd::generated::MmBackward0::apply(std::vector<at::Tensor>&&)'),
  )
  const linear = stacks.entry('/env/lib/python3.11/site-packages/torch/nn/modules/linear.py', 125, 'forward')
  const model = stacks.entry('/home/me/net/model.py', 44, 'forward')
  const calls = [...nodes.map(node => [capture, node, engine]), [capture, linear, model], [capture, engine]]
  for (const [i, entries] of calls.entries()) {
    builder.add(Action.alloc, (i + 1) * 2 ** 30, 1 + i, 0, i, stacks.number(entries))
  }
  const blocks = new LiveBlocks(makePicture(builder.build({ file: 'native' }), []))
  const colouring = colouringOf(blocks, 'stack')
  assert.deepEqual(
    colouring.legend.map(({ label, bytes }) => [label, bytes]),
    [
      ["autograd's thread", 4],
      ['backward of mm', 3],
      ['net/model.py:44 forward', 3],
    ],
  )
  const boxes = (machinery: boolean) =>
    icicleOf(blocks.picture, colouring, blocks.at(3), { inverted: true, machinery, under: [] }).boxes.map(
      ({ label }) => label,
    )
  assert.deepEqual(boxes(false), ['all', "autograd's thread", 'backward of mm', 'forward', 'forward'])
  assert.equal(boxes(true)[1], 'torch::unwind::unwind')
})

test('blocks that a filter or a search leaves out are faded', () => {
  const colouring = colouringOf(live, 'stack')
  const [first] = colouring.legend
  const none = { only: [], without: [], group: null }
  const only = chosenBlocks(colouring, { ...none, only: [first.cell] }, null)!
  assert.ok(only.every((chosen, block) => (chosen === 1) === (colouring.cellOf[block] === first.cell)))
  const without = chosenBlocks(colouring, { ...none, without: [first.cell] }, null)!
  assert.ok(without.every((chosen, block) => chosen === 1 - only[block]))
  const group = colouring.group[live.at(live.peakEvent)[0]]
  const one = chosenBlocks(colouring, { ...none, group }, null)!
  assert.ok(one.every((chosen, block) => (chosen === 1) === (colouring.group[block] === group)))
  const found = findBlocks(mlp, 'ADAM.py')!
  assert.ok(found.some(each => each === 1) && found.some(each => each === 0))
  const both = chosenBlocks(colouring, { ...none, only: [first.cell] }, found)!
  assert.ok(both.every((chosen, block) => chosen === only[block] * found[block]))
  const cells = cellsOf(colouring, chosenBlocks(colouring, none, found))
  assert.ok(cells.every((cell, block) => (cell === Cell.faded) === (found[block] === 0)))
  assert.equal(findBlocks(mlp, ' '), null)
})

test('questions about two markers part the blocks as their names say', () => {
  const [a, b] = [150, 420]
  const { allocatedAt, freeRequestedAt } = mlp.blocks
  const answer = (question: Parameters<typeof answerOf>[1]) => [...answerOf(live, question, a, b)]
  assert.deepEqual(answer('heldAtA'), [...live.at(a)])
  assert.deepEqual(
    [...answer('through'), ...answer('grown')].sort((x, y) => x - y),
    [...live.at(b)],
  )
  assert.deepEqual(
    [...answer('through'), ...answer('gone')].sort((x, y) => x - y),
    [...live.at(a)],
  )
  const [allocated, freed] = [answer('allocated'), answer('freed')]
  assert.ok(allocated.every(block => allocatedAt[block] > a && allocatedAt[block] <= b))
  assert.ok(freed.every(block => freeRequestedAt[block] > a && freeRequestedAt[block] <= b))
  assert.equal(sum(mlp, allocated) - sum(mlp, freed), live.inUse[b] - live.inUse[a])
  const between = answer('between')
  assert.ok(between.length > 0 && between.every(block => allocatedAt[block] > a && freeRequestedAt[block] <= b))
})

test('the history of an address has every block that held it, in order, and no block beside it', () => {
  const [policy] = mlp.policies
  const block = mlp.block[live.peakEvent]
  const history = historyOf(mlp, policy, block)
  assert.ok(history.includes(block) && history.length > 1)
  const address = policy.place![block] * UNIT_BYTES
  const held = [...mlp.blocks.bytes.keys()].filter(other => {
    const start = policy.place![other] * UNIT_BYTES
    return start <= address && address < start + mlp.blocks.bytes[other]
  })
  assert.deepEqual(history, held)
})

test('a picture has the steps of the optimizer that steps most, as its trace has', () => {
  const builder = new TraceBuilder()
  for (let event = 0; event < 9; event++) builder.add(Action.alloc, 2 ** 30 * (event + 1), 512, 0, event)
  const annotations = [
    ['A', 2],
    ['B', 3],
    ['A', 5],
    ['A', 8],
  ].map(([name, timeUs]) => ({ isStart: false, name: `Optimizer.step#${name}.step`, timeUs: Number(timeUs) }))
  const recorded = builder.build({ file: 'two optimizers', annotations })
  assert.deepEqual([...makePicture(recorded, []).steps], [1, 4, 7])
  assert.deepEqual(
    stepsOf(recorded)?.steps.map(({ to }) => to),
    [2, 5, 8],
  )
})

test('the list of events has the allocations and frees of chosen blocks in a range, and counts those beyond a length', () => {
  const chosen = findBlocks(mlp, 'adam.py')!
  const range = { from: 100, to: 700 }
  const { rows, total } = eventRows(mlp, mlp.policies[0], chosen, { ...range, most: 10 })
  assert.equal(rows.length, 10)
  const all = eventRows(mlp, mlp.policies[0], chosen, { ...range, most: Infinity }).rows
  assert.deepEqual(all.slice(0, 10), rows)
  assert.equal(all.length, total)
  const { bytes, allocatedAt, freeRequestedAt } = mlp.blocks
  const isIn = (event: number) => event >= range.from && event <= range.to
  const expected = [...chosen.keys()]
    .filter(block => chosen[block] === 1)
    .flatMap(block => [
      ...(isIn(allocatedAt[block]) ? [`${allocatedAt[block]} ${bytes[block]} ${trace.blocks.address[block]}`] : []),
      ...(isIn(freeRequestedAt[block])
        ? [`${freeRequestedAt[block]} -${bytes[block]} ${trace.blocks.address[block]}`]
        : []),
    ])
  const found = all.map(({ event, isFree, bytes, address }) => `${event} ${isFree ? '-' : ''}${bytes} ${address}`)
  assert.ok(found.length > 10)
  assert.deepEqual(found.sort(), expected.sort())
})
