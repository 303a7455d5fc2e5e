// What a program can change, learn and wait for while a caching pool is in use.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { setImmediate } from 'node:timers/promises'
import { GiB, KiB, MiB } from '../../base/bytes.js'
import { TestDevice } from '../pool.fixture.js'
import type { ReservedChange } from '../reserved-watch.js'
import { waitsThatEnd } from '../when-available.suite.js'

for (const backing of ['virtual', 'segments'] as const) {
  describe(`the limit of a pool: ${backing}`, () => {
    it('can be raised when memory has run out', () => {
      const pool = new TestDevice().createPool({ backing, maxPoolBytes: 8 * MiB })
      pool.allocate(8 * MiB)
      assert.equal(pool.tryAllocate(4 * MiB), null)
      pool.maxPoolBytes = '32MiB'
      assert.deepEqual([pool.maxPoolBytes, pool.stats().limitBytes], [32 * MiB, 32 * MiB])
      pool.allocate(24 * MiB)
      assert.throws(() => pool.allocate(4 * MiB), { name: 'OutOfMemoryError', message: /limit 32 MiB.*raise maxPool/ })
      pool.maxPoolBytes = '100%'
      assert.equal(pool.maxPoolBytes, 64 * MiB)
      pool.allocate(4 * MiB)
      pool.check()
    })

    it('decides how much a stream caches, also after it was changed', () => {
      const [raised, lowered] = [2, 64].map(limit =>
        new TestDevice().createPool({ backing, maxPoolBytes: limit * MiB }),
      )
      for (const pool of [raised, lowered]) pool.allocate(64 * KiB).free() // the stream has a cache
      raised.maxPoolBytes = 64 * MiB
      lowered.maxPoolBytes = 2 * MiB
      const misses = [raised, lowered].map(pool => {
        pool.allocate(64 * KiB).free()
        const before = pool.stats().cacheMisses
        for (let round = 0; round < 10; round++) pool.allocate(64 * KiB).free()
        pool.check()
        return pool.stats().cacheMisses - before
      })
      assert.deepEqual(misses, [0, 10])
    })

    it('does not keep large blocks out of the cache after a trim', () => {
      const pool = new TestDevice({ capacityBytes: 1 * GiB }).createPool({ backing }) // a step has several of them
      pool.allocate(2 * MiB).free()
      pool.trimTo(0)
      for (let round = 0; round < 10; round++) pool.allocate(2 * MiB).free()
      assert.equal(pool.stats().cacheMisses, 3)
      pool.check()
    })

    it('can be lowered: idle memory goes back, and memory in use stays', () => {
      const pool = new TestDevice().createPool({ backing, maxPoolBytes: 64 * MiB })
      const [kept, idle] = [pool.allocate(8 * MiB), pool.allocate(16 * MiB)]
      idle.free()
      pool.maxPoolBytes = 4 * MiB
      assert.equal(pool.stats().reservedBytes, 8 * MiB)
      assert.equal(pool.tryAllocate(1 * MiB), null)
      assert.equal(kept.freed, false)
      kept.free()
      pool.trimTo(0)
      pool.allocate(4 * MiB).free()
      assert.equal(pool.tryAllocate(5 * MiB), null)
      pool.check()
    })

    it('keeps its value if a bad one is refused', () => {
      const pool = new TestDevice().createPool({ backing, maxPoolBytes: 8 * MiB })
      for (const bad of [0, -1, 1.5, Number.NaN, '0%', 'much', null, 1]) {
        assert.throws(() => (pool.maxPoolBytes = bad as number), {
          name: /^(Range|Type)Error$/,
          message: /maxPoolBytes/,
        })
      }
      assert.equal(pool.maxPoolBytes, 8 * MiB)
      pool.close()
      assert.throws(() => (pool.maxPoolBytes = MiB), { name: 'PoolError', message: /maxPoolBytes: the pool is closed/ })
    })
  })

  describe(`the first memory of a pool: ${backing}`, () => {
    it('is taken when the pool is made', () => {
      const device = new TestDevice()
      const pool = device.createPool({ backing, initialBytes: '16MiB' })
      assert.equal(pool.stats().reservedBytes, 16 * MiB)
      const calls = new Map(device.driver.calls)
      pool.allocate(8 * MiB)
      assert.equal(device.driver.calls.get('cuMemCreate'), calls.get('cuMemCreate'))
      assert.equal(pool.stats().reservedBytes, 16 * MiB)
    })

    it('is refused with the pool if the device has no room', () => {
      const device = new TestDevice()
      device.createPool({ backing, initialBytes: 60 * MiB })
      assert.throws(() => device.createPool({ backing, initialBytes: 8 * MiB }), { name: 'OutOfMemoryError' })
      const above = () => device.createPool({ backing, maxPoolBytes: 4 * MiB, initialBytes: 8 * MiB })
      assert.throws(above, { name: 'RangeError', message: /initialBytes \(8 MiB\) exceeds maxPoolBytes \(4 MiB\)/ })
      assert.equal(device.driver.usedBytes(), 60 * MiB)
    })
  })

  describe(`callbacks of a pool: ${backing}`, () => {
    it('tell of growth and trimming, after the call', async () => {
      const seen: [string, ReservedChange][] = []
      const pool = new TestDevice().createPool({
        backing,
        onGrow: change => seen.push(['grow', change]),
        onTrim: change => seen.push(['trim', change]),
      })
      pool.allocate(8 * MiB).free()
      assert.deepEqual(seen, [], 'not within the call')
      await setImmediate()
      pool.allocate(8 * MiB).free()
      pool.allocate(1 * MiB, undefined, 4096).free()
      pool.trimTo(0)
      pool.reserve(4 * MiB)
      await setImmediate()
      assert.deepEqual(seen, [
        ['grow', { bytes: 8 * MiB, reservedBytes: 8 * MiB }],
        ['trim', { bytes: 8 * MiB, reservedBytes: 0 }],
        ['grow', { bytes: 4 * MiB, reservedBytes: 4 * MiB }],
      ])
    })

    it('may use the pool', async () => {
      let grown = 0
      const pool = new TestDevice().createPool({
        backing,
        onGrow: () => {
          if (++grown === 1) pool.allocate(20 * MiB).free()
        },
      })
      pool.allocate(8 * MiB)
      await setImmediate()
      assert.equal(grown, 2)
    })
  })

  describe(`waiting for memory: ${backing}`, () => {
    it('ends at once with room, and otherwise when memory is freed and its work complete', async () => {
      const device = new TestDevice()
      const pool = device.createPool({ backing, maxPoolBytes: 8 * MiB })
      const stream = device.createStream()
      await pool.whenAvailable(8 * MiB)
      const held = pool.allocate(8 * MiB, stream)
      const other = device.createStream()
      held.recordUse(other)
      const release = device.hold(other)
      let done = false
      const waiting = pool.whenAvailable(4 * MiB).then(() => {
        done = true
      })
      const turns = async () => {
        for (let turn = 0; turn < 60; turn++) await setImmediate()
      }
      await turns()
      assert.equal(done, false, 'the buffer is held')
      held.free()
      await turns()
      assert.equal(done, false, 'work uses it')
      release()
      await waiting
      pool.allocate(4 * MiB).free()
    })

    it('serves several waiters in turn', async () => {
      const pool = new TestDevice().createPool({ backing, maxPoolBytes: 8 * MiB })
      const order: number[] = []
      const held = pool.allocate(8 * MiB)
      const waiters = [1, 2, 3].map(async number => {
        await pool.whenAvailable(8 * MiB)
        order.push(number)
        const buffer = pool.allocate(8 * MiB)
        await setImmediate()
        buffer.free()
      })
      held.free()
      await Promise.all(waiters)
      assert.deepEqual(order, [1, 2, 3])
    })

    waitsThatEnd(() => new TestDevice().createPool({ backing, maxPoolBytes: 8 * MiB }))
  })
}

describe('options of the callbacks', () => {
  it('are refused by name', () => {
    const device = new TestDevice()
    assert.throws(() => device.createPool({ onGrow: 5 as never }), {
      name: 'TypeError',
      message: /onGrow must be a func/,
    })
    assert.throws(() => device.createPool({ onTrim: {} as never }), {
      name: 'TypeError',
      message: /onTrim must be a f/,
    })
    const held = { warnOnHeld: 1 as never }
    assert.throws(() => device.createPool(held), { name: 'TypeError', message: /warnOnHeld must be true or false/ })
  })
})
