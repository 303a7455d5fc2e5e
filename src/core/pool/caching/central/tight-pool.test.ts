// A pool is tight once more than two steps of its memory lie idle.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { GiB, KiB, MiB } from '../../../base/bytes.js'
import { growthStep, policy } from '../../policy.js'
import { assertConsistent, TestDevice } from '../../pool.fixture.js'
import type { CachingPool } from '../caching-pool.js'
import type { PoolOptions } from '../options.js'
import { finish } from './parts.js'

const CAPACITY = 16 * GiB
const STEP = policy.stepBytes
const [SMALL, LARGE] = [policy.smallBytes / 2, 2 * policy.smallBytes]

function setUp(options: PoolOptions = {}) {
  const device = new TestDevice({ capacityBytes: CAPACITY })
  return { device, pool: device.createPool({ maxPoolBytes: Infinity, ...options }) }
}

/** Leaves blocks of a step pending, each on a stream of its own, until `bytes` are reserved; returns their release. */
function leavePending(device: TestDevice, pool: CachingPool, bytes: number): () => void {
  const releases: (() => void)[] = []
  while (pool.stats().reservedBytes < bytes) {
    const stream = device.createStream()
    const buffer = pool.allocate(STEP, stream)
    releases.push(device.hold(stream))
    buffer.fill(1)
    buffer.free()
  }
  return () => {
    for (const release of releases) release()
  }
}

/** Whether the cache serves a size that was freed just before. */
function isCached(pool: CachingPool, bytes: number): boolean {
  pool.allocate(bytes).free()
  const { cacheMisses } = pool.stats()
  for (let round = 0; round < 3; round++) pool.allocate(bytes).free()
  return pool.stats().cacheMisses === cacheMisses
}

for (const backing of ['virtual', 'segments'] as const) {
  describe(`a tight pool: ${backing}`, () => {
    it('caches small blocks only', () => {
      const { device, pool } = setUp({ backing, crossStreamReuse: 'ordered' })
      leavePending(device, pool, STEP * (2 + policy.looseSteps))
      const sizes = [LARGE, policy.smallBytes, policy.smallBytes - 4 * KiB, SMALL]
      assert.deepEqual(
        sizes.map(bytes => isCached(pool, bytes)),
        [false, false, true, true],
      )
      assertConsistent(pool)
    })

    it('is not a pool that has reserved memory ahead of its requests, until that is trimmed', () => {
      const { device, pool } = setUp({ backing, crossStreamReuse: 'ordered' })
      pool.reserve(STEP * (3 + policy.looseSteps))
      assert.equal(isCached(pool, LARGE), true)
      pool.trimTo(0)
      leavePending(device, pool, STEP * (2 + policy.looseSteps))
      assert.equal(isCached(pool, LARGE), false)
    })

    it('is loose again once it uses most of its memory', () => {
      const { device, pool } = setUp({ backing, crossStreamReuse: 'ordered' })
      const release = leavePending(device, pool, STEP * (2 + policy.looseSteps))
      assert.equal(isCached(pool, LARGE), false)
      release()
      const { reservedBytes } = pool.stats()
      while (pool.stats().reservedBytes === reservedBytes) pool.allocate(STEP)
      assert.equal(isCached(pool, LARGE), true)
      assertConsistent(pool)
    })

    it('is loose again once it has given idle memory back', () => {
      const { device, pool } = setUp({ backing, crossStreamReuse: 'ordered' })
      const held = pool.allocate(LARGE)
      const release = leavePending(device, pool, STEP * (2 + policy.looseSteps))
      assert.equal(isCached(pool, LARGE), false)
      release()
      pool.trimTo(0)
      const { reservedBytes } = pool.stats()
      assert.equal(isCached(pool, LARGE), true)
      assert.equal(pool.stats().reservedBytes, reservedBytes, 'it did not grow')
      held.free()
    })

    it('makes a stream wait before it grows, and a loose one does not', () => {
      const { device, pool } = setUp({ backing })
      const blocks = 2 + policy.looseSteps
      for (let count = 1; count <= 2 * blocks; count++) {
        const { reservedBytes, insertedWaits } = pool.stats()
        leavePending(device, pool, 1) // the pool has a block
        const stream = device.createStream()
        const buffer = pool.allocate(STEP, stream)
        const isLoose = reservedBytes + STEP <= STEP * (1 + policy.looseSteps)
        assert.equal(pool.stats().insertedWaits - insertedWaits, isLoose ? 0 : 1, `block ${count}`)
        device.hold(stream)
        buffer.fill(1)
        buffer.free()
      }
      assert.equal(pool.stats().reservedBytes, STEP * (1 + policy.looseSteps))
      assertConsistent(pool)
    })
  })
}

describe('a pool that becomes tight', () => {
  it('gives up the large blocks that it has cached, and keeps the small ones', () => {
    const { device, pool } = setUp({ crossStreamReuse: 'ordered' })
    assert.deepEqual([isCached(pool, SMALL), isCached(pool, LARGE)], [true, true])
    assert.equal(pool.stats().cachedBytes, SMALL + LARGE)
    leavePending(device, pool, STEP * (2 + policy.looseSteps))
    assert.equal(pool.stats().cachedBytes, SMALL)
    assertConsistent(pool)
  })

  it('becomes so too by requests whose caller does something else during their waits', () => {
    const { device, pool } = setUp({ crossStreamReuse: 'ordered' })
    const { central } = pool
    central.allocate = (...request) => finish(central.search(...request))
    assert.equal(isCached(pool, LARGE), true)
    const { changes } = central
    leavePending(device, pool, STEP * (2 + policy.looseSteps))
    assert.ok(central.changes > changes, 'observers are told')
    assert.equal(isCached(pool, LARGE), false)
  })
})

describe('the room of a pool', () => {
  it('decides how much may lie idle before a stream is made to wait', () => {
    for (const maxPoolBytes of [1 * GiB, 4 * GiB]) {
      const { device, pool } = setUp({ maxPoolBytes })
      const [a, b, c, d] = Array.from({ length: 4 }, () => device.createStream())
      const step = growthStep(maxPoolBytes)
      const idle: number[] = []
      for (const stream of [a, b, c, d]) {
        const buffer = pool.allocate(step, stream)
        device.hold(stream)
        buffer.fill(1)
        buffer.free()
        idle.push(pool.stats().reservedBytes)
      }
      assert.ok(idle[0] < idle[1] && idle[1] <= step * (1 + policy.looseSteps), `${idle.map(bytes => bytes / MiB)}`)
      assert.ok(pool.stats().insertedWaits > 0)
      assert.ok(pool.stats().reservedBytes <= step * (2 + policy.looseSteps))
    }
  })
})
