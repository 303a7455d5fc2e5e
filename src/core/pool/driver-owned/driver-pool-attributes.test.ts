import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { GiB, MiB } from '../../base/bytes.js'
import { POOL_ATTRIBUTE } from '../../driver/constants.js'
import { TestDevice } from '../pool.fixture.js'

const CHUNK = 32 * MiB

describe('driver pool: attributes', () => {
  it("a new pool has the driver's defaults, and opening the default pool changes no attribute", () => {
    const device = new TestDevice()
    const handle = device.driver.cuDeviceGetDefaultMemPool(0)
    const { CU_MEMPOOL_ATTR_RELEASE_THRESHOLD: attribute } = POOL_ATTRIBUTE
    const threshold = () => device.driver.cuMemPoolGetAttribute(handle, attribute)
    device.driver.cuMemPoolSetAttribute(handle, attribute, 5 * MiB)
    const pools = [device.defaultDriverPool(), device.defaultDriverPool()]
    assert.equal(threshold(), 5 * MiB)
    pools[0].allocate(1 * MiB)
    for (const pool of pools) pool.close()
    assert.equal(threshold(), 5 * MiB)
    const made = device.createDriverPool()
    assert.deepEqual([made.releaseThresholdBytes, made.reservedBytes, made.peakReservedBytes], [0, 0, 0])
    assert.deepEqual([made.usedBytes, made.peakUsedBytes], [0, 0])
    assert.deepEqual(
      [made.followEventDependencies, made.allowOpportunisticReuse, made.allowInternalDependencies],
      [true, true, true],
    )
  })

  it('the release threshold reads back as written, Infinity for no limit', () => {
    const pool = new TestDevice().createDriverPool()
    assert.equal(pool.releaseThresholdBytes, 0)
    for (const bytes of [1000, Infinity, 0, Number.MAX_SAFE_INTEGER]) {
      pool.releaseThresholdBytes = bytes
      assert.equal(pool.releaseThresholdBytes, bytes)
    }
    for (const bytes of [-1, 0.5, Number.NaN, 2 ** 53]) {
      assert.throws(
        () => {
          pool.releaseThresholdBytes = bytes
        },
        { name: 'RangeError', message: /releaseThresholdBytes must/ },
      )
    }
    assert.throws(
      () => {
        pool.releaseThresholdBytes = '1' as unknown as number
      },
      { name: 'TypeError', message: /releaseThresholdBytes must/ },
    )
    assert.equal(pool.releaseThresholdBytes, Number.MAX_SAFE_INTEGER)
  })

  it('each reuse policy is set alone', () => {
    const policies = ['followEventDependencies', 'allowOpportunisticReuse', 'allowInternalDependencies'] as const
    const pool = new TestDevice().createDriverPool()
    const flags = () => policies.map(policy => pool[policy])
    for (const [index, policy] of policies.entries()) {
      pool[policy] = false
      assert.deepEqual(
        flags(),
        policies.map((_, other) => other !== index),
      )
      pool[policy] = true
      assert.deepEqual(flags(), [true, true, true])
      assert.throws(
        () => {
          pool[policy] = 1 as unknown as boolean
        },
        { name: 'TypeError', message: new RegExp(`${policy} must be true or false, not 1`) },
      )
    }
  })

  it('counters and peaks follow the allocations, and peaks restart at the current values', () => {
    const device = new TestDevice({ capacityBytes: 1 * GiB })
    const pool = device.createDriverPool()
    pool.releaseThresholdBytes = Infinity
    const kept = pool.allocate(8192)
    assert.deepEqual([pool.usedBytes, pool.reservedBytes], [8192, CHUNK])
    pool.allocate(100 * MiB).free()
    device.defaultStream.synchronize()
    assert.deepEqual(
      [pool.usedBytes, pool.peakUsedBytes, pool.reservedBytes, pool.peakReservedBytes],
      [8192, 8192 + 100 * MiB, 5 * CHUNK, 5 * CHUNK],
    )
    pool.trimTo(0)
    pool.resetPeaks()
    assert.deepEqual([pool.peakUsedBytes, pool.peakReservedBytes], [8192, CHUNK])
    const stats = pool.stats()
    assert.deepEqual(
      [stats.liveBytes, stats.peakLiveBytes, stats.reservedBytes, stats.peakReservedBytes],
      [8192, 8192, CHUNK, CHUNK],
    )
    kept.free()
  })

  it('sizes written into counters are refused before any driver call', () => {
    const device = new TestDevice()
    const pool = device.createDriverPool()
    for (const readOnly of ['reservedBytes', 'usedBytes', 'peakReservedBytes', 'peakUsedBytes'] as const) {
      assert.throws(() => Object.assign(pool, { [readOnly]: 1 }), TypeError)
    }
    assert.equal(device.driver.calls.get('cuMemPoolSetAttribute'), undefined)
  })
})
