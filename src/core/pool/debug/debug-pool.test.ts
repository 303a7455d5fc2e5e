// Debug mode: contents of memory, leaks, call sites, and the pool's own calls. debug-writes.test.ts and
// debug-uses.test.ts test the mistakes that it finds.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { setImmediate as turn } from 'node:timers/promises'
import { setFlagsFromString } from 'node:v8'
import { runInNewContext } from 'node:vm'
import { KiB, MiB } from '../../base/bytes.js'
import { failingCallsSuite } from '../failing-calls.suite.js'
import { assertConsistent, TestDevice, twoDevices } from '../pool.fixture.js'
import { faultOf, here, lineOf, setUp, warningsOf } from './debug-fixture.suite.js'
import { DebugPool } from './debug-pool.js'

describe('debug mode: contents', () => {
  it('fresh memory is NaN, freed memory is filled in the order of the free', () => {
    const { device, pool, a } = setUp()
    const array = pool.allocateArray(Float32Array, 100, a)
    assert.ok(array.readSync().every(Number.isNaN))
    array.fill(0)
    const { ptr } = array
    array.free()
    const seen = new Uint8Array(400)
    a.synchronize()
    device.driver.cuMemcpyDtoH(seen, ptr)
    assert.ok(seen.every(byte => byte === 0x7f))
  })

  it('reused memory is filled as fresh again', () => {
    const { pool, a } = setUp({ quarantineBytes: 0 })
    const first = pool.allocate(4 * KiB, a)
    const { ptr } = first
    first.fill(1)
    first.free()
    const second = pool.allocate(4 * KiB, a)
    assert.equal(second.ptr, ptr)
    assert.ok(second.readSync().every(byte => byte === 0xff))
  })
})

describe('debug mode: leaks', () => {
  it('live() and close list lost buffers with call sites, and warn on request', async () => {
    for (const warnOnLeak of [false, true]) {
      const { pool, a } = setUp({ warnOnLeak })
      const place = here()
      const held = [pool.allocate(1000, a), pool.allocate(3 * MiB, a)]
      pool.allocate(5).free()
      const lines = pool.live().map(({ byteLength, allocatedAt }) => [byteLength, lineOf(allocatedAt)])
      const line = lineOf(place) + 1
      assert.deepEqual(lines, [
        [1000, line],
        [3 * MiB, line],
      ])
      assert.equal(pool.live()[0].ptr, held[0].ptr)
      assert.equal(pool.live()[0].stream, a.handle)
      const warnings = await warningsOf(() => {
        const { heldBuffers, heldBytes, lost, faults } = pool.close()
        assert.deepEqual([heldBuffers, heldBytes, lost.length, faults], [2, 3 * MiB + 1000, 2, []])
        assert.equal(lineOf(lost[1].allocatedAt), line)
      })
      if (warnOnLeak) assert.match(warnings.join(), /^PoolWarning: 2 buffers of 3 MiB were held .*debug-pool\.test/)
      else assert.deepEqual(warnings, [])
      assert.deepEqual(pool.close(), { heldBuffers: 0, heldBytes: 0, lost: [], faults: [] })
    }
  })

  it('a buffer that the garbage collector takes is a warning', async () => {
    setFlagsFromString('--expose-gc')
    const collect = runInNewContext('gc') as () => void
    const { pool, a, poke } = setUp({ warnOnLeak: true })
    const lose = () => {
      const buffer = pool.allocate(12_345, a)
      buffer.fill(1)
      poke(buffer, 0, a)
      pool.allocate(100, a).free()
    }
    const kept = pool.allocate(200, a)
    const found: string[] = []
    const warnings = await warningsOf(async () => {
      process.on('warning', warning => found.push(warning.message))
      lose()
      for (let round = 0; found.length === 0 && round < 1000; round++) {
        collect()
        await turn()
      }
    })
    assert.equal(warnings.length, 1)
    assert.match(warnings[0], /^PoolWarning: a buffer was lost without a free: 12\.06 KiB at 0x.*allocated at .*lose/)
    assert.equal(kept.freed, false)
    kept.free()
  })
})

describe('debug mode: call sites', () => {
  it('call sites are remembered for one allocation in every `sites`', () => {
    const { pool, a } = setUp({ sites: 3 })
    for (let count = 0; count < 7; count++) pool.allocate(100, a)
    const known = pool.live().map(({ allocatedAt }) => allocatedAt.includes('debug-pool.test'))
    assert.deepEqual(known, [true, false, false, true, false, false, true])
    const none = setUp({ sites: 0 }).pool
    const buffer = none.allocate(100)
    buffer.free()
    faultOf(() => buffer.free(), 'useAfterFree', /allocated at a place that was not remembered/)
  })
})

