// What a program can change, learn and wait for while a caching pool is in use: of one thread, or shared. Each test has
// two fronts. Those of a shared pool stand for two threads; real ones are in test/shared-pool-threads.test.ts.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { setImmediate } from 'node:timers/promises'
import { GiB, KiB, MiB } from '../base/bytes.js'
import { PoolError } from '../base/errors.js'
import { assertAbortable, turns } from '../order/waits.fixture.js'
import type { PoolOptions } from './caching/options.js'
import { TestDevice } from './pool.fixture.js'
import type { ReservedChange } from './reserved-watch.js'

const KINDS = {
  'a pool': (device: TestDevice, options: PoolOptions) => {
    const pool = device.createPool(options)
    return { device, pool, other: pool, close: () => pool.close() }
  },
  'a shared pool': (device: TestDevice, options: PoolOptions) => {
    const { pool, attach } = device.createSharedPool(options)
    const other = attach()
    const close = () => {
      if (!pool.closed) other.close()
      pool.close()
    }
    return { device, pool, other, close }
  },
}

for (const [kind, make] of Object.entries(KINDS)) {
  for (const backing of ['virtual', 'segments', 'managed', 'registrable'] as const) {
    const open = (options: PoolOptions = {}) => make(new TestDevice(), { backing, ...options })

    describe(`the limit of ${kind}: ${backing}`, () => {
      it('can be raised when memory has run out', () => {
        const { pool, other } = open({ maxPoolBytes: 8 * MiB })
        pool.allocate(8 * MiB)
        assert.equal(other.tryAllocate(4 * MiB), null)
        other.maxPoolBytes = '32MiB'
        assert.deepEqual([pool.maxPoolBytes, pool.stats().maxPoolBytes], [32 * MiB, 32 * MiB])
        other.allocate(24 * MiB)
        const full = { name: 'OutOfMemoryError', message: /limit 32 MiB.*raise maxPool/ }
        assert.throws(() => pool.allocate(4 * MiB), full)
        pool.maxPoolBytes = '100%'
        assert.equal(other.maxPoolBytes, 64 * MiB)
        pool.allocate(4 * MiB)
        pool.maxPoolBytes = Infinity
        assert.equal(other.maxPoolBytes, Infinity)
        pool.check()
      })

      it('can be lowered: idle memory goes back, and memory in use stays', () => {
        const { pool, other } = open({ maxPoolBytes: 64 * MiB })
        const [kept, idle] = [pool.allocate(8 * MiB), other.allocate(16 * MiB)]
        idle.free()
        other.maxPoolBytes = 4 * MiB
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
        const { pool, close } = open({ maxPoolBytes: 8 * MiB })
        for (const bad of [0, -1, 1.5, Number.NaN, '0%', 'much', null, 1]) {
          const message = /maxPoolBytes/
          assert.throws(() => (pool.maxPoolBytes = bad as number), { name: /^(Range|Type)Error$/, message })
        }
        assert.equal(pool.maxPoolBytes, 8 * MiB)
        pool.allocate(8 * MiB).free()
        close()
        const message = /maxPoolBytes: the pool is closed/
        assert.throws(() => (pool.maxPoolBytes = MiB), { name: 'PoolError', message })
      })
    })

    describe(`callbacks of ${kind}: ${backing}`, () => {
      it('tell of growth and trimming after the call, in the thread that made the pool', async () => {
        const seen: [string, ReservedChange][] = []
        const { pool, other } = open({
          onGrow: change => seen.push(['grow', change]),
          onTrim: change => seen.push(['trim', change]),
        })
        other.allocate(8 * MiB).free()
        assert.deepEqual(seen, [], 'not within the call')
        await setImmediate()
        other.allocate(8 * MiB).free()
        const { reservedBytes } = pool.stats()
        pool.trimTo(0)
        other.reserve(4 * MiB)
        other.maxPoolBytes = 2 * MiB
        await setImmediate()
        const left = pool.stats().reservedBytes
        assert.deepEqual(seen, [
          ['grow', { bytes: reservedBytes, reservedBytes }],
          ['trim', { bytes: reservedBytes, reservedBytes: 0 }],
          ['grow', { bytes: 4 * MiB, reservedBytes: 4 * MiB }],
          ['trim', { bytes: 4 * MiB - left, reservedBytes: left }],
        ])
      })
    })

    describe(`waiting for memory of ${kind}: ${backing}`, () => {
      it('ends at once with room, and otherwise when memory is freed and its work complete', async () => {
        const { device, pool, other } = open({ maxPoolBytes: 8 * MiB })
        const stream = device.createStream()
        await pool.whenAvailable(8 * MiB)
        const held = other.allocate(8 * MiB, stream)
        const user = device.createStream()
        held.recordUse(user)
        const release = device.hold(user)
        let done = false
        const waiting = pool.whenAvailable(4 * MiB).then(() => {
          done = true
        })
        await turns()
        assert.equal(done, false, 'the buffer is held')
        held.free()
        await turns()
        assert.equal(done, false, 'work uses it')
        release()
        await waiting
        pool.allocate(4 * MiB).free()
      })

      it('serves the waiters of a thread in turn', async () => {
        const { pool, other } = open({ maxPoolBytes: 8 * MiB })
        const order: number[] = []
        const held = other.allocate(8 * MiB)
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

      it('is refused if it could never end, ends with the pool, and can be given up', async () => {
        const { pool, close } = open({ maxPoolBytes: 8 * MiB })
        await assert.rejects(pool.whenAvailable(9 * MiB), { name: 'OutOfMemoryError', message: /raise maxPoolBytes/ })
        await assert.rejects(pool.whenAvailable(0), { name: 'RangeError', message: /whenAvailable: bytes/ })
        const held = pool.allocate(8 * MiB)
        const before = pool.stats()
        await assertAbortable(
          'whenAvailable',
          options => pool.whenAvailable(1 * MiB, options),
          () => {
            assert.deepEqual(pool.stats(), before)
            held.free()
          },
        )
        pool.allocate(8 * MiB)
        pool.check()
        const next = pool.whenAvailable(1 * MiB)
        const closed = assert.rejects(next, { name: 'PoolError', message: /^whenAvailable: the pool is closed/ })
        close()
        await closed
      })

      it('can be given up before its turn', { timeout: 5_000 }, async t => {
        const { pool, close } = open({ maxPoolBytes: 8 * MiB })
        t.after(close) // ends waits that would not
        const held = pool.allocate(8 * MiB)
        const first = pool.whenAvailable(1 * MiB)
        const controller = new AbortController()
        const { signal } = controller
        const given = Array.from({ length: 20 }, () => assert.rejects(pool.whenAvailable(1, { signal }), /mine/))
        const last = pool.whenAvailable(8 * MiB)
        controller.abort(new Error('mine'))
        await Promise.all(given)
        await assert.rejects(pool.whenAvailable(1, { signal }), /mine/)
        held.free()
        await Promise.all([first, last])
      })

      it('ends if the limit sinks below the request, and so lets the next one wait', { timeout: 5_000 }, async t => {
        const { pool, other, close } = open({ maxPoolBytes: 8 * MiB })
        t.after(close) // ends waits that would not
        const held = pool.allocate(4 * MiB)
        const refused = assert.rejects(pool.whenAvailable(6 * MiB), {
          name: 'OutOfMemoryError',
          message: /limit 4 MiB/,
        })
        const next = pool.whenAvailable(3 * MiB)
        other.maxPoolBytes = 4 * MiB
        await refused
        held.free()
        await next
      })
    })

    describe(`deallocate of ${kind}: ${backing}`, () => {
      it('frees a live buffer exactly once', () => {
        const { pool } = open()
        for (const bytes of [1, 4 * KiB, 1 * MiB - 1, 1 * MiB, 3 * MiB + 5]) {
          const neighbours = [pool.allocate(bytes), pool.allocate(bytes)]
          const buffer = pool.allocate(bytes)
          const { ptr } = buffer
          pool.deallocate(ptr)
          assert.equal(buffer.freed, true)
          assert.throws(() => pool.deallocate(ptr), { name: 'PoolError', message: /not the start of a live buffer/ })
          assert.throws(() => buffer.free(), PoolError)
          assert.deepEqual([neighbours[0].freed, neighbours[1].freed], [false, false])
          for (const neighbour of neighbours) pool.deallocate(neighbour.ptr)
          pool.check()
        }
        assert.equal(pool.stats().liveBuffers, 0)
      })

      it('knows blocks that were live or cached when it was first called', () => {
        const { pool } = open()
        const [live, last, cached] = [4 * KiB, 8 * KiB, 16 * KiB].map(bytes => pool.allocate(bytes))
        cached.free()
        pool.deallocate(last.ptr)
        const again = pool.allocate(16 * KiB)
        for (const buffer of [live, again]) {
          pool.deallocate(buffer.ptr)
          assert.equal(buffer.freed, true)
        }
        assert.equal(pool.stats().cacheMisses, 3, 'the cached block was live again')
        pool.check()
      })

      it('refuses interior and foreign addresses, and changes nothing', () => {
        const { device, pool, other } = open()
        const foreign = device.createPool({ backing }).allocate(4 * KiB)
        const ofOtherThread = other === pool ? foreign : other.allocate(4 * KiB)
        const plain = device.createPlainPool().allocate(4 * KiB)
        const [small, large] = [pool.allocate(8 * KiB), pool.allocate(3 * MiB)]
        const before = pool.stats()
        const addresses: readonly unknown[] = [
          small.ptr + 256,
          small.ptr + 1,
          small.ptr - 256,
          small.ptr + 8 * KiB,
          large.ptr + 1 * MiB,
          large.ptr + 256,
          large.ptr + 3 * MiB,
          foreign.ptr,
          ofOtherThread.ptr,
          plain.ptr,
          0,
          -1,
          1.5,
          Number.NaN,
          2 ** 60,
          `${small.ptr}`,
          undefined,
          null,
        ]
        for (const ptr of addresses) {
          assert.throws(() => pool.deallocate(ptr as number), { name: 'PoolError', message: /deallocate/ }, `${ptr}`)
        }
        assert.deepEqual(pool.stats(), before)
        pool.check()
      })

      it('finds a block that came back from the cache or from another stream', () => {
        const { device, pool } = open({ maxPoolBytes: 16 * MiB })
        const stream = device.createStream()
        for (let round = 0; round < 20; round++) {
          const bytes = [4 * KiB, 16 * MiB, 700 * KiB, 2 * MiB][round % 4]
          const buffer = pool.allocate(bytes, round % 3 === 0 ? stream : device.defaultStream)
          const { ptr } = buffer
          pool.deallocate(ptr, round % 5 === 0 ? stream : undefined)
          assert.throws(() => pool.deallocate(ptr), PoolError)
        }
        assert.equal(pool.stats().liveBuffers, 0)
        pool.check()
      })
    })

    describe(`memory that ${kind} takes before it is needed: ${backing}`, () => {
      it('is as much as is missing, in whole steps, and goes back by trimTo', () => {
        const { device, pool, other } = open()
        assert.equal(pool.reserve(0), 0)
        assert.equal(pool.reserve(7 * MiB), 8 * MiB)
        assert.equal(other.reserve(8 * MiB), 0)
        assert.equal(other.reserve(20 * MiB), 12 * MiB)
        const { reservedBytes, peakReservedBytes, liveBytes, growths } = pool.stats()
        assert.deepEqual([reservedBytes, peakReservedBytes, liveBytes, growths], [20 * MiB, 20 * MiB, 0, 0])
        pool.check()
        assert.equal(other.trimTo(0), 20 * MiB)
        assert.equal(device.freeBytes(), device.totalBytes)
        pool.check()
      })

      it('serves later requests without the driver', () => {
        const { device, pool, other } = open()
        pool.reserve(32 * MiB)
        const before = created(device)
        const held = [9, 1, 3, 5, 2, 12].map((size, index) => (index % 2 ? pool : other).allocate(size * MiB))
        assert.equal(created(device), before)
        for (const [index, buffer] of held.entries()) buffer.fill(index)
        for (const [index, buffer] of held.entries()) assert.equal(buffer.readSync()[0], index)
        pool.check()
      })

      it('goes back above the release threshold when the pool settles', () => {
        const { pool } = open({ releaseThresholdBytes: 4 * MiB })
        pool.reserve(32 * MiB)
        pool.processDeferred()
        assert.ok(pool.stats().reservedBytes <= 4 * MiB)
        pool.check()
      })

      it('is not taken beyond the limit, and the error says by how much to raise it', () => {
        const { device, pool, other } = open({ maxPoolBytes: 16 * MiB })
        pool.reserve(10 * MiB)
        pool.allocate(3 * MiB)
        const before = created(device)
        assert.throws(() => other.reserve(20 * MiB), {
          name: 'OutOfMemoryError',
          message:
            /^reserve: no room for 10 MiB more: 3 MiB live in 10 MiB reserved,.*raise maxPoolBytes by at least 4 MiB/,
          remedy: 'raiseLimit',
        })
        assert.equal(created(device), before)
        assert.equal(pool.stats().reservedBytes, 10 * MiB)
        pool.check()
        assert.equal(pool.reserve(16 * MiB), 6 * MiB)
      })

      it('is refused for a size that is not a byte count, and by a closed pool', () => {
        const { pool, close } = open()
        for (const bytes of [-1, 1.5, Number.NaN, Infinity, 2 ** 60]) {
          assert.throws(() => pool.reserve(bytes), { name: 'RangeError', message: /reserve: bytes/ })
        }
        for (const bytes of ['1', null, undefined, 1n]) {
          assert.throws(() => pool.reserve(bytes as unknown as number), {
            name: 'TypeError',
            message: /reserve: bytes/,
          })
        }
        close()
        assert.throws(() => pool.reserve(1), { name: 'PoolError', message: /reserve: the pool is closed/ })
      })
    })
  }
}

/** Calls so far that create memory. */
function created(device: TestDevice): number {
  const calls = ['cuMemCreate', 'cuMemAlloc', 'cuMemAllocManaged']
  return calls.reduce((sum, call) => sum + device.calls(call), 0)
}

for (const backing of ['virtual', 'segments'] as const) {
  describe(`a pool of one thread: ${backing}`, () => {
    it('lets its limit decide how much a stream caches, also after it was changed', () => {
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

    it('caches large blocks again after a trim', () => {
      const pool = new TestDevice({ capacityBytes: 1 * GiB }).createPool({ backing }) // a step has several of them
      pool.allocate(2 * MiB).free()
      pool.trimTo(0)
      for (let round = 0; round < 10; round++) pool.allocate(2 * MiB).free()
      assert.equal(pool.stats().cacheMisses, 3)
      pool.check()
    })

    it('takes its first memory when it is made, and no more for requests of that size', () => {
      const device = new TestDevice()
      const pool = device.createPool({ backing, initialBytes: '16MiB' })
      assert.equal(pool.stats().reservedBytes, 16 * MiB)
      const before = created(device)
      pool.allocate(8 * MiB)
      assert.equal(created(device), before)
      assert.equal(pool.stats().reservedBytes, 16 * MiB)
    })

    it('is not made if the device has no room for its first memory', () => {
      const device = new TestDevice()
      device.createPool({ backing, initialBytes: 60 * MiB })
      assert.throws(() => device.createPool({ backing, initialBytes: 8 * MiB }), { name: 'OutOfMemoryError' })
      const above = () => device.createPool({ backing, maxPoolBytes: 4 * MiB, initialBytes: 8 * MiB })
      assert.throws(above, { name: 'RangeError', message: /initialBytes \(8 MiB\) exceeds maxPoolBytes \(4 MiB\)/ })
      assert.equal(device.driver.usedBytes(), 60 * MiB)
    })

    it('can be used by its callbacks', async () => {
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
}

describe('options of the callbacks', () => {
  it('are refused by name', () => {
    const device = new TestDevice()
    for (const [options, message] of [
      [{ onGrow: 5 }, /onGrow must be a func/],
      [{ onTrim: {} }, /onTrim must be a f/],
      [{ warnOnHeld: 1 }, /warnOnHeld must be true or false/],
    ] as const) {
      assert.throws(() => device.createPool(options as never), { name: 'TypeError', message })
    }
  })
})
