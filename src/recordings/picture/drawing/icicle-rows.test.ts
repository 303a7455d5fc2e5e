import assert from 'node:assert/strict'
import { test } from 'node:test'
import { type Box, Icicle, type Step } from './icicle.js'
import { boxesOn, labelOf, pathTo, shownBoxes } from './icicle-rows.js'

const step = (name: string): Step => ({ id: name, label: name, place: '' })

/** The boxes of paths with weights: `3 a b c`. */
function boxesOf(...paths: readonly string[]): readonly Box[] {
  const icicle = new Icicle(
    () => ({ weight: 0 }),
    sum => sum.weight,
  )
  for (const path of paths) {
    const [weight, ...names] = path.split(' ')
    icicle.add(names.map(step), sum => {
      sum.weight += Number(weight)
    })
  }
  return icicle.boxes().boxes
}

const shown = (boxes: readonly Box[], root = 0) =>
  shownBoxes(boxes, root).map(({ row, left, width, calls, caller }) => {
    return [row, calls.map(({ label }) => label).join('>'), left, width, caller]
  })

test('calls that make one call each are one box, and the calls inside lie in the row below', () => {
  const boxes = boxesOf('3 main fit step forward', '1 main fit step backward add', '4 other')
  assert.deepEqual(shown(boxes), [
    [0, 'all', 0, 1, -1],
    [1, 'main>fit>step', 0, 0.5, 0],
    [2, 'forward', 0, 0.375, 1],
    [2, 'backward>add', 0.375, 0.125, 1],
    [1, 'other', 0.5, 0.5, 0],
  ])
  assert.deepEqual(shown(boxesOf('1 a b'))[1], [1, 'a>b', 0, 1, 0], 'all calls together are no call of the chain')
  assert.deepEqual(shown(boxesOf('1 a', '2 a b'))[1], [1, 'a', 0, 1, 0], 'a call that holds memory itself stands alone')
})

test('a zoomed box is as wide as the whole, and shows each call of its chain', () => {
  const boxes = boxesOf('3 main fit step forward', '1 main fit step backward add', '4 other')
  const chain = shownBoxes(boxes, 0)[1]
  assert.deepEqual(shown(boxes, chain.first), [
    [0, 'main', 0, 1, -1],
    [1, 'fit', 0, 1, 0],
    [2, 'step', 0, 1, 1],
    [3, 'forward', 0, 0.75, 2],
    [3, 'backward>add', 0.75, 0.25, 2],
  ])
  assert.deepEqual(shown(boxes, 99), [])
})

test('a path finds its calls in other boxes, down to the last one that they have', () => {
  const boxes = boxesOf('3 main fit forward', '1 main fit backward add', '4 other fit')
  const add = boxes.findIndex(({ label }) => label === 'add')
  const path = pathTo(boxes, add)
  assert.deepEqual(
    boxesOn(boxes, path).map(i => boxes[i].label),
    ['all', 'main', 'fit', 'backward', 'add'],
  )
  const later = boxesOf('9 other fit', '1 main fit backward')
  assert.deepEqual(
    boxesOn(later, path).map(i => later[i].label),
    ['all', 'main', 'fit', 'backward'],
  )
  assert.deepEqual([pathTo(boxes, 0), boxesOn([], path), boxesOn(boxes, ['gone\n'])], [[], [], [0]])
})

test('stacks of any depth are folded without recursion', () => {
  const names = Array.from({ length: 20_000 }, (_, i) => `f${i}`)
  const boxes = boxesOf(`1 ${names.join(' ')}`)
  assert.deepEqual(
    shownBoxes(boxes, 0).map(({ calls }) => calls.length),
    [1, 20_000],
  )
  assert.equal(shownBoxes(boxes, 1).at(-1)?.row, 19_999)
  assert.equal(pathTo(boxes, 20_000).length, 20_000)
})

test('names are left out of a label, and never cut', () => {
  const calls = ['outermost', 'middle', 'inner'].map(label => ({ label }))
  const fitting = (room: number, some = calls) => labelOf(some, room, text => text.length)
  assert.equal(fitting(99), '3 calls: outermost › middle › inner')
  assert.equal(fitting(34), '3 calls: outermost › … › inner')
  assert.equal(fitting(25), '3 calls: … › inner')
  assert.equal(fitting(10), '… › inner')
  assert.equal(fitting(8), '3 calls')
  assert.equal(fitting(6), '')
  assert.equal(fitting(9, calls.slice(0, 2)), '2 calls')
  assert.deepEqual([fitting(9, calls.slice(0, 1)), fitting(8, calls.slice(0, 1))], ['outermost', ''])
  const many = Array.from({ length: 3000 }, (_, i) => ({ label: `f${i}` }))
  assert.equal(fitting(99_999, many), '3,000 calls: f0 › … › f2999')
})
