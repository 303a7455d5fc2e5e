// Debug mode: writes out of bounds and writes to freed memory are found.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { KiB, MiB } from '../../base/bytes.js'
import { signal } from '../../order/order.fixture.js'
import { assertConsistent } from '../pool.fixture.js'
import { faultOf, here, lineOf, setUp, warningsOf } from './debug-fixture.suite.js'

describe('debug mode: writes out of bounds', () => {
  for (const [where, offset, message] of [
    ['behind the end, within the rounding', 1000, /byte 1000 was written, 1 past the end/],
    ['behind the end, in the redzone', 1250, /byte 1250 was written, 251 past the end/],
    ['before the start', -1, /byte -1 was written, 1 before the start/],
    ['at the start of the redzone', -256, /byte -256 was written, 256 before the start/],
  ] as const) {
    it(`a write ${where} is found at the free, once, and the buffer stays as it was until then`, () => {
      const { pool, a, poke } = setUp()
      const place = here()
      const buffer = pool.allocate(1000, a) // on the line after `place`
      poke({ ptr: buffer.ptr + offset }, 0, a)
      const { sites } = faultOf(() => buffer.free(), 'outOfBounds', message) // three lines after `place`
      assert.deepEqual([lineOf(sites.allocatedAt), lineOf(sites.freedAt!)], [lineOf(place) + 1, lineOf(place) + 3])
      assert.equal(buffer.freed, false)
      assert.equal(buffer.readSync(999)[0], 0xff)
      assertConsistent(pool)
      buffer.free()
      assert.equal(pool.stats().liveBuffers, 0)
      assertConsistent(pool)
    })
  }

  it('the first byte on each side is found for every size and alignment, and no write inside the buffer is reported', () => {
    const { pool, a, poke } = setUp({ redzoneBytes: 512 })
    for (const [bytes, alignment] of [
      [1, undefined],
      [256, undefined],
      [1000, 4 * KiB],
      [1 * MiB + 1, 2 * MiB],
    ] as const) {
      for (const offset of [-1, bytes, -512, bytes + 511]) {
        const buffer = pool.allocate(bytes, a, alignment)
        assert.equal(buffer.ptr % (alignment ?? 256), 0)
        buffer.fill(7)
        poke({ ptr: buffer.ptr + offset }, 0, a)
        faultOf(() => buffer.free(), 'outOfBounds')
        buffer.free()
        const whole = pool.allocate(bytes, a, alignment)
        whole.fill(7)
        whole.free()
      }
    }
  })

  it('a write by pending work is found, since the free waits for it', () => {
    const { device, pool, a, b, poke } = setUp()
    for (const user of [a, b]) {
      const buffer = pool.allocate(1000, a)
      signal(a, b)
      device.hold(user)
      poke({ ptr: buffer.ptr + 1000 }, 0, user)
      buffer.recordUse(user)
      faultOf(() => buffer.free(), 'outOfBounds')
    }
  })

  it('damage around buffers that are never freed is in the report of close, and is a warning', async () => {
    const { pool, a, poke } = setUp()
    const buffer = pool.allocate(1000, a)
    poke({ ptr: buffer.ptr + 1000 }, 0, a)
    const warnings = await warningsOf(() => {
      const { faults, heldBuffers } = pool.close()
      assert.deepEqual([faults.map(({ fault }) => fault), heldBuffers], [['outOfBounds'], 1])
    })
    assert.match(warnings[0], /^DebugError: close: byte 1000/)
    assert.equal(warnings.length, 1)
  })
})

