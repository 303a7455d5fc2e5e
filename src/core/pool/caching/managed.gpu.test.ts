// Managed memory behind the caching pool on a real GPU, a little of it. Without a GPU it fails.

import assert from 'node:assert/strict'
import { after, describe, it } from 'node:test'
import { MiB } from '../../base/bytes.js'
import { GpuDevice } from '../gpu-device.fixture.js'

const gpu = new GpuDevice()
after(() => gpu.close())

describe('managed memory on a GPU', () => {
  it('holds what kernels and copies put there, while the pool grows and gives back', () => {
    using pool = gpu.createPool({ backing: 'managed', maxPoolBytes: 64 * MiB })
    using stream = gpu.createStream()
    const held = Array.from({ length: 12 }, (_, index) => pool.allocate((index % 4) * MiB + 4096, stream))
    held.forEach((buffer, index) => {
      gpu.stamp(buffer, index + 1)
    })
    pool.check()
    assert.equal(pool.snapshot().backing, 'managed')
    for (const [index, buffer] of held.entries()) {
      assert.deepEqual([...new Uint32Array(buffer.readSync(0, 4096).buffer)].slice(0, 2), [index + 1, index + 1])
      gpu.compare(buffer, index + 1)
    }
    assert.deepEqual(gpu.damages(), [])
    for (const buffer of held) buffer.free()
    gpu.synchronize()
    pool.trimTo(0)
    assert.equal(pool.stats().reservedBytes, 0)
    assert.throws(() => pool.allocate(65 * MiB), { name: 'OutOfMemoryError', message: /raise maxPoolBytes/ })
    const again = pool.allocate(64 * MiB, stream)
    gpu.stamp(again, 9)
    gpu.compare(again, 9)
    assert.deepEqual(gpu.damages(), [])
  })

  it('keeps its contents under advice and moves, and takes new ones after a discard', test => {
    if (gpu.context.attribute('CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS') !== 1) {
      return test.skip('this device has no concurrent managed access')
    }
    using pool = gpu.createPool({ backing: 'managed', maxPoolBytes: 64 * MiB })
    using stream = gpu.createStream()
    const buffer = pool.allocate(32 * MiB, stream)
    gpu.stamp(buffer, 5)
    for (const location of ['host', gpu] as const) {
      for (const advice of ['readMostly', 'preferredLocation', 'accessedBy'] as const) buffer.advise(advice, location)
      buffer.prefetch(location)
      gpu.compare(buffer, 5)
      for (const advice of ['readMostly', 'preferredLocation', 'accessedBy'] as const) buffer.unadvise(advice, location)
    }
    if (gpu.driver.cuDriverGetVersion() >= 13_000) {
      buffer.discard()
      buffer.prefetch()
      gpu.stamp(buffer, 6)
      gpu.compare(buffer, 6)
    } else assert.throws(() => buffer.discard(), { name: 'PoolError', code: 'ERR_NOT_SUPPORTED' })
    assert.deepEqual(gpu.damages(), [])
  })
})
