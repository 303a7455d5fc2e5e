// Managed memory behind the caching pool: that it is taken and given back as such, and what its own limit is. All
// else is in the suites, which run with it too.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { MiB } from '../../base/bytes.js'
import { assertConsistent, TestDevice } from '../pool.fixture.js'

const DEVICE_BYTES = 64 * MiB

describe('managed memory', () => {
  it('is taken in segments, holds what is written, and goes back', () => {
    const device = new TestDevice({ capacityBytes: DEVICE_BYTES })
    const pool = device.createPool({ backing: 'managed' })
    const calls = (name: string) => device.driver.calls.get(name) ?? 0
    assert.equal(pool.snapshot().backing, 'managed')
    const [small, large] = [pool.allocate(1000), pool.allocate(5 * MiB)]
    small.write(new Uint8Array(1000).fill(3))
    large.copyFrom(small, 5 * MiB - 1000)
    assert.equal(large.readSync(5 * MiB - 1)[0], 3)
    assert.deepEqual([calls('cuMemAllocManaged'), calls('cuMemAlloc'), calls('cuMemCreate')], [2, 0, 0])
    assert.equal(pool.stats().reservedBytes, 8 * MiB)
    assertConsistent(pool)
    small.free()
    large.free()
    device.context.activate().cuCtxSynchronize()
    assert.equal(pool.trimTo(0), 8 * MiB)
    assert.equal(calls('cuMemFree'), 2)
    pool.allocate(1)
    pool.close()
    assert.equal(calls('cuMemFree'), calls('cuMemAllocManaged'))
  })

  it('may be more than the device has, when maxPoolBytes says so', () => {
    const device = new TestDevice({ capacityBytes: DEVICE_BYTES })
    const large = device.createPool({ backing: 'managed', maxPoolBytes: 3 * DEVICE_BYTES })
    const held = [large.allocate(2 * DEVICE_BYTES), large.allocate(1 * DEVICE_BYTES)]
    for (const buffer of held) buffer.fill(7)
    assert.equal(held[0].readSync(2 * DEVICE_BYTES - 1)[0], 7)
    assert.throws(() => large.allocate(1), { name: 'OutOfMemoryError', message: /raise maxPoolBytes/ })
    assertConsistent(large)
    for (const maxPoolBytes of [Infinity, '100%'] as const) {
      const usual = device.createPool({ backing: 'managed', maxPoolBytes })
      assert.equal(usual.tryAllocate(DEVICE_BYTES + 1), null)
      assert.notEqual(usual.tryAllocate(DEVICE_BYTES), null)
    }
    const device64 = device.createPool({ backing: 'segments', maxPoolBytes: 3 * DEVICE_BYTES })
    assert.equal(device64.tryAllocate(2 * DEVICE_BYTES), null, 'device memory cannot')
  })

  it('is refused on a device without it, with the alternative', () => {
    const device = new TestDevice({ managedMemory: false })
    assert.throws(() => device.createPool({ backing: 'managed' }), {
      name: 'PoolError',
      message: /'managed' is not possible here: the device has no managed memory; use 'auto'.*mapped host pool/,
    })
    device.createPool().allocate(1)
  })

  it('a refusal of the driver is its own error or out of memory, and loses no memory', () => {
    const device = new TestDevice()
    const pool = device.createPool({ backing: 'managed' })
    device.driver.failCall({ call: 'cuMemAllocManaged', code: 801 })
    assert.throws(() => pool.allocate(1), { name: 'CudaError', message: /cuMemAllocManaged.*801/ })
    device.driver.failCall({ call: 'cuMemAllocManaged', onwards: true })
    assert.equal(pool.tryAllocate(1), null)
    device.driver.clearFaults()
    pool.allocate(1).free()
    assertConsistent(pool)
  })
})
