// Limits, waits, callbacks and labels of a shared pool. Real threads are in test/shared-pool-threads.test.ts.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { setImmediate } from 'node:timers/promises'
import { KiB, MiB } from '../../base/bytes.js'
import { TestDevice } from '../pool.fixture.js'
import type { ReservedChange } from '../reserved-watch.js'
import { waitsThatEnd } from '../when-available.suite.js'

for (const backing of ['virtual', 'segments'] as const) {
  describe(`the limit of a shared pool: ${backing}`, () => {
    it('holds for all threads as soon as one has set it', () => {
      const { pool, attach } = new TestDevice().createSharedPool({ backing, maxPoolBytes: 8 * MiB })
      const other = attach()
      const held = pool.allocate(8 * MiB)
      assert.equal(other.tryAllocate(4 * MiB), null)
      other.maxPoolBytes = '16MiB'
      assert.deepEqual([pool.maxPoolBytes, pool.stats().limitBytes], [16 * MiB, 16 * MiB])
      const more = other.allocate(8 * MiB)
      assert.throws(() => pool.allocate(8 * MiB), { name: 'OutOfMemoryError', message: /limit 16 MiB/ })
      held.free()
      more.free()
      pool.maxPoolBytes = 8 * MiB
      assert.equal(pool.stats().reservedBytes, 8 * MiB, 'idle memory went back')
      pool.maxPoolBytes = Infinity
      assert.equal(other.maxPoolBytes, Infinity)
      pool.allocate(40 * MiB).free()
      pool.check()
    })

    it('is refused by name, and stays as it was', () => {
      const { pool } = new TestDevice().createSharedPool({ backing, maxPoolBytes: 8 * MiB })
      for (const bad of [0, -1, 1.5, Number.NaN, '0%', 'much', null, 1]) {
        assert.throws(() => (pool.maxPoolBytes = bad as number), {
          name: /^(Range|Type)Error$/,
          message: /maxPoolBytes/,
        })
      }
      assert.equal(pool.maxPoolBytes, 8 * MiB)
      pool.allocate(8 * MiB).free()
      pool.close()
      assert.throws(() => (pool.maxPoolBytes = MiB), { name: 'PoolError', message: /maxPoolBytes: the pool is closed/ })
    })
  })

  describe(`waiting for memory of a shared pool: ${backing}`, () => {
    it('ends when another thread has freed enough, and its work is complete', async () => {
      const device = new TestDevice()
      const { pool, attach } = device.createSharedPool({ backing, maxPoolBytes: 8 * MiB })
      const other = attach()
      await pool.whenAvailable(8 * MiB)
      const stream = device.createStream()
      const held = other.allocate(8 * MiB, stream)
      const release = device.hold(stream)
      let done = false
      const waiting = pool.whenAvailable(4 * MiB).then(() => {
        done = true
      })
      const turns = async () => {
        for (let turn = 0; turn < 20; turn++) await setImmediate()
      }
      await turns()
      assert.equal(done, false, 'the buffer is held')
      release()
      held.free()
      await waiting
      pool.allocate(4 * MiB).free()
    })

    it('serves the waiters of a thread in turn', async () => {
      const { pool } = new TestDevice().createSharedPool({ backing, maxPoolBytes: 8 * MiB })
      const order: number[] = []
      const held = pool.allocate(8 * MiB)
      const waiters = [1, 2].map(async number => {
        await pool.whenAvailable(8 * MiB)
        order.push(number)
        const buffer = pool.allocate(8 * MiB)
        await setImmediate()
        buffer.free()
      })
      held.free()
      await Promise.all(waiters)
      assert.deepEqual(order, [1, 2])
    })

    waitsThatEnd(() => new TestDevice().createSharedPool({ backing, maxPoolBytes: 8 * MiB }).pool)
  })

  describe(`callbacks of a shared pool: ${backing}`, () => {
    it('tell the thread that made it of every change, also for calls of another thread', async () => {
      const seen: [string, ReservedChange][] = []
      const { pool, attach } = new TestDevice().createSharedPool({
        backing,
        onGrow: change => seen.push(['grow', change]),
        onTrim: change => seen.push(['trim', change]),
      })
      const other = attach()
      other.reserve(8 * MiB)
      assert.deepEqual(seen, [], 'not within the call')
      await setImmediate()
      pool.trimTo(0)
      other.reserve(4 * MiB)
      other.maxPoolBytes = 2 * MiB
      await setImmediate()
      assert.deepEqual(seen, [
        ['grow', { bytes: 8 * MiB, reservedBytes: 8 * MiB }],
        ['trim', { bytes: 8 * MiB, reservedBytes: 0 }],
        ['grow', { bytes: 4 * MiB, reservedBytes: 4 * MiB }],
        ['trim', { bytes: 4 * MiB - pool.stats().reservedBytes, reservedBytes: pool.stats().reservedBytes }],
      ])
    })
  })
}

