import assert from 'node:assert/strict'
import { test } from 'node:test'
import { GiB, MiB } from '../../../core/base/bytes.js'
import { Training, type TrainingOptions } from '../analysis/training.fixture.js'
import { replayPytorchPolicy } from '../pytorch/pytorch-replay.js'
import type { Trace } from '../trace.js'
import { predict } from './predict.js'

const recorded = (batch: number, options: TrainingOptions = {}) => new Training({ ...options, batch }).trace()
const reserved = (trace: Trace) => replayPytorchPolicy(trace).peakReservedBytes

for (const options of [{}, { stacks: 'none' }, { stacks: 'all' }] satisfies TrainingOptions[]) {
  test(`a third size is predicted exactly where all blocks lie on lines: ${JSON.stringify(options)}`, () => {
    for (const size of [2, 6, 12]) {
      const report = predict([recorded(4, options), recorded(8, options)], { sizes: [4, 8], size })
      const truth = recorded(size, options)
      const { peakRequestedBytes: inUse } = truth
      const { low, estimate, high } = report.inUseBytes
      assert.deepEqual([estimate, high], [inUse, inUse])
      assert.ok(size === 2 ? low < inUse && low > inUse / 2 : low === inUse, `${low}`)
      assert.equal(report.asRecorded.reservedBytes.estimate, reserved(truth))
      assert.deepEqual(report.shares, { line: 1, otherwise: 0, unmatched: 0 })
      assert.equal(report.isBeyond, size !== 6)
    }
  })
}

test('the order of the two recordings does not matter', () => {
  const [small, large] = [recorded(4), recorded(8)]
  const there = predict([small, large], { sizes: [4, 8], size: 12 })
  assert.deepEqual(predict([large, small], { sizes: [8, 4], size: 12 }), there)
})

test('blocks that do not lie on a line give a range, which has the truth', () => {
  const options = { activationBytes: (batch: number) => batch * batch * MiB }
  const report = predict([recorded(4, options), recorded(8, options)], { sizes: [4, 8], size: 12 })
  const { peakRequestedBytes: truth } = recorded(12, options)
  assert.ok(report.shares.otherwise > 0.5)
  assert.ok(report.inUseBytes.low < truth)
  assert.equal(report.inUseBytes.estimate, truth)
})

test('an allocation that one recording lacks does not shift the others', () => {
  const options = { stacks: 'none' } as const
  const report = predict([recorded(4, options), recorded(8, { ...options, extraInStep: 1 })], {
    sizes: [4, 8],
    size: 12,
  })
  const { peakRequestedBytes: truth } = recorded(12, options)
  assert.equal(report.inUseBytes.estimate, truth)
})

test('whether it fits is said for the whole range', () => {
  const curved = { activationBytes: (batch: number) => (batch === 8 ? 15 : 4) * MiB }
  const of = (options: TrainingOptions, capacityBytes: number) =>
    predict([recorded(4, options), recorded(8, options)], { sizes: [4, 8], size: 12, capacityBytes }).asRecorded
  assert.equal(of({}, GiB).fits, 'yes')
  assert.equal(of({}, 64 * MiB).fits, 'no')
  const { estimate, high } = of(curved, GiB).reservedBytes
  assert.ok(estimate < high)
  assert.equal(of(curved, estimate).fits, 'likely')
  assert.equal(of(curved, high - MiB).fits, 'likely', 'below the most that it may reserve')
  assert.equal(of(curved, 0.9 * estimate).fits, 'unlikely')
  const { low } = of({}, GiB).reservedBytes
  assert.equal(of({}, low).fits, 'unlikely', 'the least that it may reserve')
})

test('another setting is named if it reserves less, or fits what the recorded ones do not', () => {
  const better = (capacityBytes: number, options: TrainingOptions = {}) =>
    predict([recorded(4, options), recorded(8, options)], { sizes: [4, 8], size: 12, capacityBytes }).better
  const fits = { [Infinity]: null, [GiB]: 'yes', [160 * MiB]: 'yes', [84 * MiB]: 'no' }
  for (const [capacityBytes, expected] of Object.entries(fits)) {
    const run = better(Number(capacityBytes))
    assert.deepEqual([run?.settings, run?.fits], ['expandable_segments:True', expected], capacityBytes)
  }
  const curved = { activationBytes: (batch: number) => (batch === 8 ? 15 : 4) * MiB }
  for (const capacityBytes of [Infinity, GiB, 160 * MiB]) assert.equal(better(capacityBytes, curved), null)
})

test('recordings of two programs are refused, and of another allocator', () => {
  const other = recorded(8, { stacks: 'all' })
  const options = { sizes: [4, 8], size: 12 } as const
  assert.throws(() => predict([recorded(4, { stacks: 'none', steps: 1 }), other], options), /not of the same program/)
  assert.throws(() => predict([recorded(4), { ...other, recorder: 'RMM' }], options), /not a recording of PyTorch/)
})
