// Arenas that threads share. One thread plays all of them; with real threads: test/shared-kinds.test.ts.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { KiB, MiB } from '../../base/bytes.js'
import { PoolError } from '../../base/errors.js'
import { TestDevice } from '../pool.fixture.js'
import { poolSuite } from '../pool.suite.js'
import { limited } from '../wrappers/limited.js'

poolSuite('arena shared by threads', () => {
  const device = new TestDevice()
  const { pool } = device.createSharedArena({ bytes: 32 * MiB })
  return { device, pool, check: () => {}, close: () => pool.close() }
})
poolSuite('limited arena shared by threads', () => {
  const device = new TestDevice()
  const { pool } = device.createSharedArena({ bytes: 32 * MiB })
  return { device, pool: limited(pool, 32 * MiB), check: () => {}, close: () => pool.close() }
})

function setUp(bytes = 4 * MiB) {
  const device = new TestDevice()
  const { pool, attach } = device.createSharedArena({ bytes })
  const [a, b, c] = [device.createStream(), device.createStream(), device.createStream()]
  return { device, pool, attach, other: attach(), a, b, c }
}

describe('an arena that threads share', () => {
  it('hands out its memory in a row to all threads, up to its size', () => {
    const { device, pool, other } = setUp()
    const first = pool.allocate(1000)
    const second = other.allocate(300)
    const third = pool.allocate(1, undefined, 64 * KiB)
    assert.equal(second.ptr, first.ptr + 1024)
    assert.equal(third.ptr % (64 * KiB), 0)
    assert.equal(other.allocate(1).ptr, third.ptr + 256)
    assert.deepEqual([pool.stats().liveBuffers, pool.stats().requestedBytes], [4, 1302])
    assert.equal(pool.tryAllocate(4 * MiB), null)
    const { availableBytes } = other
    assert.throws(() => other.allocate(availableBytes + 1), {
      name: 'OutOfMemoryError',
      message: /the arena has .* of 4 MiB left: reset it, make it larger/,
    })
    other.allocate(availableBytes)
    assert.equal(pool.availableBytes, 0)
    assert.deepEqual(other.close(), { heldBuffers: 3, heldBytes: 301 + availableBytes })
    assert.deepEqual(pool.close(), { heldBuffers: 5, heldBytes: 1302 + availableBytes })
    assert.equal(device.freeBytes(), device.totalBytes)
  })

  it('counts no more than was live, and never below 0, while other threads work', () => {
    const { pool, other } = setUp()
    const state = pool['state']
    const add = state['sum'].bind(state)
    const first = other.allocate(1000)
    let adds = 0
    state['sum'] = (...of) => {
      // Between any two sums, one buffer is allocated there, transferred and freed here: at most two are live at a
      // time.
      if (++adds < 12) pool.adopt(other.allocate(5000).transfer()).free()
      return add(...of)
    }
    for (let look = 0; look < 2; look++) {
      const { liveBuffers, liveBytes, requestedBytes, frees } = pool.stats()
      assert.ok(liveBuffers >= 0 && liveBuffers <= 2, `${liveBuffers} buffers`)
      assert.ok(liveBytes >= 0 && liveBytes <= 6144 && requestedBytes >= 0 && frees >= 0, `${liveBytes} bytes`)
    }
    state['sum'] = add
    assert.deepEqual([pool.stats().liveBuffers, pool.stats().requestedBytes], [1, 1000])
    assert.deepEqual(other.close(), { heldBuffers: 1, heldBytes: 1000 })
    assert.ok(!first.freed || other.closed)
  })

  it('a buffer adopted or freed after a reset does not change the counters', () => {
    const { pool, other } = setUp()
    const { underway } = pool['state'].parts
    const sent = other.allocate(1000).transfer()
    const compareExchange = Atomics.compareExchange
    // The reset comes between the read of the epoch and the claim.
    Atomics.compareExchange = ((words: Int32Array, ...rest: [number, number, number]) => {
      if (words.byteOffset === underway.byteOffset && words.buffer === underway.buffer) {
        Atomics.compareExchange = compareExchange
        other.reset()
      }
      return compareExchange(words, ...rest)
    }) as typeof compareExchange
    try {
      pool.adopt(sent)
    } finally {
      Atomics.compareExchange = compareExchange
    }
    assert.deepEqual([pool.stats().liveBuffers, pool.stats().liveBytes, pool.stats().requestedBytes], [0, 0, 0])
    pool.allocate(1000)
    assert.equal(other.stats().liveBuffers, 1)
  })

  it('a reset by one thread makes the buffers of all threads stale', () => {
    const { pool, other } = setUp()
    const mine = pool.allocate(1000)
    const theirs = other.allocate(1000)
    const adopted = pool.adopt(other.allocate(1).transfer())
    const sent = other.allocate(1).transfer()
    const { ptr } = mine
    other.reset()
    for (const buffer of [mine, theirs, adopted]) {
      assert.throws(() => buffer.ptr, { name: 'PoolError', message: /has reset the arena since/ })
      assert.throws(() => buffer.free(), PoolError)
      assert.equal(buffer.freed, true)
    }
    assert.throws(() => pool.adopt(sent), { name: 'PoolError', message: /not on its way/ })
    assert.deepEqual([pool.stats().liveBuffers, pool.stats().liveBytes, pool.stats().frees], [0, 0, 4])
    assert.equal(other.allocate(1).ptr, ptr)
    pool.allocate(1)
    assert.deepEqual([mine.freed, adopted.freed], [true, true], 'also when its memory is in use again')
  })

  it('a reset waits for an earlier reset whose stream got no memory', () => {
    const { device, pool, other, a, b, c } = setUp()
    pool.allocate(1, a)
    const release = device.hold(a)
    pool.reset(b)
    other.reset(c)
    assert.equal(c.query(), false)
    release()
    assert.equal(c.query(), true)
  })

  it('streams stay ordered when epochs wrap around, idle streams too', () => {
    const { device, pool, other, a, b, c } = setUp()
    const { bump } = (pool as unknown as { state: { bump: { words: Int32Array } } }).state
    /** Advances the epoch by that many resets, and performs those at multiples of 2^20. */
    const pass = (resets: number) => {
      for (let left = resets; left > 0; ) {
        const step = Math.min(left, 2 ** 20 - (bump.words[1] & (2 ** 20 - 1)))
        bump.words[1] = (bump.words[1] + step - 1) | 0
        pool.reset(c)
        left -= step
      }
    }
    other.allocate(1, b)
    pass(2 ** 31 - 2)
    for (const resets of [1, 1, 1, 1, 2 ** 31 + 5, 2 ** 31 - 9]) {
      pass(resets)
      device.clocks.synchronize()
      other.allocate(1, b)
      const release = device.hold(b)
      pool.reset(a)
      assert.equal(a.query(), false, `the reset waits for the use, after ${resets}`)
      release()
      device.hold(a)
      pool.reset(a)
      other.allocate(1, b)
      assert.equal(b.query(), false, `the use waits for the reset, after ${resets}`)
      device.clocks.synchronize()
    }
  })

  it('a transfer in the middle of a reset is refused', () => {
    const { pool, other } = setUp()
    const { underway } = pool['state'].parts
    const buffer = pool.allocate(1000)
    const load = Atomics.load
    Atomics.load = ((words: Int32Array, index: number) => {
      if (words.byteOffset === underway.byteOffset && words.buffer === underway.buffer) {
        Atomics.load = load
        other.reset()
      }
      return load(words, index)
    }) as typeof load
    try {
      assert.throws(() => buffer.transfer(), { name: 'PoolError', message: /some thread has reset the arena since/ })
    } finally {
      Atomics.load = load
    }
  })

  it('a handle from before a transfer stays stale when its buffer comes back', () => {
    const { pool, other } = setUp()
    const before = pool.allocate(100)
    const back = pool.adopt(other.adopt(before.transfer()).transfer())
    assert.throws(() => before.fill(0), { name: 'PoolError', message: /handed to another thread/ })
    assert.throws(() => before.free(), PoolError)
    before[Symbol.dispose]()
    assert.deepEqual([before.freed, back.freed], [true, false])
    back.free()
  })

  it('buffers move between threads with their stream, once', () => {
    const { pool, other, a } = setUp()
    const buffer = pool.allocate(100, a)
    const { ptr } = buffer
    const sent = buffer.transfer()
    assert.throws(() => buffer.fill(0), { name: 'PoolError', message: /handed to another thread/ })
    assert.deepEqual([pool.stats().liveBuffers, pool.stats().requestedBytes], [1, 100])
    const adopted = other.adopt(structuredClone(sent))
    assert.deepEqual([adopted.ptr, adopted.byteLength, adopted.stream, adopted.pool], [ptr, 100, a, other])
    assert.throws(() => pool.adopt(sent), { name: 'PoolError', message: /adopt: the buffer is not on its way/ })
    for (const bad of [null, 5, {}, { record: 'a', tag: 1 }]) {
      assert.throws(() => pool.adopt(bad as never), { name: 'TypeError', message: /adopt: transferred must come from/ })
    }
    for (const bad of [
      { record: -1, tag: 1 },
      { record: 2 ** 30, tag: 1 },
      { record: 1, tag: 1 },
      { record: 0, tag: 7 },
    ]) {
      assert.throws(() => pool.adopt({ ...bad, pool: pool.share().number }), PoolError)
    }
    adopted.free()
    assert.throws(() => adopted.free(), PoolError)
    assert.deepEqual([pool.stats().liveBuffers, pool.stats().requestedBytes, pool.stats().frees], [0, 0, 1])
  })

  it('is closed by its maker, and only when no other thread uses it', () => {
    const { device, pool, other } = setUp()
    assert.throws(() => pool.close(), { name: 'PoolError', message: /close: the pool is in use by 1 other thread \(/ })
    pool.allocate(1)
    other.close()
    assert.throws(() => other.allocate(1), { name: 'PoolError', message: /closed/ })
    pool.close()
    pool.close()
    assert.equal(device.freeBytes(), device.totalBytes)
    assert.throws(() => pool.share(), { name: 'PoolError', message: /share: the pool is closed/ })
  })

  it('a thread holds no buffers of an earlier thread of its number', () => {
    const { pool, attach, other, a, b } = setUp()
    other.allocate(1000, a)
    assert.deepEqual(other.close(), { heldBuffers: 1, heldBytes: 1000 })
    const next = attach()
    assert.equal(next.thread, other.thread)
    next.allocate(300, b)
    next.adopt(pool.allocate(20).transfer())
    assert.equal(pool.stats().liveBuffers, 3, 'what was left stays taken until the reset')
    assert.deepEqual(next.close(), { heldBuffers: 2, heldBytes: 320 })
    pool.reset()
    assert.equal(pool.stats().liveBuffers, 0)
  })

  it('a thread continues the wait counter of an earlier thread of its number', () => {
    const { device, pool, attach, other, a, b } = setUp()
    const wait = (front: typeof pool) => {
      device.hold(a)
      front.allocate(1, a)
      front.reset(b)
    }
    wait(other)
    const { insertedWaits } = pool.stats()
    assert.ok(insertedWaits > 0)
    other.close()
    wait(attach())
    assert.ok(pool.stats().insertedWaits > insertedWaits)
  })

  it('has a number for a new thread once another has died', () => {
    const { pool, attach, other } = setUp()
    const { registry } = (other as unknown as { state: { registry: { bury(thread: number): boolean } } }).state
    const fronts = Array.from({ length: 62 }, () => attach())
    assert.throws(() => attach(), { name: 'PoolError', message: /64 threads use this pool, which is the limit/ })
    for (const { thread } of fronts) registry.bury(thread)
    assert.equal(attach().thread, fronts[0].thread)
    assert.throws(() => pool.close(), { name: 'PoolError', message: /by 2 other threads/ })
  })

  it('refuses bad options, and leaks no memory', () => {
    const device = new TestDevice()
    for (const [options, name, message] of [
      [{ bytes: 0 }, 'RangeError', /bytes/],
      [{ bytes: 1, maxPoolBytes: 1024 }, 'TypeError', /createSharedArenaPool: unknown option 'maxPoolBytes'/],
      [{ region: device.createPlainPool() }, 'TypeError', /unknown option 'region'/],
      [{ bytes: 65 * MiB }, 'OutOfMemoryError', /createSharedArenaPool: no room for 65 MiB/],
    ] as const) {
      assert.throws(() => device.createSharedArena(options as never), { name, message })
      assert.equal(device.freeBytes(), device.totalBytes)
    }
    assert.equal(device.createSharedArena({ bytes: 1 }).pool.maxPoolBytes, 256)
  })
})