describe('a block pool that threads share', () => {
  it('keeps its limit, and waits for a block', async () => {
    const { pool } = new TestDevice().createSharedBlocks({ blockBytes: 4 * KiB, count: 1, maxCount: 1, shared: true })
    assert.equal(pool.maxPoolBytes, pool.stats().limitBytes)
    assert.throws(() => (pool.maxPoolBytes = MiB), { name: 'PoolError', message: /make it with a larger maxCount/ })
    await assert.rejects(pool.whenAvailable(8 * KiB), { name: 'OutOfMemoryError' })
    const held = pool.allocate(1 * KiB)
    const waiting = pool.whenAvailable(1 * KiB)
    held.free()
    await waiting
    pool.allocate(1 * KiB)
  })
})

describe('labels of a shared pool', () => {
  it('are seen by all threads, in lists and errors', () => {
    const { pool, attach } = new TestDevice().createSharedPool({ maxPoolBytes: 16 * MiB })
    const other = attach()
    pool.allocate(4 * MiB).label = 'weights'
    for (const mebibytes of [2, 6]) other.allocate(mebibytes * MiB).label = 'cache ✓'
    const groups = [
      { name: 'cache ✓', buffers: 2, bytes: 8 * MiB },
      { name: 'weights', buffers: 1, bytes: 4 * MiB },
    ]
    assert.deepEqual([pool.liveByLabel(), other.liveByLabel()], [groups, groups])
    const message = /largest free piece .*, 8 MiB labelled 'cache ✓', 4 MiB labelled 'weights'; raise maxPoolBytes/
    assert.throws(() => pool.allocate(8 * MiB), { name: 'OutOfMemoryError', message })
    pool.check()
  })

  it('stay with a buffer that other threads adopt, and go with its free', () => {
    const { pool, attach } = new TestDevice().createSharedPool()
    const other = attach()
    const buffer = pool.allocate(1 * KiB)
    buffer.label = 'weights'
    const sent = buffer.transfer()
    assert.deepEqual(
      pool.live().map(({ label, thread }) => [label, thread]),
      [['weights', 0]],
    )
    const adopted = other.adopt(sent)
    assert.equal(adopted.label, 'weights')
    const [back] = pool.adoptAll([adopted.transfer()])
    assert.deepEqual([back.label, pool.live()[0].label], ['weights', 'weights'])
    back.free()
    assert.equal(pool.allocate(1 * KiB).label, '')
    assert.deepEqual(
      other.live().map(({ label }) => label),
      [''],
    )
  })

  it('have at most 56 bytes', () => {
    const { pool } = new TestDevice().createSharedPool()
    const buffer = pool.allocate(100)
    buffer.label = 'é'.repeat(28)
    assert.equal(buffer.label, 'é'.repeat(28))
    const message = /label must have at most 56 bytes of UTF-8 in a shared pool, not 57 B; shorten it/
    assert.throws(() => (buffer.label = `é${'x'.repeat(55)}`), { name: 'RangeError', message })
    assert.equal(buffer.label, 'é'.repeat(28))
    buffer.label = 'x'
    assert.equal(pool.live()[0].label, 'x')
  })
})
