// Debug mode: uses after the free, and uses that no order of streams puts between allocation and free.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { Event } from '../../order/event.js'
import { signal } from '../../order/order.fixture.js'
import { Stream } from '../../order/stream.js'
import type { DeviceBuffer } from '../buffer.js'
import { assertConsistent, TestDevice, twoDevices } from '../pool.fixture.js'
import { faultOf, here, lineOf, setUp, viewOf } from './debug-fixture.suite.js'

describe('debug mode: uses after the free', () => {
  it('every kind of use names both call sites', () => {
    const { pool, a, poke } = setUp()
    const other = pool.allocate(100, a)
    const place = here()
    const buffer = pool.allocate(100, a)
    buffer.free()
    for (const use of [
      () => buffer.write(new Uint8Array(1)),
      () => buffer.readSync(),
      () => buffer.fill(1),
      () => other.copyFrom(buffer),
      () => poke(buffer, 0, a),
      () => buffer.recordUse(a),
      () => buffer.noteUse(a, 'my library'),
      () => buffer.free(),
      () => pool.free(buffer),
    ]) {
      const { sites } = faultOf(use, 'useAfterFree', /already freed/)
      assert.deepEqual([lineOf(sites.allocatedAt), lineOf(sites.freedAt!)], [lineOf(place) + 1, lineOf(place) + 2])
      assert.ok(lineOf(sites.usedAt!) > 0)
    }
    buffer[Symbol.dispose]()
  })

  it('a use after the pool is closed throws PoolError, as without debug mode', () => {
    const { pool, a } = setUp()
    const buffer = pool.allocate(100, a)
    pool.close()
    assert.throws(() => buffer.fill(0), { name: 'PoolError', message: /pool is closed/ })
  })
})

