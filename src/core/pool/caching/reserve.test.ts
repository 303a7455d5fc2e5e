// Memory that a pool takes before it is needed.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { GiB, KiB, MiB } from '../../base/bytes.js'
import { CudaError, OutOfMemoryError } from '../../base/errors.js'
import { leastPiece } from '../policy.js'
import { assertConsistent, TestDevice } from '../pool.fixture.js'
import type { CachingPool } from './caching-pool.js'

const CREATING = ['cuMemCreate', 'cuMemMap', 'cuMemSetAccess', 'cuMemAlloc', 'cuMemAllocManaged']

/** Calls so far that create memory. */
function created(device: TestDevice): number {
  return CREATING.reduce((sum, call) => sum + device.calls(call), 0)
}

for (const backing of ['virtual', 'segments', 'registrable'] as const) {
  describe(`reserve on a device with little room: ${backing}`, () => {
    it('takes nothing from a device that has too little', () => {
      const device = new TestDevice()
      const pool = device.createPool({ backing, maxPoolBytes: Infinity })
      pool.reserve(8 * MiB)
      const taken = device.context.activate().cuMemAlloc(40 * MiB)
      assert.throws(() => pool.reserve(32 * MiB), { remedy: 'freeDeviceMemory', message: /the device itself is full/ })
      assert.equal(pool.stats().reservedBytes, 8 * MiB)
      device.driver.cuMemFree(taken)
      assert.equal(pool.reserve(64 * MiB), 56 * MiB)
      assertConsistent(pool)
    })

    it('leaves leaveFreeBytes alone', () => {
      const pool = new TestDevice().createPool({ backing, leaveFreeBytes: 20 * MiB })
      assert.throws(() => pool.reserve(46 * MiB), { remedy: 'lowerLeaveFree', message: /leaveFreeBytes keeps 20 MiB/ })
      assert.equal(pool.stats().reservedBytes, 0)
      assert.equal(pool.reserve(44 * MiB), 44 * MiB)
    })

    for (const code of [2, 999]) {
      it(`adds nothing when a driver call fails with ${code}, once or from then on`, () => {
        for (const onwards of [false, true]) {
          for (const call of ['cuMemCreate', 'cuMemMap', 'cuMemSetAccess', 'cuMemAlloc', 'cuMemGetInfo'] as const) {
            let failures = 0
            for (let nth = 1; nth < 40; nth++) if (failsAt(backing, { call, nth, code, onwards })) failures++
            const isUsed = (call === 'cuMemAlloc') === (backing === 'segments') || call === 'cuMemGetInfo'
            // One refused allocation of a segment is tried again.
            const isSegment = backing !== 'virtual' && call !== 'cuMemGetInfo'
            const isRetried = isSegment && code === 2 && !onwards
            assert.equal(failures > 0, isUsed && !isRetried, `${call} ${code} ${onwards}`)
          }
        }
      })
    }
  })
}

/** Whether `reserve` fails by a failing call; checks that the pool is as it was then, and works afterwards. */
function failsAt(
  backing: 'virtual' | 'segments' | 'registrable',
  fault: {
    call: 'cuMemCreate' | 'cuMemMap' | 'cuMemSetAccess' | 'cuMemAlloc' | 'cuMemGetInfo'
    nth: number
    code: number
    onwards: boolean
  },
): boolean {
  const device = new TestDevice()
  const pool = device.createPool({ backing, maxPoolBytes: 48 * MiB, leaveFreeBytes: 1 * MiB })
  const held = pool.allocate(6 * MiB)
  held.fill(7)
  device.driver.failCall(fault)
  let hasFailed = false
  try {
    assert.equal(pool.reserve(48 * MiB), 42 * MiB)
  } catch (error) {
    assert.ok(error instanceof OutOfMemoryError || error instanceof CudaError, `${error}`)
    hasFailed = true
  }
  device.driver.clearFaults()
  if (hasFailed) assert.equal(pool.stats().reservedBytes, 6 * MiB)
  assertConsistent(pool)
  assert.equal(pool.reserve(48 * MiB), hasFailed ? 42 * MiB : 0)
  pool.allocate(42 * MiB).free()
  assert.equal(held.readSync(0, 1)[0], 7)
  held.free()
  pool.trimTo(0)
  assertConsistent(pool)
  pool.close()
  assert.equal(device.freeBytes(), device.totalBytes)
  return hasFailed
}

describe('reserve: managed memory', () => {
  it('may take more than the device has', () => {
    const device = new TestDevice()
    const pool = device.createPool({ backing: 'managed', maxPoolBytes: 128 * MiB })
    assert.equal(pool.reserve(100 * MiB), 100 * MiB)
    const before = created(device)
    pool.allocate(90 * MiB)
    assert.equal(created(device), before)
    assertConsistent(pool)
  })
})

describe('reserve: virtual memory', () => {
  it('serves small blocks and large ones', () => {
    const device = new TestDevice()
    const pool = device.createPool()
    pool.reserve(32 * MiB)
    const before = created(device)
    for (let count = 0; count < 500; count++) pool.allocate(10 * KiB)
    for (let count = 0; count < 6; count++) pool.allocate(4 * MiB)
    assert.equal(created(device), before)
    assertConsistent(pool)
  })

  it('takes few pieces: as large as the policy has them, and small ones only near the limit', () => {
    const device = new TestDevice({ capacityBytes: 64 * GiB })
    const pool: CachingPool = device.createPool({ maxPoolBytes: 40 * GiB })
    pool.reserve(32 * GiB)
    const pieces = device.calls('cuMemCreate')
    const expected = (32 * GiB) / leastPiece(40 * GiB, 32 * GiB)
    assert.ok(Math.abs(pieces - expected) <= 1, `${pieces} pieces, not ${expected}`) // whole granules
    pool.reserve(40 * GiB)
    assert.equal(device.calls('cuMemCreate') - pieces, (8 * GiB) / leastPiece(8 * GiB, 40 * GiB))
    assert.ok(leastPiece(8 * GiB, 40 * GiB) < leastPiece(40 * GiB, 32 * GiB) / 4)
    assert.equal(pool.stats().largestFreeBytes, 40 * GiB)
    assertConsistent(pool)
  })

  it('works in debug mode', () => {
    const device = new TestDevice()
    const pool = device.createPool({ debug: true })
    assert.equal(pool.reserve(32 * MiB), 32 * MiB)
    const before = created(device)
    pool.allocate(1000).free()
    pool.allocate(9 * MiB).free()
    assert.equal(created(device), before)
    pool.check()
  })
})
