import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { MiB } from '../../base/bytes.js'
import { CudaError, OutOfMemoryError, PoolError } from '../../base/errors.js'
import { assertConsistent, sourceOf, TestDevice } from '../pool.fixture.js'
import { fallback } from './fallback.js'
import { limited } from './limited.js'

function setUp() {
  const device = new TestDevice()
  const upstream = device.createPool({ maxPoolBytes: 8 * MiB })
  const plain = device.createPlainPool()
  return { device, upstream, plain, pool: fallback(upstream, plain) }
}

describe('with fallback', () => {
  it('the fallback serves when the upstream has no room', () => {
    const { upstream, plain, pool } = setUp()
    const first = pool.allocate(6 * MiB)
    const second = pool.allocate(6 * MiB)
    const third = pool.tryAllocate(6 * MiB)!
    assert.deepEqual([first, second, third].map(sourceOf), [upstream, plain, plain])
    assert.equal(pool.fallbacks, 2)
    for (const buffer of [first, second, third]) {
      assert.equal(buffer.pool, pool)
      buffer.fill(1)
      assert.equal(buffer.readSync(6 * MiB - 1)[0], 1)
    }
    assert.equal(plain.stats().liveBuffers, 2)
    second.free()
    pool.free(third)
    assert.equal(plain.stats().liveBuffers, 0)
    first.free()
    assert.equal(upstream.stats().liveBuffers, 0)
    for (const buffer of [first, second]) assert.throws(() => buffer.free(), PoolError)
    assertConsistent(upstream)
  })

  it('an upstream that cannot serve a request leaves the whole device to the fallback', () => {
    const { upstream, pool } = setUp()
    pool.allocate(64 * MiB)
    assert.equal(upstream.stats().reservedBytes, 0)
  })

  it('the stats are the sums of both pools', () => {
    const { pool } = setUp()
    pool.allocate(6 * MiB)
    pool.allocate(6 * MiB).free()
    pool.allocate(7 * MiB)
    const { liveBuffers, liveBytes, requestedBytes, reservedBytes, allocations, frees } = pool.stats()
    assert.deepEqual(
      { liveBuffers, liveBytes, requestedBytes, allocations, frees },
      { liveBuffers: 2, liveBytes: 13 * MiB, requestedBytes: 13 * MiB, allocations: 3, frees: 1 },
    )
    assert.ok(reservedBytes >= liveBytes)
  })

  it('a counter that one pool lacks comes from the other pool', () => {
    const { upstream, plain, pool } = setUp()
    pool.allocate(1 * MiB)
    const expected = { ...upstream.stats(), maxPoolBytes: Infinity }
    assert.deepEqual(pool.stats(), expected)
    const { asleepBytes } = fallback(plain, upstream).stats() as typeof expected
    assert.equal(asleepBytes, 0)
  })

  it('an allocation is out of memory when neither pool has room', () => {
    const { upstream, pool } = setUp()
    pool.allocate(60 * MiB)
    assert.throws(() => pool.allocate(6 * MiB), OutOfMemoryError)
    assert.equal(pool.tryAllocate(6 * MiB), null)
    assert.equal(pool.fallbacks, 1)
    pool.allocate(4 * MiB)
    assertConsistent(upstream)
  })

  it('only an out of memory goes to the fallback, not a bad argument or a driver error', () => {
    const { device, pool, upstream } = setUp()
    assert.throws(() => pool.allocate(0), RangeError)
    assert.throws(() => pool.allocate(1 * MiB, undefined, 3), RangeError)
    device.driver.failCall({ call: 'cuMemCreate', code: 999 })
    assert.throws(() => pool.allocate(1 * MiB), CudaError)
    upstream.close()
    assert.throws(() => pool.allocate(1 * MiB), PoolError)
    assert.equal(pool.fallbacks, 0)
  })

  it("a free goes to the buffer's source, also when both wrap the same pool", () => {
    const shared = new TestDevice().createPool()
    const [first, second] = [limited(shared, 1 * MiB), limited(shared, 8 * MiB)]
    const pool = fallback(first, second)
    pool.allocate(4 * MiB).free()
    assert.equal(first.tryAllocate(2 * MiB), null)
    assert.notEqual(second.tryAllocate(8 * MiB), null)
  })

  it('the fallback serves alignments that it must make room for', () => {
    const { device, upstream, plain, pool } = setUp()
    upstream.allocate(8 * MiB)
    for (const alignment of [1, 256, 4096, 2 * MiB]) {
      const buffer = pool.allocate(1 * MiB, undefined, alignment)
      assert.equal(buffer.allocation.pool, plain)
      assert.equal(buffer.ptr % alignment, 0)
      buffer.fill(7)
      assert.equal(buffer.readSync(1 * MiB - 1)[0], 7)
      buffer.free()
    }
    assert.equal(device.freeBytes(), 56 * MiB)
    assert.throws(() => pool.allocate(1, undefined, 4 * MiB), { name: 'RangeError', message: /alignment/ })
  })

  it('it nests with limits on either side', () => {
    const device = new TestDevice()
    const upstream = device.createPool({ maxPoolBytes: 64 * MiB })
    const inner = fallback(limited(upstream, 2 * MiB), limited(device.createPlainPool(), 3 * MiB))
    const pool = limited(inner, 6 * MiB)
    const [first, second] = [pool.allocate(2 * MiB), pool.allocate(2 * MiB)]
    assert.equal(inner.fallbacks, 1)
    assert.throws(() => pool.allocate(2 * MiB), /limit of 3 MiB/)
    assert.throws(() => inner.free(first), PoolError)
    first.free()
    second.free()
    pool.allocate(2 * MiB)
    assert.equal(inner.fallbacks, 1)
    assertConsistent(upstream)
  })
})
