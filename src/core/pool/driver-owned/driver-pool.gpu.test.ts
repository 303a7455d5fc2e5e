// Driver pools on a GPU: the effect of their attributes, the memory that they keep and give back, and memory in the
// host. Fails without a GPU.

import assert from 'node:assert/strict'
import { after, describe, it, type TestContext } from 'node:test'
import { GiB, MiB } from '../../base/bytes.js'
import { OutOfMemoryError, PoolError } from '../../base/errors.js'
import { GpuDevice } from '../gpu-device.fixture.js'
import type { DriverPool } from './driver-pool.js'
import type { DriverPoolOptions } from './driver-pool-options.js'

const gpu = new GpuDevice()
after(() => gpu.close())

/** A pool, or null if this GPU or its host has no such kind, which the output then mentions. */
function poolOr(test: TestContext, options: DriverPoolOptions): DriverPool | null {
  try {
    return gpu.createDriverPool(options)
  } catch (error) {
    if (!(error instanceof PoolError)) throw error
    test.skip(`this GPU or its host has no such pool: ${error.message}`)
    return null
  }
}

describe("the driver's pools on a GPU", () => {
  it('attributes read back as written, and peaks restart', () => {
    using pool = gpu.createDriverPool()
    assert.deepEqual([pool.releaseThresholdBytes, pool.reservedBytes, pool.usedBytes], [0, 0, 0])
    for (const bytes of [1000, 5 * 2 ** 32 + 7, Infinity]) {
      pool.releaseThresholdBytes = bytes
      assert.equal(pool.releaseThresholdBytes, bytes)
    }
    for (const policy of ['followEventDependencies', 'allowOpportunisticReuse', 'allowInternalDependencies'] as const) {
      for (const on of [false, true]) {
        assert.equal(pool[policy], !on)
        pool[policy] = on
      }
    }
    const kept = pool.allocate(8192)
    pool.allocate(100 * MiB).free()
    gpu.synchronize()
    assert.equal(pool.usedBytes, 8192)
    assert.ok(pool.peakUsedBytes >= 100 * MiB && pool.reservedBytes >= 100 * MiB)
    pool.trimTo(0)
    pool.resetPeaks()
    assert.deepEqual([pool.peakUsedBytes, pool.peakReservedBytes], [8192, pool.reservedBytes])
    kept.free()
  })

  it('a trim gives back memory that the host has seen free, and keeps live memory', () => {
    using pool = gpu.createDriverPool()
    using stream = gpu.createStream()
    pool.releaseThresholdBytes = Infinity
    const [kept, large] = [pool.allocate(1 * MiB, stream), pool.allocate(256 * MiB, stream)]
    gpu.stamp(kept, 5)
    const release = gpu.hold(stream)
    large.free()
    assert.equal(pool.trimTo(0), 0)
    release()
    stream.synchronize()
    assert.ok(pool.trimTo(0) >= 192 * MiB, 'all but the piece of the driver’s that the other block is in')
    assert.ok(pool.reservedBytes >= 1 * MiB && pool.reservedBytes <= 64 * MiB)
    gpu.compare(kept, 5)
    assert.deepEqual(gpu.damages(), [])
  })

  it('opening the default pool does not change it, and close gives back live buffers', () => {
    const pools = [gpu.defaultDriverPool(), gpu.defaultDriverPool()]
    const { releaseThresholdBytes, usedBytes } = pools[0]
    const buffer = pools[0].allocate(64 * MiB)
    gpu.stamp(buffer, 3)
    pools[0].close()
    assert.equal(buffer.freed, true)
    assert.deepEqual([pools[1].releaseThresholdBytes, pools[1].usedBytes], [releaseThresholdBytes, usedBytes])
    pools[1].close()
  })

  it('a pool with a limit refuses more, and works on', () => {
    using pool = gpu.createDriverPool({ maxPoolBytes: 1 * MiB })
    const kept = pool.allocate(512 * 1024)
    gpu.stamp(kept, 1)
    assert.equal(pool.tryAllocate(1 * GiB), null)
    assert.throws(() => pool.allocate(1 * GiB), OutOfMemoryError)
    gpu.compare(kept, 1)
    assert.deepEqual(gpu.damages(), [])
  })

  it('cuMemAllocAsync uses the current pool, until the pool is closed', () => {
    const [pool, standard] = [gpu.createDriverPool(), gpu.defaultDriverPool()]
    assert.deepEqual([pool.isCurrent, standard.isCurrent], [false, true])
    pool.setCurrent()
    assert.deepEqual([pool.isCurrent, standard.isCurrent], [true, false])
    const ptr = gpu.driver.cuMemAllocAsync(1 * MiB, 0)
    assert.equal(pool.usedBytes, 1 * MiB)
    gpu.driver.cuMemFreeAsync(ptr, 0)
    pool.close()
    assert.equal(standard.isCurrent, true)
    standard.close()
  })

  it("a pool's own device keeps its access, and the host gets none", () => {
    using pool = gpu.createDriverPool()
    assert.equal(pool.access(gpu), 'readWrite')
    pool.setAccess(gpu, 'readWrite')
    assert.throws(() => pool.setAccess(gpu, 'none'), { name: 'PoolError', message: /own device keeps access/ })
    assert.throws(
      () =>
        pool.setAccess([
          { location: 'host', access: 'readWrite' },
          { location: gpu, access: 'readWrite' },
        ]),
      { name: 'PoolError', message: /1 of 2 changes failed, the others are made: entry 0/ },
    )
    assert.equal(pool.access(gpu), 'readWrite')
  })

  for (const options of [
    { location: 'host' },
    { location: { numaNode: 0 } },
    { allocationType: 'managed' },
  ] as const satisfies readonly DriverPoolOptions[]) {
    it(`${JSON.stringify(options)}: kernels and copies use the memory like any other`, async test => {
      const pool = poolOr(test, options)
      if (pool === null) return
      using stream = gpu.createStream()
      const [buffer, other] = [pool.allocate(3 * MiB, stream), gpu.createPool().allocate(3 * MiB, stream)]
      gpu.stamp(buffer, 0x01020304)
      gpu.compare(buffer, 0x01020304)
      other.copyFrom(buffer)
      gpu.compare(other, 0x01020304)
      assert.deepEqual([...(await buffer.read(4, 4))], [4, 3, 2, 1])
      buffer.fill(7)
      buffer.write(Uint8Array.of(1, 2, 3), 1000)
      assert.deepEqual([...buffer.readSync(999, 5)], [7, 1, 2, 3, 7])
      buffer.writeSync(new Uint8Array(3 * MiB).fill(9))
      assert.equal((await buffer.read())[3 * MiB - 1], 9)
      buffer.copyFrom(other)
      gpu.compare(buffer, 0x01020304)
      assert.deepEqual(gpu.damages(), [])
      buffer.free()
      pool.close()
    })
  }

  it('a refusal names its reason', () => {
    assert.throws(() => gpu.createDriverPool({ location: { numaNode: 1000 } }), {
      name: 'PoolError',
      message: /NUMA node 1000/,
    })
  })
})
