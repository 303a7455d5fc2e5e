// The steps of the slow path by name and in order, as planned for the pool's options, and as a request tries them.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { MiB } from '../../../base/bytes.js'
import { TestDevice } from '../../pool.fixture.js'
import type { CachingPool } from '../caching-pool.js'
import { type PoolOptions, parsePoolOptions } from '../options.js'
import type { Miss } from './parts.js'
import { CAPTURE_PLAN, type Plan, planFor } from './slow-path.js'
import type { Step, StepName } from './steps.js'

const DEFAULT: Plan = {
  beforeGrowth: ['reuseOrdered', 'takeInView', 'refuseForeignCapture', 'poll', 'drain', 'carveSlab'],
  growth: [
    'growToBound',
    'stitchOrGrow',
    'waitForStream',
    'waitToStitch',
    'growToLimit',
    'drainAll',
    'waitToGrow',
    'waitOnHost',
  ],
}
const WAITS_OF_STREAMS: readonly StepName[] = ['waitForStream', 'waitToStitch', 'waitToGrow']

/** The plan of a pool of virtual memory. */
function planOf(options: PoolOptions): Plan {
  return planFor(parsePoolOptions(options, 64 * MiB), true)
}

/** The names of the steps that are tried during `work`; a step that another one calls does not count. */
function triedBy(pool: CachingPool, work: () => void): StepName[] {
  const steps = pool.central['steps']
  const tried: StepName[] = []
  let isInStep = false
  for (const name of new Set([DEFAULT, CAPTURE_PLAN].flatMap(plan => [...plan.beforeGrowth, ...plan.growth]))) {
    const step: Step = steps[name]
    const recorded = (miss: Miss) => {
      if (isInStep) return step.call(steps, miss)
      tried.push(name)
      isInStep = true
      const result = step.call(steps, miss)
      isInStep = false
      return result
    }
    Object.assign(steps, { [name]: recorded })
  }
  work()
  return tried
}

test('a default pool makes a stream wait when it cannot grow, and the host last', () => {
  assert.deepEqual(planOf({}), DEFAULT)
})

test('a deterministic pool has the same steps', () => {
  assert.deepEqual(planOf({ deterministic: true }), DEFAULT)
})

test('a pool without slabs has no bound for growth, and takes blocks out of the heap for other sizes', () => {
  const { beforeGrowth, growth } = planFor(parsePoolOptions({ backing: 'segments' }, 64 * MiB), false)
  assert.deepEqual(beforeGrowth, DEFAULT.beforeGrowth)
  const withOtherHeap = DEFAULT.growth.flatMap(name => (name === 'waitOnHost' ? ['takeFromOtherHeap', name] : [name]))
  assert.deepEqual(
    growth,
    withOtherHeap.filter(name => name !== 'growToBound'),
  )
})

test("with crossStreamReuse 'ordered' no stream is made to wait", () => {
  const { beforeGrowth, growth } = planOf({ crossStreamReuse: 'ordered' })
  assert.deepEqual(beforeGrowth, DEFAULT.beforeGrowth)
  assert.deepEqual(
    growth,
    DEFAULT.growth.filter(name => !WAITS_OF_STREAMS.includes(name)),
  )
})

test("with crossStreamReuse 'wait-before-grow' a stream waits before the pool grows, and the host before much is idle", () => {
  const { beforeGrowth, growth } = planOf({ crossStreamReuse: 'wait-before-grow' })
  assert.deepEqual(beforeGrowth, [...DEFAULT.beforeGrowth, 'waitForStream'])
  assert.deepEqual(growth, [
    'growToBound',
    'waitToStitch',
    'stitchOrGrow',
    'waitOnHostToStitch',
    'growToLimit',
    'drainAll',
    'waitOnHost',
  ])
})

test('a capture gets a block that depends on no work, and no stream is made to wait', () => {
  assert.deepEqual(CAPTURE_PLAN, {
    beforeGrowth: ['independent', 'drainCompletely', 'returnSlabs', 'takeInView'],
    growth: ['growToBound', 'stitchOrGrow', 'growToLimit', 'waitOnHost'],
  })
})

test('a request that no step helps tries all steps in their order', () => {
  const pool = new TestDevice().createPool({ maxPoolBytes: 10 * MiB })
  pool.allocate(8 * MiB)
  const tried = triedBy(pool, () => assert.equal(pool.tryAllocate(8 * MiB), null))
  assert.deepEqual(tried, [...DEFAULT.beforeGrowth, ...DEFAULT.growth])
  assert.equal(pool.stats().growths, 1, 'of the first request')
})

test('a request that a step helps tries no further step', () => {
  const pool = new TestDevice().createPool()
  const tried = triedBy(pool, () => pool.allocate(8 * MiB))
  assert.deepEqual(tried, [...DEFAULT.beforeGrowth, 'growToBound'])
})

test('a request above the limit of the pool tries no step', () => {
  const pool = new TestDevice().createPool({ maxPoolBytes: 10 * MiB })
  const tried = triedBy(pool, () => assert.equal(pool.tryAllocate(11 * MiB), null))
  assert.deepEqual(tried, [])
  assert.equal(pool.stats().growths, 0)
})

test('a capture tries the steps of its plan', () => {
  const device = new TestDevice()
  const pool = device.createPool()
  const stream = device.createStream()
  stream.beginCapture()
  const tried = triedBy(pool, () => pool.allocate(1 * MiB, stream))
  stream.endCapture().close()
  assert.deepEqual(tried, [...CAPTURE_PLAN.beforeGrowth, 'growToBound'])
})
