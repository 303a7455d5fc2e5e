// How much memory a growth takes, by the room that the limits and the device leave.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { GiB, MiB } from '../../../base/bytes.js'
import { growthStep, policy } from '../../policy.js'
import { assertConsistent, TestDevice } from '../../pool.fixture.js'
import type { CachingPool } from '../caching-pool.js'
import type { PoolOptions } from '../options.js'

const CAPACITY = 16 * GiB
const STEP = policy.stepBytes
const GRANULE = 2 * MiB

function setUp(options: PoolOptions = {}) {
  const device = new TestDevice({ capacityBytes: CAPACITY })
  return { device, pool: device.createPool({ maxPoolBytes: Infinity, ...options }) }
}

/** Bytes and pieces of the next growth, for blocks of a granule. */
function nextGrowth({ device, pool }: { device: TestDevice; pool: CachingPool }): { bytes: number; pieces: number } {
  const { reservedBytes } = pool.stats()
  const before = device.calls('cuMemCreate')
  while (pool.stats().reservedBytes === reservedBytes) pool.allocate(GRANULE)
  assertConsistent(pool)
  return { bytes: pool.stats().reservedBytes - reservedBytes, pieces: device.calls('cuMemCreate') - before }
}

function wholeGranules(bytes: number): number {
  return Math.floor(bytes / GRANULE) * GRANULE
}

describe('a growth', () => {
  it('takes a whole step while there is room, and the requests after it need no driver', () => {
    const set = setUp()
    const { device, pool } = set
    for (let step = 1; step <= 3; step++) {
      assert.deepEqual(nextGrowth(set), { bytes: STEP, pieces: 1 })
      const before = new Map(device.driver.calls)
      for (let bytes = GRANULE; bytes < STEP; bytes += GRANULE) pool.allocate(GRANULE)
      assert.deepEqual(device.driver.calls, before)
    }
    assert.equal(pool.stats().growths, 3)
  })

  it('takes what its request needs if that is more than a step', () => {
    const { pool } = setUp()
    pool.allocate(5 * STEP)
    assert.equal(pool.stats().reservedBytes, 5 * STEP)
  })

  const ROOM = GiB
  for (const [what, options] of [
    ['the limit', { maxPoolBytes: ROOM }],
    ['leaveFreeBytes', { leaveFreeBytes: CAPACITY - ROOM }],
    ['the release threshold', { releaseThresholdBytes: ROOM }],
  ] as const) {
    it(`takes a smaller step, in one piece, as ${what} leaves less room`, () => {
      const bytes = growthStep(ROOM)
      assert.ok(bytes < STEP)
      const set = setUp(options)
      assert.deepEqual(nextGrowth(set), { bytes, pieces: 1 })
      set.pool.allocate(ROOM / 2)
      const room = ROOM - set.pool.stats().reservedBytes
      assert.equal(nextGrowth(set).bytes, wholeGranules(growthStep(room)))
    })
  }

  it('takes a smaller step as other programs leave less room, once the pool has grown by a step of the room', () => {
    const set = setUp()
    nextGrowth(set)
    set.device.driver.cuMemAlloc(set.device.freeBytes() - ROOM)
    const before = set.device.calls('cuMemGetInfo')
    while (set.device.calls('cuMemGetInfo') === before) nextGrowth(set)
    assert.ok(set.pool.stats().reservedBytes < CAPACITY * policy.stepOfRoom + STEP)
    const room = set.device.freeBytes()
    assert.equal(nextGrowth(set).bytes, wholeGranules(growthStep(room)))
  })

  it('takes no more than its request needs with a release threshold of 0', () => {
    const { pool } = setUp({ releaseThresholdBytes: 0 })
    const held = pool.allocate(3 * MiB)
    assert.equal(pool.stats().reservedBytes, 4 * MiB)
    held.free()
    assert.equal(pool.stats().reservedBytes, 0)
  })

  it('of a deterministic pool does not depend on what other programs leave', () => {
    const { device, pool } = setUp({ deterministic: true })
    device.driver.cuMemAlloc(device.freeBytes() - ROOM)
    for (let step = 1; step <= 3; step++) assert.equal(nextGrowth({ device, pool }).bytes, STEP)
  })

  for (const deterministic of [false, true]) {
    const kind = deterministic ? 'a deterministic pool' : 'a pool'

    it(`of ${kind} keeps leaveFreeBytes of the device free, although other programs took memory since the last one`, () => {
      const leaveFreeBytes = 100 * MiB
      const { device, pool } = setUp({ deterministic, leaveFreeBytes })
      pool.allocate(STEP)
      device.driver.cuMemAlloc(device.freeBytes() - leaveFreeBytes - 20 * MiB)
      pool.allocate(4 * MiB)
      assert.equal(device.freeBytes(), leaveFreeBytes)
      for (let bytes = 4 * MiB; bytes < 20 * MiB; bytes += GRANULE) pool.allocate(GRANULE)
      assert.equal(pool.tryAllocate(GRANULE), null)
      assertConsistent(pool)
    })

    it(`of ${kind} serves its request if the device has enough for that, and not for a step`, () => {
      const { device, pool } = setUp({ deterministic })
      pool.allocate(STEP)
      device.driver.cuMemAlloc(device.freeBytes() - 20 * MiB)
      for (let bytes = 0; bytes < 20 * MiB; bytes += GRANULE) pool.allocate(GRANULE)
      assert.equal(device.freeBytes(), 0)
      assertConsistent(pool)
    })

    it(`of ${kind} serves its request when the driver refuses a whole step`, () => {
      const { device, pool } = setUp({ deterministic })
      device.driver.failCall({ call: 'cuMemCreate', code: 2, nth: 1 })
      pool.allocate(3 * MiB)
      assert.equal(pool.stats().reservedBytes, 4 * MiB)
      assertConsistent(pool)
    })
  }

  it('takes a step by the last answer of the device if the driver refuses to answer', () => {
    const { device, pool } = setUp()
    device.driver.failCall({ call: 'cuMemGetInfo', code: 999 })
    pool.allocate(3 * MiB)
    assert.equal(pool.stats().reservedBytes, STEP)
    device.driver.clearFaults()
    assertConsistent(pool)
  })
})
