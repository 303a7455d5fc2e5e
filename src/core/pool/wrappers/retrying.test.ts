import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { MiB } from '../../base/bytes.js'
import { CudaError, OutOfMemoryError, PoolError } from '../../base/errors.js'
import { assertConsistent, TestDevice } from '../pool.fixture.js'
import { fallback } from './fallback.js'
import { limited } from './limited.js'
import { type OnFailure, retrying } from './retrying.js'

/** A pool of 8 MiB, and the arguments of each call of `onFailure`. */
function setUp(answer: OnFailure) {
  const device = new TestDevice()
  const upstream = device.createPool({ maxPoolBytes: 8 * MiB })
  const asked: [bytes: number, attempt: number][] = []
  const pool = retrying(upstream, (bytes, attempt) => {
    asked.push([bytes, attempt])
    return answer(bytes, attempt)
  })
  return { device, upstream, asked, pool }
}

describe('retrying', () => {
  it('each failure asks, and is tried again until the answer is false', () => {
    const { upstream, asked, pool } = setUp((_, attempt) => attempt < 3)
    assert.throws(() => pool.allocate(9 * MiB), OutOfMemoryError)
    const three = [1, 2, 3].map(attempt => [9 * MiB, attempt])
    assert.deepEqual(asked.splice(0), three)
    assert.equal(pool.tryAllocate(9 * MiB), null)
    assert.deepEqual(asked, three)
    assertConsistent(upstream)
  })

  it('an answer of true, then false, is one retry and then the error', () => {
    const { asked, pool } = setUp((_, attempt) => attempt === 1)
    assert.throws(() => pool.allocate(9 * MiB), { name: 'OutOfMemoryError', message: /no room for 9 MiB/ })
    assert.equal(asked.length, 2)
  })

  it('memory that the callback frees serves the request', () => {
    for (const verb of ['allocate', 'tryAllocate'] as const) {
      const { upstream, asked, pool } = setUp(() => {
        if (cache.length === 0) return false
        cache.pop()!.free()
        return true
      })
      const cache = [1, 2, 3, 4].map(() => pool.allocate(2 * MiB))
      const buffer = pool[verb](4 * MiB)!
      assert.deepEqual([buffer.pool === pool, buffer.byteLength, cache.length], [true, 4 * MiB, 2])
      assert.deepEqual(asked, [
        [4 * MiB, 1],
        [4 * MiB, 2],
      ])
      assertConsistent(upstream)
    }
  })

  it('the pool is consistent when it asks, and the callback may use it', () => {
    const { upstream, pool } = setUp(() => {
      assertConsistent(upstream)
      upstream.processDeferred()
      upstream.trimTo(0)
      if (held.freed) return false
      held.free()
      return true
    })
    const held = pool.allocate(6 * MiB)
    assert.equal(pool.allocate(8 * MiB).byteLength, 8 * MiB)
    assert.equal(pool.tryAllocate(1 * MiB), null)
  })

  it('only an out of memory asks, not a bad argument or a driver error', () => {
    const { device, upstream, asked, pool } = setUp(() => false)
    for (const verb of ['allocate', 'tryAllocate'] as const) {
      assert.throws(() => pool[verb](0), RangeError)
      assert.throws(() => pool[verb](1 * MiB, undefined, 3), RangeError)
      assert.throws(() => pool[verb](1 * MiB, new TestDevice().createStream()), PoolError)
      device.driver.failCall({ call: 'cuMemCreate', code: 999 })
      assert.throws(() => pool[verb](1 * MiB), CudaError)
    }
    upstream.close()
    assert.throws(() => pool.allocate(1 * MiB), PoolError)
    assert.deepEqual(asked, [])
  })

  it('it asks about a limit around the upstream, too, and before a fallback around itself', () => {
    const device = new TestDevice()
    const order: string[] = []
    const bounded = limited(device.createPool(), 1 * MiB)
    const inner = retrying(bounded, bytes => {
      order.push(`asked for ${bytes}`)
      return false
    })
    const pool = fallback(inner, device.createPlainPool())
    pool.allocate(2 * MiB)
    assert.deepEqual([order, pool.fallbacks], [[`asked for ${2 * MiB}`], 1])
  })

  it('an upload whose callback drops its first buffers copies nothing', () => {
    const device = new TestDevice()
    const arena = device.createArenaPool({ bytes: 4 * MiB })
    const pool = retrying(arena, (_, attempt) => {
      arena.reset()
      return attempt === 1
    })
    const stream = device.createStream()
    const calls = () => ['cuMemcpyBatchAsync', 'cuMemcpyHtoDAsync'].map(call => device.calls(call))
    const before = calls()
    const sources = [1, 2, 3].map(() => new Uint8Array(1.5 * MiB))
    assert.throws(() => pool.uploadMany(sources, stream), { name: 'PoolError', message: /^uploadMany: / })
    assert.deepEqual([calls(), arena.stats().liveBytes], [before, 0])
  })

  it('an error of the callback is thrown, and no memory is lost', () => {
    const thrown = new Error('cannot free more')
    const { upstream, pool } = setUp(() => {
      throw thrown
    })
    for (const verb of ['allocate', 'tryAllocate'] as const) {
      assert.throws(
        () => pool[verb](9 * MiB),
        error => error === thrown,
      )
    }
    pool.allocate(8 * MiB).free()
    assertConsistent(upstream)
  })

  it('an answer that is neither true nor false, such as a promise, is refused', () => {
    for (const answer of [Promise.resolve(true), undefined, 1] as unknown[]) {
      const { asked, pool } = setUp(() => answer as boolean)
      const expected = { name: 'TypeError', message: /onFailure must return true or false at once, not / }
      assert.throws(() => pool.allocate(9 * MiB), expected)
      assert.throws(() => pool.tryAllocate(9 * MiB), expected)
      assert.equal(asked.length, 2)
    }
  })

  it('anything but a function is refused', () => {
    const upstream = new TestDevice().createPool()
    for (const bad of [undefined, null, true, {}]) {
      const expected = { name: 'TypeError', message: /onFailure must be a function/ }
      assert.throws(() => retrying(upstream, bad as unknown as OnFailure), expected)
    }
  })
})