describe('debug mode: the pool itself', () => {
  it('debug mode is a class of its own, and off by default', () => {
    const device = new TestDevice()
    assert.ok(device.createPool({ debug: true }) instanceof DebugPool)
    assert.ok(device.createPool({ debug: {} }) instanceof DebugPool)
    for (const options of [{}, { debug: false }]) assert.ok(!(device.createPool(options) instanceof DebugPool))
  })

  it('bad options are refused by name', () => {
    const device = new TestDevice()
    for (const [debug, kind, message] of [
      [5, 'TypeError', /debug must be true, false or an object/],
      [null, 'TypeError', /debug must be true, false or an object/],
      [{ site: 1 }, 'TypeError', /debug: unknown option 'site'; the options are sites, frames, redzoneBytes/],
      [{ sites: -1 }, 'RangeError', /sites must be a whole number/],
      [{ redzoneBytes: 100 }, 'RangeError', /redzoneBytes must be a multiple of 256/],
      [{ redzoneBytes: 4 * MiB }, 'RangeError', /redzoneBytes/],
      [{ redzoneBytes: '256' }, 'TypeError', /redzoneBytes.*not '256'/],
      [{ quarantineBytes: -1 }, 'RangeError', /quarantineBytes/],
      [{ order: 1 }, 'TypeError', /order must be true or false/],
      [{ warnOnLeak: 'yes' }, 'TypeError', /warnOnLeak must be true or false/],
    ] as const) {
      if (debug === null) continue // null stands for an option left undefined
      assert.throws(() => device.createPool({ debug: debug as never }), { name: kind, message })
    }
  })

  it('deallocate takes the address of the buffer, and no other address of its block', () => {
    const { pool, a } = setUp()
    const buffer = pool.allocate(1000, a)
    const { ptr } = buffer
    for (const wrong of [ptr - 256, ptr + 1, ptr + 1000, 0, Number.NaN]) {
      assert.throws(() => pool.deallocate(wrong), { name: 'PoolError', message: /not the start of a live buffer/ })
    }
    pool.deallocate(ptr)
    faultOf(() => buffer.fill(0), 'useAfterFree')
    assert.throws(() => pool.deallocate(ptr), { name: 'PoolError' })
    assertConsistent(pool)
  })

  it('a close within a call of its observer is refused, and forgets nothing', () => {
    const { pool, a } = setUp()
    pool.allocate(100, a)
    const close = () => void pool.close()
    assert.throws(() => pool.observeSegments({ ready: close, leaving() {} }), { message: /^close: an observer/ })
    pool.check()
    assert.equal(pool.close().heldBuffers, 1)
  })

  it('a use that a program tells has a name', () => {
    const { pool, a } = setUp()
    const buffer = pool.allocate(100, a)
    const message = /^noteUse: call must be a text, not an object$/
    assert.throws(() => buffer.noteUse(a, Object.create(null)), { name: 'TypeError', message })
  })

  it('another device can be given access, and its work is not judged', () => {
    const [home, peer] = twoDevices()
    const pool = home.createPool({ debug: true })
    const stream = peer.createStream()
    const buffer = pool.allocate(1000)
    pool.setAccess(peer, 'readWrite')
    buffer.noteUse(stream, 'my library')
    peer.hold(stream)
    buffer.recordUse(stream)
    buffer.free()
    assertConsistent(pool)
    pool.allocate(1000).free(stream)
    pool.close()
    assert.equal(home.freeBytes(), home.totalBytes)
  })

  it('copies from and to pinned memory count as uses', () => {
    const { device, pool, a } = setUp()
    const pinned = device.createHostPool().allocate(100)
    const buffer = pool.allocate(100, a)
    pinned.copyTo(buffer)
    pinned.copyFrom(buffer)
    buffer.free()
    faultOf(() => pinned.copyTo(buffer), 'useAfterFree')
  })

  it('a free on a lost device succeeds without inspecting the memory', () => {
    const { device, pool, a } = setUp()
    const buffer = pool.allocate(1000, a)
    device.driver.failCall({ call: 'cuStreamSynchronize', nth: 1, code: 700, onwards: true })
    assert.throws(() => buffer.free(), { name: 'CudaError' })
    buffer.free()
    assert.equal(buffer.freed, true)
    pool.close()
  })
})

failingCallsSuite('caching pool in debug mode', {
  open: device =>
    device.createPool({ backing: 'virtual', debug: { quarantineBytes: 4 * MiB }, maxPoolBytes: 16 * MiB }),
  use(pool, attempts, device, b) {
    const a = device.defaultStream
    for (const stream of [a, b, a]) attempts.hold(() => pool.allocate(3 * MiB, stream))
    attempts.try(() => attempts.live[0]?.recordUse(b))
    attempts.try(() => attempts.live[0]?.free())
    attempts.try(() => attempts.live[0]?.free())
    attempts.hold(() => pool.allocate(100, b))
    for (const stream of [b, a]) attempts.hold(() => pool.allocate(4 * MiB, stream))
    attempts.try(() => attempts.live[1]?.free())
    attempts.try(() => pool.trimTo(0))
    attempts.hold(() => pool.allocate(1 * MiB, a))
  },
  takeAll(pool) {
    pool.trimTo(0)
    pool.allocate(15 * MiB).free()
  },
})
