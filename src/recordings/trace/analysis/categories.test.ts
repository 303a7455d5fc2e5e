import assert from 'node:assert/strict'
import { test } from 'node:test'
import { MiB } from '../../../core/base/bytes.js'
import { excerptOf } from '../columns/excerpt.js'
import { readRecording } from '../formats/read-recording.js'
import { pickleSnapshot } from '../pytorch/pytorch-snapshot-writer.js'
import { Action, type Trace } from '../trace.js'
import { TraceBuilder } from '../trace-builder.js'
import { CATEGORIES, categoriesAfter, categoriesOf } from './categories.js'
import { inUseOf } from './curves.js'
import { Training, type TrainingOptions } from './training.fixture.js'

/** The inferred categories, and the true ones. */
function inferred(options: TrainingOptions) {
  const training = new Training(options)
  const found = categoriesOf(training.trace())!
  assert.equal(found.recorded, false)
  return [Array.from(found.ofBlock, index => CATEGORIES[index]), training.categories] as const
}

const KINDS: readonly TrainingOptions[] = [
  {},
  { stacks: 'all' },
  { stacks: 'none' },
  { keepsGradients: true },
  { keepsGradients: true, stacks: 'all' },
  { closure: true },
  { closure: true, stacks: 'all' },
  { ownOptimizer: true },
  { ownOptimizer: true, stacks: 'all' },
  { annotations: false },
  { annotations: false, stacks: 'all' },
  { endsInBackward: true },
  { endsInBackward: true, stacks: 'all' },
  { endsInBackward: true, steps: 0 },
  { endsInBackward: true, steps: 0, stacks: 'all' },
  { failsInForward: true, steps: 0 },
  { failsInForward: true, steps: 0, unwinds: true },
  { failsInForward: true, steps: 0, stacks: 'all', workSpaceBytes: 5 * MiB },
  { workSpaceBytes: 32 * MiB },
  { workSpaceBytes: 32 * MiB, steps: 1, endsInBackward: true },
  { workSpaceBytes: 32 * MiB, stacks: 'none' },
  { workSpaceBytes: 5 * MiB, stacks: 'all', steps: 1 },
]

for (const options of KINDS) {
  test(`the categories of a training are inferred: ${JSON.stringify(options)}`, () => {
    const [found, expected] = inferred(options)
    assert.deepEqual(found, expected)
  })
}

test('a leak that begins before the first backward pass has no parameters', () => {
  for (const stacks of ['python', 'all'] as const) {
    const { ofBlock } = categoriesOf(new Training({ leaks: true, steps: 5, stacks }).trace())!
    assert.equal(ofBlock.filter(index => CATEGORIES[index] === 'parameters').length, 3, stacks)
  }
})

test('the shares at a moment sum to the bytes in use', () => {
  const trace = new Training().trace()
  const { peakEvent, inUseBytes } = inUseOf(trace)
  const { shares } = categoriesAfter(trace, peakEvent)!
  assert.equal(
    shares.reduce((sum, { bytes }) => sum + bytes, 0),
    inUseBytes[peakEvent],
  )
  assert.deepEqual(
    shares.map(({ category }) => category).filter(category => category === 'parameters'),
    ['parameters'],
  )
})

/** A recording of the profiler, which replaces a tensor that changes by a free and an allocation at its place. */
function profiled(): Trace {
  const builder = new TraceBuilder()
  const add = (action: number, address: number, category?: string) => {
    const event = builder.add(action, address, 512, 0, builder.events)
    if (category !== undefined) builder.noteCategory(event, category)
  }
  add(Action.alloc, 512, 'activation')
  add(Action.alloc, 1024, 'gradient')
  add(Action.alloc, 1536, 'optimizer_state')
  add(Action.alloc, 2048, 'autograd_detail')
  add(Action.alloc, 2560, 'unknown')
  add(Action.alloc, 4096, 'input')
  add(Action.freeRequested, 3072)
  add(Action.freeCompleted, 3072)
  add(Action.alloc, 3072, 'parameter')
  return builder.build({ file: 'profile.pickle' })
}

test('categories that the recording has are taken from it', () => {
  const trace = profiled()
  const found = categoriesOf(trace)!
  assert.equal(found.recorded, true)
  assert.deepEqual(
    Array.from(found.ofBlock, index => CATEGORIES[index]),
    [
      'parameters', // from before the recording
      ...['activations', 'gradients', 'optimizer state', 'temporaries', 'other', 'activations'],
      'parameters',
    ],
  )
})

test('categories of a recording survive in a pickle, and in a part of the recording', () => {
  const trace = profiled()
  const found = categoriesOf(trace)
  assert.deepEqual(categoriesOf(readRecording(pickleSnapshot(trace))), found)
  assert.deepEqual(categoriesOf(excerptOf(trace, 0, trace.events)), found)
})

test('nothing is said of a recording without a model, or of another allocator', () => {
  const builder = new TraceBuilder()
  builder.add(Action.alloc, 512, 512, 0, 0)
  builder.add(Action.freeRequested, 512, 0, 0, 1)
  assert.equal(categoriesOf(builder.build({ file: 'plain' })), null)
  assert.equal(categoriesOf({ ...new Training().trace(), recorder: 'RMM' }), null)
})

test('a function of the program is not setup because of its name', () => {
  const builder = new TraceBuilder()
  const files = ['/env/lib/python3.12/site-packages/torch/nn/modules/module.py', '/home/me/effects.py']
  files.forEach((filename, i) => {
    const stack = builder.stacks.number([builder.stacks.entry(filename, 4, '_apply')])
    builder.add(Action.alloc, (1 + i) * MiB, 512, 0, i, stack)
  })
  const found = categoriesOf(builder.build({ file: 'built' }))!
  assert.deepEqual(
    Array.from(found.ofBlock, index => CATEGORIES[index]),
    ['parameters', 'other'],
  )
})
