import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { setImmediate as turn } from 'node:timers/promises'
import { KiB, MiB } from '../../base/bytes.js'
import { OutOfMemoryError, PoolError } from '../../base/errors.js'
import { turns } from '../../order/waits.fixture.js'
import type { DeviceBuffer } from '../buffer.js'
import { assertConsistent, TestDevice } from '../pool.fixture.js'
import { fallback } from './fallback.js'
import { limited } from './limited.js'
import { type TaggedOptions, tagged } from './tagged.js'

function setUp(limits: Record<string, number> = {}) {
  const upstream = new TestDevice().createPool()
  return { upstream, pool: tagged(upstream, { limits, open: true }) }
}

describe('tagged', () => {
  it('allocations of a scope are limited to the byte, and the error names the tag', () => {
    const { pool, upstream } = setUp({ weights: 1000 })
    pool.inScope('weights', () => {
      const first = pool.allocate(600)
      assert.equal(pool.tryAllocate(401), null)
      pool.allocate(400)
      assert.throws(
        () => pool.allocate(1),
        (error: unknown) => {
          assert.ok(error instanceof OutOfMemoryError)
          assert.equal(
            error.message,
            "no room for 1 B within the limit of 1000 B of tag 'weights', of which 1000 B are handed out; free some or raise the limit",
          )
          assert.deepEqual([error.figures.requestedBytes, error.figures.maxPoolBytes], [1, 1000])
          return true
        },
      )
      first.free()
      assert.notEqual(pool.tryAllocate(600), null)
    })
    pool.allocate(1 * MiB)
    pool.inScope('activations', () => pool.allocate(2 * MiB))
    assertConsistent(upstream)
  })

  it('inScope returns the result of the work, and throws its error', () => {
    const { pool } = setUp()
    assert.equal(
      pool.inScope('a', () => 5),
      5,
    )
    const thrown = new Error('within')
    const failing = () => {
      throw thrown
    }
    assert.throws(
      () => pool.inScope('a', failing),
      error => error === thrown,
    )
    pool.allocate(1)
    assert.equal(pool.statsByTag()['untagged'].liveBuffers, 1)
  })

  it('only the innermost scope counts', () => {
    const { pool } = setUp({ outer: 1000 })
    pool.inScope('outer', () => {
      pool.allocate(900)
      pool.inScope('inner', () => pool.allocate(5000))
      assert.equal(pool.tryAllocate(101), null)
      pool.allocate(100)
    })
    const { outer, inner } = pool.statsByTag()
    assert.deepEqual([outer.requestedBytes, inner.requestedBytes], [1000, 5000])
  })

  it('a buffer counts for its tag until it is freed, in whatever scope', () => {
    const { pool } = setUp({ weights: 1000 })
    const buffers = pool.inScope('weights', () => [pool.allocate(400), pool.allocate(600)])
    pool.inScope('other', () => {
      buffers[0].free()
      assert.throws(() => buffers[0].free(), PoolError)
    })
    pool.free(buffers[1])
    const { weights, other } = pool.statsByTag()
    assert.deepEqual(weights, {
      requestedBytes: 0,
      peakRequestedBytes: 1000,
      liveBuffers: 0,
      allocations: 2,
      maxPoolBytes: 1000,
    })
    assert.deepEqual([other.requestedBytes, other.liveBuffers, other.allocations], [0, 0, 0])
  })

  it('every live buffer keeps its tag, in a pool of each kind', () => {
    const device = new TestDevice()
    for (const upstream of [
      device.createPool(),
      device.createPool({ debug: true }),
      device.createSharedPool().pool,
      device.createBlockPool({ blockBytes: 1 * KiB, count: 40 }),
      device.createArenaPool({ bytes: 512 * KiB }),
      device.createSharedArena({ bytes: 512 * KiB }).pool,
      device.createPlainPool(),
      fallback(device.createPool({ maxPoolBytes: 2 * MiB }), device.createPlainPool()),
    ]) {
      const pool = tagged(upstream)
      const held: Record<string, DeviceBuffer[]> = { a: [], b: [], c: [] }
      for (let step = 0; step < 300; step++) {
        const tag = 'abc'[(step * 7) % 3]
        held[tag].push(pool.inScope(tag, () => pool.allocate(1 * KiB)))
        upstream.allocate(256).free() // a record that the wrapper does not count
        if (held[tag].length > 7) held[tag].splice(step % 5, 1)[0].free()
        for (const [each, { liveBuffers, requestedBytes }] of Object.entries(pool.statsByTag())) {
          const { length } = held[each]
          assert.deepEqual([liveBuffers, requestedBytes], [length, length * KiB], `${upstream}: ${each}, step ${step}`)
        }
      }
    }
  })

  it('asynchronous scopes do not mix, also not with their caller', async () => {
    const { pool } = setUp()
    const work = async (bytes: number) => {
      pool.allocate(bytes)
      await turn()
      pool.allocate(bytes)
      await pool.inScope('inner', async () => {
        await turn()
        pool.allocate(1)
      })
      pool.allocate(bytes)
    }
    const both = [pool.inScope('a', () => work(1 * KiB)), pool.inScope('b', () => work(2 * KiB))]
    pool.allocate(5)
    await turn()
    pool.allocate(5)
    await Promise.all(both)
    pool.allocate(5)
    const held = Object.entries(pool.statsByTag()).map(([tag, { requestedBytes }]) => [tag, requestedBytes])
    assert.deepEqual(Object.fromEntries(held), { a: 3 * KiB, b: 6 * KiB, inner: 2, untagged: 15 })
  })

  it('scopes belong to their pool', () => {
    const upstream = new TestDevice().createPool()
    const [one, other] = [tagged(upstream), tagged(upstream)]
    one.inScope('a', () => {
      one.allocate(1)
      other.allocate(2)
      other.inScope('b', () => one.allocate(4))
    })
    assert.equal(one.statsByTag()['a'].requestedBytes, 5)
    assert.equal(other.statsByTag()['untagged'].requestedBytes, 2)
    assert.equal(other.statsByTag()['b'].requestedBytes, 0)
  })

  it('allocations outside of all scopes are untagged, and can be limited, too', () => {
    const { pool } = setUp({ untagged: 1000 })
    pool.allocate(1000)
    assert.throws(() => pool.allocate(1), /limit of 1000 B of tag 'untagged'/)
    pool.inScope('weights', () => pool.allocate(2000))
    assert.throws(() => pool.inScope('untagged', () => pool.allocate(1)), /tag 'untagged'/)
  })

  it('a tag without a limit is refused where others have one, unless the pool is open', () => {
    const upstream = new TestDevice().createPool()
    const pool = tagged(upstream, { limits: { weights: 1000, cache: Infinity } })
    // @ts-expect-error the types refuse it, too
    assert.throws(() => pool.inScope('weight', () => pool.allocate(1)), {
      name: 'RangeError',
      message:
        /^inScope: there is no tag 'weight'; the tags are weights, cache; did you mean weights\?; name it in limits/,
    })
    pool.inScope('cache', () => pool.allocate(5000))
    pool.inScope('untagged', () => pool.allocate(1))
    assert.deepEqual(Object.keys(pool.statsByTag()), ['weights', 'cache', 'untagged'])
    const open = tagged(upstream, { limits: { weights: 1000 }, open: true })
    open.inScope('other', () => open.allocate(5000))
    const limits: Record<string, number> = { weights: 1000 }
    const read = tagged(upstream, { limits })
    assert.throws(() => read.inScope('other', () => {}), { name: 'RangeError' })
  })

  it('the limit of a tag can be set at any time', () => {
    const { pool } = setUp({ weights: 1000 })
    const held = pool.inScope('weights', () => pool.allocate(900))
    pool.setLimit('weights', '2KiB')
    pool.inScope('weights', () => pool.allocate(900)).free()
    pool.setLimit('weights', 100)
    assert.equal(
      pool.inScope('weights', () => pool.tryAllocate(1)),
      null,
    )
    held.free()
    pool.setLimit('untagged', 50)
    assert.throws(() => pool.allocate(51), { message: /limit of 50 B of tag 'untagged'/ })
    assert.throws(() => pool.setLimit('cache', 1), {
      name: 'RangeError',
      message: /^setLimit: there is no tag 'cache'/,
    })
    assert.throws(() => pool.setLimit('weights', -1), {
      name: 'RangeError',
      message: /^setLimit: the limit of 'weights'/,
    })
  })

  it('its stats are its own', () => {
    const { pool, upstream } = setUp({ weights: 1000 })
    upstream.allocate(5000)
    pool.inScope('weights', () => pool.allocate(300)).free()
    const held = pool.inScope('weights', () => pool.allocate(200))
    pool.allocate(100)
    const { liveBytes, requestedBytes, reservedBytes, liveBuffers, allocations, frees, maxPoolBytes } = pool.stats()
    assert.deepEqual([liveBytes, requestedBytes, reservedBytes], [300, 300, 300])
    assert.deepEqual([liveBuffers, allocations, frees, maxPoolBytes], [2, 3, 1, Infinity])
    assert.match(`${pool}`, /^TaggedPool \{ 300 B live in 2 buffers \} around CachingPool \{/)
    held.free()
    assert.equal(pool.stats().liveBytes, 100)
  })

  it('an out of memory further up counts nothing, and names its own limit', () => {
    const upstream = new TestDevice().createPool()
    const pool = tagged(limited(upstream, 500), { limits: { a: 1000 } })
    pool.inScope('a', () => {
      assert.throws(() => pool.allocate(600), /limit of 500 B, of which/)
      assert.equal(pool.tryAllocate(600), null)
      pool.allocate(500)
    })
    assert.deepEqual([pool.statsByTag()['a'].requestedBytes, pool.statsByTag()['a'].peakRequestedBytes], [500, 500])
  })

  it('tags with a limit are listed before their first use, whatever the name', () => {
    const pool = tagged(new TestDevice().createPool(), {
      limits: { a: 1, b: Infinity, ['__proto__']: 100 },
      open: true,
    })
    assert.deepEqual(Object.keys(pool.statsByTag()), ['a', 'b', '__proto__'])
    assert.throws(() => pool.inScope('__proto__', () => pool.allocate(101)), /limit of 100 B of tag '__proto__'/)
    pool.inScope('constructor', () => pool.allocate(1))
    assert.equal(pool.statsByTag()['constructor'].maxPoolBytes, Infinity)
  })

  it('waits for room of the tag around the call', { timeout: 10_000 }, async () => {
    const pool = tagged(new TestDevice().createPool(), { limits: { a: 1000, b: 1000 } })
    const held = pool.inScope('a', () => pool.allocate(1000))
    let done = false
    const waiting = pool.inScope('a', async () => {
      await pool.whenAvailable(1000)
      done = true
      return pool.allocate(1000)
    })
    const next = pool.inScope('b', () =>
      assert.rejects(pool.whenAvailable(1001), { message: /limit of .* of tag 'b'/ }),
    )
    await Promise.all([next, turns()])
    assert.equal(done, false)
    held.free()
    assert.equal((await waiting).byteLength, 1000)
    assert.deepEqual(Object.keys(pool.statsByTag()), ['a', 'b'])
  })

  it('bad limits, options, tags and work are refused by name', () => {
    const upstream = new TestDevice().createPool()
    for (const bytes of [0, -1, 1.5, Number.NaN]) {
      const expected = { name: 'RangeError', message: /tagged: the limit of 'a' must be/ }
      assert.throws(() => tagged(upstream, { limits: { a: bytes } }), expected)
    }
    assert.throws(() => tagged(upstream, { limits: { a: '1' as never } }), { name: 'TypeError', message: /of 'a'/ })
    const noLimits = {
      name: 'TypeError',
      message: /^tagged: limits must be an object such as .*, not an? (Map|Array)$/,
    }
    for (const limits of [new Map([['a', 100]]), [100]] as never[])
      assert.throws(() => tagged(upstream, { limits }), noLimits)
    for (const options of [null, 5, { limit: {} }, { limits: 5 }] as unknown as TaggedOptions[]) {
      assert.throws(() => tagged(upstream, options), { name: 'TypeError', message: /^tagged: / })
    }
    const pool = tagged(upstream)
    for (const tag of ['', 5, null, undefined]) {
      const expected = { name: 'TypeError', message: /inScope: tag must be a name/ }
      assert.throws(() => pool.inScope(tag as string, () => 1), expected)
    }
    assert.throws(() => pool.inScope('a', undefined as never), {
      name: 'TypeError',
      message: /work must be a function/,
    })
    assert.deepEqual(pool.statsByTag(), {})
  })
})
