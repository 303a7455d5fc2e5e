import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { KiB, MiB } from '../../base/bytes.js'
import { OutOfMemoryError, PoolError } from '../../base/errors.js'
import { assertConsistent, TestDevice } from '../pool.fixture.js'
import { limited } from './limited.js'

describe('limited', () => {
  it('requested bytes are limited to the byte', () => {
    const upstream = new TestDevice().createPool()
    const pool = limited(upstream, 1000)
    const first = pool.allocate(600)
    assert.equal(pool.tryAllocate(401), null)
    assert.equal(pool.handedOutBytes, 600)
    const second = pool.allocate(400)
    assert.throws(() => pool.allocate(1), {
      name: 'OutOfMemoryError',
      message:
        /no room for 1 B within the limit of 1000 B, of which 1000 B are handed out; free some or raise the limit/,
    })
    first.free()
    using _third = pool.allocate(600)
    second[Symbol.dispose]()
    assert.notEqual(pool.tryAllocate(400), null)
    assert.equal(pool.stats().limitBytes, 1000)
    assertConsistent(upstream)
  })

  it('an out of memory of the upstream counts nothing', () => {
    const upstream = new TestDevice().createPool({ maxPoolBytes: 4 * MiB })
    const pool = limited(upstream, 16 * MiB)
    assert.equal(pool.tryAllocate(8 * MiB), null)
    assert.throws(() => pool.allocate(8 * MiB), OutOfMemoryError)
    pool.allocate(4 * MiB).free()
    assert.throws(() => limited(upstream, 16 * MiB).allocate(16 * MiB), OutOfMemoryError)
    const all = limited(upstream, 4 * MiB)
    all.allocate(4 * MiB)
    assertConsistent(upstream)
  })

  it('with a limit of 10 MiB, 4 and 4 MiB fit, 3 more do not, and after a free 6 do', () => {
    const pool = limited(new TestDevice().createPool(), 10 * MiB)
    assert.equal(pool.tryAllocate(10 * MiB + 1), null)
    const buffers = [pool.allocate(4 * MiB), pool.allocate(4 * MiB)]
    assert.equal(pool.tryAllocate(3 * MiB), null)
    assert.equal(pool.stats().requestedBytes, 8 * MiB)
    buffers[0].free()
    pool.allocate(6 * MiB)
  })

  it('a refused free counts nothing', () => {
    const device = new TestDevice()
    const pool = limited(device.createPool(), 1000)
    const buffer = pool.allocate(800)
    const elsewhere = new TestDevice().createStream()
    assert.throws(() => buffer.free(elsewhere), PoolError)
    assert.equal(pool.tryAllocate(201), null)
    buffer.free()
    assert.throws(() => buffer.free(), { name: 'PoolError', message: /^free: the buffer was already freed/ })
    assert.notEqual(pool.tryAllocate(1000), null)
    assert.equal(pool.tryAllocate(1), null)
  })

  it('limits nest, and each counts its own buffers', () => {
    const device = new TestDevice()
    const outer = limited(limited(device.createPool(), 800), 1000)
    assert.throws(() => outer.allocate(900), /limit of 800 B/)
    assert.throws(() => outer.allocate(1100), /limit of 1000 B/)
    const buffer = outer.allocate(700)
    assert.equal(buffer.pool, outer)
    assert.throws(() => outer.upstream.free(buffer), { name: 'PoolError', message: /another pool/ })
    buffer.free()
    assert.equal(outer.allocate(800).byteLength, 800)
  })

  it('two limits share one upstream', () => {
    const upstream = new TestDevice().createPool()
    const [one, other] = [limited(upstream, 1 * KiB), limited(upstream, 2 * KiB)]
    one.allocate(1 * KiB)
    assert.equal(one.tryAllocate(1), null)
    const buffer = other.allocate(2 * KiB)
    assert.throws(() => one.free(buffer), PoolError)
    other.free(buffer)
    assertConsistent(upstream)
  })

  it('Infinity means no limit, and anything but a size is refused', () => {
    const upstream = new TestDevice().createPool()
    limited(upstream, Infinity).allocate(1 * MiB)
    for (const bytes of [0, -1, 1.5, Number.NaN, 2 ** 53]) {
      assert.throws(() => limited(upstream, bytes), { name: 'RangeError', message: /limited: limitBytes/ })
    }
    assert.throws(() => limited(upstream, '1' as unknown as number), { name: 'TypeError', message: /limitBytes/ })
  })
})