describe('debug mode: uses on another stream', () => {
  /** Uses of a buffer of `a` by work on `b`. */
  const uses: Record<string, (buffer: DeviceBuffer, b: Stream, order: ReturnType<typeof setUp>) => void> = {
    'a launch': (buffer, b, { poke }) => poke(buffer, 0, b),
    'a launch with a view': (buffer, b, { poke }) => poke({ ...viewOf(buffer) }, 0, b),
    'a use that was noted': (buffer, b) => buffer.noteUse(b, 'my library'),
    'a free': (buffer, b) => buffer.free(b),
  }
  for (const [name, use] of Object.entries(uses)) {
    it(`${name} must come after the allocation`, () => {
      const ordered: Record<string, (order: ReturnType<typeof setUp>) => void> = {
        'an event since': ({ a, b }) => signal(a, b),
        'events over a third stream': ({ a, b, c }) => {
          signal(a, c)
          signal(c, b)
        },
        'the host': ({ a }) => a.synchronize(),
      }
      for (const [way, order] of Object.entries(ordered)) {
        const opened = setUp()
        const buffer = opened.pool.allocate(100, opened.a)
        order(opened)
        use(buffer, opened.b, opened)
        assert.ok(true, way)
      }
      const opened = setUp()
      const { a, b, pool } = opened
      signal(a, b) // before the allocation, so it does not order the buffer
      const place = here()
      const buffer = pool.allocate(100, a)
      signal(b, a) // the wrong direction
      const { sites } = faultOf(() => use(buffer, b, opened), 'useBeforeAllocation', /stream\.wait\(event\)/)
      assert.equal(lineOf(sites.allocatedAt), lineOf(place) + 1)
      assert.ok(lineOf((name === 'a free' ? sites.freedAt : sites.usedAt)!) > 0)
      assert.equal(buffer.freed, false)
      signal(a, b)
      use(buffer, b, opened)
    })
  }

  it('a use must be announced, or ordered before the free', () => {
    const good: Record<string, (buffer: DeviceBuffer, order: ReturnType<typeof setUp>) => void> = {
      announced: (buffer, { b }) => {
        buffer.recordUse(b)
        buffer.free()
      },
      'an event': (buffer, { a, b }) => {
        signal(b, a)
        buffer.free()
      },
      'freed there': (buffer, { b }) => buffer.free(b),
      'freed on a third stream': (buffer, { b, c }) => {
        signal(b, c)
        buffer.free(c)
      },
      'the host': (buffer, { b }) => {
        b.synchronize()
        buffer.free()
      },
    }
    for (const [way, free] of Object.entries(good)) {
      const opened = setUp()
      const buffer = opened.pool.allocate(100, opened.a)
      signal(opened.a, opened.b)
      opened.poke(buffer, 0, opened.b)
      free(buffer, opened)
      assert.ok(buffer.freed, way)
      assertConsistent(opened.pool)
    }
    const { pool, a, b, c, poke } = setUp()
    const buffer = pool.allocate(100, a)
    signal(a, b)
    signal(b, a) // before the use
    poke(buffer, 0, b)
    faultOf(() => buffer.free(), 'freeBeforeUse', /a use \(launch\) on stream .*recordUse/)
    const place = here()
    buffer.noteUse(b, 'my library')
    const { sites } = faultOf(() => buffer.free(), 'freeBeforeUse', /my library/)
    assert.deepEqual([lineOf(sites.usedAt!), lineOf(sites.freedAt!)], [lineOf(place) + 1, lineOf(place) + 2])
    assert.equal(buffer.freed, false)
    signal(a, c)
    faultOf(() => buffer.free(c), 'freeBeforeUse')
    buffer.recordUse(b)
    buffer.free()
  })

  it('the advice for a closed stream is a wait on the host, which helps', () => {
    const advice =
      /; the stream is closed: wait on the host first \(device\.synchronize\(\)\), or order the work before/
    const { device, pool, a, b, c, poke } = setUp()
    const [early, used, freed] = [pool.allocate(100, a), pool.allocate(100, c), pool.allocate(100, c)]
    signal(c, b)
    poke(used, 0, b)
    poke(freed, 0, b)
    for (const stream of [a, b]) {
      device.hold(stream)
      stream.close()
    }
    faultOf(() => poke(early, 0, c), 'useBeforeAllocation', advice)
    faultOf(() => used.free(), 'freeBeforeUse', advice)
    device.clocks.synchronize()
    poke(early, 0, c)
    for (const buffer of [used, freed]) buffer.free()
  })

  it('a closed stream and an open one that has its handle are told apart', () => {
    const { device, pool, a, b, poke } = setUp()
    const buffer = pool.allocate(100, a)
    signal(a, b)
    poke(buffer, 0, b)
    device.hold(b)
    b.close()
    const again = device.createStream()
    assert.equal(again.handle, b.handle)
    signal(a, again)
    faultOf(() => buffer.free(again), 'freeBeforeUse', /on (stream 0x\w+) \(closed\) may come after the free on \1; /)
    device.clocks.synchronize()
    buffer.free()
  })

  it('the advice for a free on a closed stream asks for no wait of that stream', () => {
    const { pool, a, b, poke } = setUp()
    const buffer = pool.allocate(100, a)
    signal(a, b)
    poke(buffer, 0, b)
    a.close()
    faultOf(
      () => buffer.free(),
      'freeBeforeUse',
      /; announce it \(buffer\.recordUse\(stream\)\), or free on that stream/,
    )
    buffer.recordUse(b)
    buffer.free()
  })

  it('the own stream is judged like any other if the free is on another stream', () => {
    const { pool, a, b } = setUp()
    const buffer = pool.allocate(100, a)
    signal(a, b)
    buffer.fill(1)
    faultOf(() => buffer.free(b), 'freeBeforeUse', /fill/)
    signal(a, b)
    buffer.free(b)
  })

  it('a free does not disturb announced work that is pending', () => {
    const { device, pool, a, b } = setUp()
    const [buffer, target] = [pool.allocate(100, a), pool.allocate(100, b)]
    buffer.fill(5)
    signal(a, b)
    device.hold(b)
    target.copyFrom(buffer)
    buffer.recordUse(b)
    buffer.free()
    assert.ok(target.readSync().every(byte => byte === 5))
  })

  it('streams made elsewhere are not judged; with `order: false` no stream is', () => {
    const { device, pool, a, poke } = setUp()
    const adopted = new Stream(device.clocks, device.driver.cuStreamCreate(1), false)
    const buffer = pool.allocate(100, a)
    poke(buffer, 0, adopted)
    buffer.free()
    const unjudged = setUp({ order: false })
    const other = unjudged.pool.allocate(100, unjudged.a)
    unjudged.poke(other, 0, unjudged.b)
    other.free(unjudged.c)
    const { pool: pool2, device: device2, a: a2, poke: poke2 } = setUp()
    faultOf(() => poke2(pool2.allocate(100, a2), 0, device2.defaultStream), 'useBeforeAllocation', /the default stream/)
  })

  it('an order by way of another device counts, but only after the wait', () => {
    const [device, peer] = twoDevices()
    const pool = device.createPool({ debug: true })
    const [a, b] = [device.createStream(), device.createStream()]
    const there = peer.createStream()
    const buffer = pool.allocate(1000, a)
    buffer.fill(1)
    using first = new Event(device.context)
    first.record(a)
    there.wait(first)
    using second = new Event(peer.context)
    second.record(there)
    faultOf(() => buffer.noteUse(b, 'kernel'), 'useBeforeAllocation')
    b.wait(second)
    buffer.noteUse(b, 'kernel')
    buffer.free(b)
    const later = pool.allocate(1000, a)
    faultOf(() => later.noteUse(b, 'kernel'), 'useBeforeAllocation')
    later.free()
  })

  it('a stream that a capture keeps idle is judged by its order before the capture', () => {
    const { device, pool, a } = setUp()
    const blocking = new Stream(device.clocks, device.driver.cuStreamCreate(0), false)
    const buffer = pool.allocate(1000, a)
    signal(a, device.defaultStream)
    buffer.noteUse(device.defaultStream, 'kernel')
    blocking.beginCapture()
    buffer.free(device.defaultStream)
    blocking.endCapture().close()
  })

  it('a pool that is not stream-ordered demands that the host has seen every use complete', () => {
    const device = new TestDevice()
    const pool = device.createPool({ debug: true, streamOrdered: false })
    const buffer = pool.allocate(100)
    buffer.fill(0)
    faultOf(() => buffer.free(), 'freeBeforeUse', /not stream-ordered.*synchronize/)
    device.defaultStream.synchronize()
    buffer.free()
  })

  it('the waits of the checks add no order that the program did not make', () => {
    const { pool, a, b, poke } = setUp()
    const held = pool.allocate(100, a)
    pool.allocate(100, a).free() // the check waits for a, the program does not
    faultOf(() => poke(held, 0, b), 'useBeforeAllocation')
  })
})
