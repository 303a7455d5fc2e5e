import assert from 'node:assert/strict'
import { test } from 'node:test'
import { FrameKind } from '../../trace/frames/frame-kind.js'
import { changeIcicle } from './change-icicle.js'

const line = (name: string, row = 1) => ({ file: '/app/train.py', line: row, name, kind: FrameKind.program })

test('a box is as wide as what grew and shrank below it, and has both sums', () => {
  const { boxes } = changeIcicle([
    { frames: [line('step'), line('main', 10)], bytes: 100 },
    { frames: [line('free'), line('main', 20)], bytes: -60 },
    { frames: [], bytes: 40 },
  ])
  assert.deepEqual(
    boxes.map(({ depth, left, width, label, grownBytes, shrunkBytes }) => [
      depth,
      left,
      width,
      label,
      grownBytes,
      shrunkBytes,
    ]),
    [
      [0, 0, 1, 'all', 140, 60],
      [1, 0, 0.8, 'main', 100, 60],
      [2, 0, 0.5, 'step', 100, 0],
      [2, 0.5, 0.3, 'free', 0, 60],
      [1, 0.8, 0.2, 'no call stack', 40, 0],
    ],
  )
  assert.equal(boxes[2].place, 'app/train.py step')
})

test('machinery and direct recursion are left out, and so is what is too narrow', () => {
  const deep = [
    line('leaf'),
    { file: 'module.py', line: 1, name: '_call_impl', kind: FrameKind.launcher },
    line('loop', 3),
    line('loop', 2),
  ]
  const { boxes } = changeIcicle([
    { frames: deep, bytes: -50_000 },
    { frames: [line('tiny')], bytes: 1 },
  ])
  assert.deepEqual(
    boxes.map(({ label }) => label),
    ['all', 'loop', 'leaf'],
  )
})

test('nothing that changed has no boxes', () => {
  assert.deepEqual(changeIcicle([]).boxes, [])
})