describe('debug mode: writes after a free', () => {
  it('a write is found once when the memory leaves quarantine, with both call sites', () => {
    const { pool, a, poke } = setUp({ quarantineBytes: 1 * MiB })
    const place = here()
    const buffer = pool.allocate(1000, a)
    const { ptr } = buffer
    buffer.free()
    poke({ ptr: ptr + 500 }, 0, a)
    pool.allocate(1 * MiB - 64 * KiB, a).free()
    assert.equal(pool.stats().liveBuffers, 0)
    pool.allocate(64 * KiB, a).free()
    const { sites } = faultOf(() => pool.allocate(1000, a), 'writeAfterFree', /allocate: byte 500 was written after/)
    assert.deepEqual([lineOf(sites.allocatedAt), lineOf(sites.freedAt!)], [lineOf(place) + 1, lineOf(place) + 3])
    assertConsistent(pool)
    pool.allocate(1000, a).free()
    assert.deepEqual(pool.close().faults, [])
  })

  it('a write is found when memory runs out, by trimTo, and at close', async () => {
    for (const end of ['tryAllocate', 'trimTo', 'close'] as const) {
      const { pool, a, poke } = setUp({ quarantineBytes: Infinity }, 16 * MiB)
      const buffer = pool.allocate(2 * MiB, a)
      const { ptr } = buffer
      buffer.free()
      poke({ ptr: ptr + 2 * MiB - 1 }, 0, a)
      const message = new RegExp(`: byte ${2 * MiB - 1} was written after the free`)
      if (end === 'close') {
        const warnings = await warningsOf(() => assert.equal(pool.close().faults.length, 1))
        assert.match(warnings.join(), message)
        continue
      }
      faultOf(() => (end === 'trimTo' ? pool.trimTo(0) : pool.tryAllocate(15 * MiB, a)), 'writeAfterFree', message)
      assert.notEqual(pool.tryAllocate(15 * MiB, a), null)
    }
  })

  it('a block larger than the quarantine is inspected before its reuse, and evicts no other block', () => {
    const { pool, a, poke } = setUp({ quarantineBytes: 1 * MiB })
    const small = pool.allocate(1000, a)
    const smallPtr = small.ptr
    small.free()
    const large = pool.allocate(8 * MiB, a)
    const { ptr } = large
    large.free()
    poke({ ptr }, 5 * MiB, a)
    faultOf(() => pool.allocate(1000, a), 'writeAfterFree', /byte 5242880 was written after the free/)
    poke({ ptr: smallPtr }, 10, a)
    pool.allocate(8 * MiB, a).free()
    pool.allocate(1000, a).free()
    faultOf(() => pool.trimTo(0), 'writeAfterFree', /byte 10 was written after the free/)
    assertConsistent(pool)
  })

  it('a write to a redzone is found, on both sides', () => {
    for (const [offset, message] of [
      [-1, /byte -1 was written, 1 before the start, after the free/],
      [-256, /byte -256 was written, 256 before the start, after the free/],
      [1000, /byte 1000 was written, 1 past the end, after the free/],
      [1255, /byte 1255 was written, 256 past the end, after the free/],
    ] as const) {
      const { pool, a, poke } = setUp()
      const buffer = pool.allocate(1000, a)
      const { ptr } = buffer
      buffer.free()
      poke({ ptr: ptr + offset }, 0, a)
      faultOf(() => pool.trimTo(0), 'writeAfterFree', message)
    }
  })

  it('a request that cannot be served leaves the quarantine as it is', () => {
    const { pool, a } = setUp()
    pool.allocate(1 * MiB, a).free()
    const held = pool.allocate(40 * MiB, a)
    const { pendingBytes } = pool.stats()
    for (const bytes of [2 ** 53 - 1, 65 * MiB, 30 * MiB]) assert.equal(pool.tryAllocate(bytes, a), null)
    assert.equal(pool.stats().pendingBytes, pendingBytes)
    held.free()
  })

  it('quarantined memory counts as pending, and is reused before memory runs out', () => {
    const { pool, a, b } = setUp({ quarantineBytes: Infinity }, 16 * MiB)
    for (let count = 0; count < 3; count++) {
      pool.allocate(15 * MiB, count === 1 ? b : a).free()
      const { pendingBytes, liveBytes, reservedBytes } = pool.stats()
      assert.ok(pendingBytes > 15 * MiB && liveBytes === 0 && reservedBytes === 16 * MiB)
      assert.ok(pool.snapshot().ranges.some(({ blocks }) => blocks.some(({ state }) => state === 'pending')))
      assertConsistent(pool)
    }
    assert.equal(pool.tryAllocate(16 * MiB, a), null, 'the redzones have no room')
    assert.equal(pool.trimTo(0), 16 * MiB)
    assert.deepEqual([pool.stats().pendingBytes, pool.stats().reservedBytes], [0, 0])
    assertConsistent(pool)
  })

  it('a write is found in a block of a stream that was closed since', () => {
    const { device, pool, poke } = setUp({ quarantineBytes: Infinity })
    const short = device.createStream()
    const [first, second] = [pool.allocate(1000, short), pool.allocate(1000, short)]
    const { ptr } = first
    device.hold(short)
    first.free()
    short.close()
    second.free()
    assert.equal(pool.trimTo(0), 2 * MiB)
    assertConsistent(pool)
    const again = pool.allocate(1000)
    again.free()
    poke({ ptr }, 0, device.defaultStream)
    faultOf(() => pool.trimTo(0), 'writeAfterFree')
  })
})
