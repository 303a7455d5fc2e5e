import assert from 'node:assert/strict'
import { test } from 'node:test'
import { MiB } from '../../../core/base/bytes.js'
import { Action } from '../trace.js'
import { TraceBuilder } from '../trace-builder.js'
import { holdersOf } from './holders.js'

type Line = readonly [filename: string, line: number, name: string]
const LINEAR: Line = ['/env/lib/python3.11/site-packages/torch/nn/modules/linear.py', 116, 'forward']
const ADAM: Line = ['torch/optim/adam.py', 178, '_init_group']
const NATIVE: Line = ['??', 0, 'at::native::empty_cuda(at::Tensor const&)']
const CXX: Line = ['/build/c10/cuda/CUDACachingAllocator.cpp', 1200, 'c10::cuda::malloc']
const MODEL: Line = ['/home/me/model.py', 88, 'forward']
const TRAIN: Line = ['/home/me/train.py', 12, 'main']

/** The holders of blocks of these sizes in MiB, allocated in these call stacks. */
function holders(...blocks: readonly (readonly [number, readonly Line[]])[]) {
  const builder = new TraceBuilder()
  builder.add(Action.freeRequested, 1, 5 * MiB, 0, 0)
  blocks.forEach(([size, lines], i) => {
    const { stacks } = builder
    const stack = stacks.number(lines.map(line => stacks.entry(...line)))
    builder.add(Action.alloc, 2 ** 40 * (i + 1), size * MiB, 0, i, stack)
  })
  const trace = builder.build({ file: 'held' })
  return holdersOf(
    trace,
    blocks.map((_, i) => i + 1),
  )
}

test('blocks are grouped by the innermost line of Python outside of PyTorch, most bytes first', () => {
  const found = holders([10, [NATIVE, CXX, LINEAR, MODEL, TRAIN]], [30, [ADAM, TRAIN]], [25, [LINEAR, MODEL, TRAIN]])
  assert.deepEqual(
    found.map(({ site, bytes, blocks }) => [site, bytes / MiB, blocks]),
    [
      ['/home/me/model.py:88 forward', 35, 2],
      ['/home/me/train.py:12 main', 30, 1],
    ],
  )
  assert.deepEqual(
    found.map(({ through }) => through),
    [`${LINEAR[0]}:116 forward`, 'torch/optim/adam.py:178 _init_group'],
  )
})

test('the line of PyTorch is the one with over half of the bytes, if there is one', () => {
  const [holder] = holders([10, [LINEAR, TRAIN]], [30, [ADAM, TRAIN]], [5, [TRAIN]])
  assert.deepEqual([holder.bytes / MiB, holder.through], [45, 'torch/optim/adam.py:178 _init_group'])
  assert.equal(holders([10, [LINEAR, TRAIN]], [10, [ADAM, TRAIN]])[0].through, null)
})

test('without a line of the program a line of PyTorch stands for it, or a native function', () => {
  assert.equal(holders([1, [NATIVE, ADAM]])[0].site, 'torch/optim/adam.py:178 _init_group')
  assert.equal(holders([1, [NATIVE]])[0].site, 'at::native::empty_cuda')
})

test('blocks without a call stack are a group, and those from before the recording another', () => {
  assert.deepEqual(holders([3, []], [4, []]), [
    { bytes: 7 * MiB, blocks: 2, site: null, through: null, throughAll: false, before: false },
  ])
  const builder = new TraceBuilder()
  builder.add(Action.freeRequested, 1, 5 * MiB, 0, 0)
  const [before] = holdersOf(builder.build({ file: 'before' }), [0])
  assert.deepEqual([before.before, before.bytes], [true, 5 * MiB])
})
