import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { MiB } from '../../base/bytes.js'
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
    assert.equal(pool.stats().maxPoolBytes, 1000)
    assertConsistent(upstream)
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

  it('Infinity means no limit, and anything but a size is refused', () => {
    const upstream = new TestDevice().createPool()
    limited(upstream, Infinity).allocate(1 * MiB)
    for (const bytes of [0, -1, 1.5, Number.NaN, 2 ** 53]) {
      assert.throws(() => limited(upstream, bytes), { name: 'RangeError', message: /limited: maxPoolBytes/ })
    }
    assert.throws(() => limited(upstream, '1' as unknown as number), { name: 'TypeError', message: /maxPoolBytes/ })
  })
})
