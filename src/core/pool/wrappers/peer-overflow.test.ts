// A fallback on another device: the contract of a pool for streams of the borrowing device, and no leak by the
// adapter. The file is long because all cases need the same two devices.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { KiB, MiB } from '../../base/bytes.js'
import { OutOfMemoryError, PoolError } from '../../base/errors.js'
import { Random } from '../../base/random.js'
import type { SimulatedOptions } from '../../driver/simulated/options.js'
import { signal } from '../../order/order.fixture.js'
import type { Stream } from '../../order/stream.js'
import type { DeviceBuffer } from '../buffer.js'
import { assertConsistent, isRefused, sourceOf, TestDevice, twoDevices } from '../pool.fixture.js'
import type { Pool } from '../pool.js'
import { poolSuite } from '../pool.suite.js'
import { fallback } from './fallback.js'
import { limited } from './limited.js'
import { statistics } from './statistics.js'
import { tagged } from './tagged.js'
import { wrapperSuite } from './wrapper.suite.js'

/** Small enough to fill quickly. */
const UPSTREAM_BYTES = 4 * MiB

const LENDERS: Readonly<Record<string, (device: TestDevice) => Pool>> = {
  'virtual memory': device => device.createPool({ maxPoolBytes: '100%', backing: 'virtual' }),
  segments: device => device.createPool({ maxPoolBytes: '100%', backing: 'segments' }),
  plain: device => device.createPlainPool(),
  'driver pool': device => device.createDriverPool({}),
}

/** A pool that makes no stream wait for another. */
const ORDERED = (device: TestDevice) => device.createPool({ maxPoolBytes: '100%', crossStreamReuse: 'ordered' })

function setUp(lender = LENDERS['virtual memory'], options: SimulatedOptions = {}) {
  const [home, peer] = twoDevices(options)
  const upstream = home.createPool({ maxPoolBytes: UPSTREAM_BYTES })
  const second = lender(peer)
  const pool = fallback(upstream, second)
  /** A buffer that only the other device has room for. */
  const borrow = (stream?: Stream, bytes = 8 * MiB) => {
    const buffer = pool.allocate(bytes, stream)
    assert.equal(buffer.context, peer.context)
    return buffer
  }
  return { home, peer, upstream, second, pool, borrow, driver: home.driver }
}

for (const [kind, lender] of Object.entries(LENDERS)) {
  poolSuite(`with fallback on another device, ${kind}`, () => {
    const { home, upstream, second, pool } = setUp(lender)
    const close = () => {
      upstream.close()
      ;(second as ReturnType<TestDevice['createPlainPool']>).close()
    }
    return { device: home, pool, check: () => assertConsistent(upstream), close }
  })
  poolSuite(`all from another device, ${kind}`, () => {
    const { home, upstream, second } = setUp(lender)
    const pool = fallback(limited(upstream, 1), tagged(statistics(second)))
    const close = () => {
      upstream.close()
      ;(second as ReturnType<TestDevice['createPlainPool']>).close()
    }
    return { device: home, pool, check: () => assertConsistent(upstream), close }
  })
}

wrapperSuite('with fallback on another device', [
  (upstream, device) => {
    const besides = new TestDevice(device.driver, 1).createPlainPool()
    return { pool: fallback(upstream, besides), besides }
  },
])

describe('a fallback on another device', () => {
  for (const [kind, lender] of Object.entries(LENDERS)) {
    it(`memory of a ${kind} there works like memory of this device`, async () => {
      const { home, peer, pool, borrow, second } = setUp(lender)
      const stream = home.createStream()
      const [mine, theirs] = [pool.allocate(1 * MiB, stream), borrow(stream)]
      assert.deepEqual([mine.device, theirs.device, pool.fallbacks], [0, 1, 1])
      assert.ok(theirs.stream === stream && theirs.pool === pool && sourceOf(theirs) === second)
      for (const buffer of [mine, theirs]) {
        buffer.fill(3)
        buffer.write(Uint8Array.of(1, 2), 8)
        assert.deepEqual([...(await buffer.read(7, 4))], [3, 1, 2, 3])
        buffer.writeSync(Uint8Array.of(9), 7)
        assert.deepEqual([...buffer.readSync(6, 3)], [3, 9, 1])
      }
      mine.fill(0)
      mine.copyFrom(theirs, 0, 7, 2)
      theirs.copyFromSync(mine, 0, 0, 3)
      assert.deepEqual([...theirs.readSync(0, 4)], [9, 1, 0, 3])
      borrow(stream).copyFrom(theirs)
      home.createHostPool().allocate(4).copyTo(theirs)
      const typed = pool.allocateArray(Float64Array, 1 * MiB, stream)
      typed.write(Float64Array.of(0.5), 100)
      stream.synchronize()
      assert.equal((await typed.read())[100], 0.5)
      theirs.free()
      pool.free(mine)
      assert.equal(peer.clocks.context.released, false)
    })
  }

  it('no call waits on the host, and events order both ways', () => {
    const { home, borrow, driver } = setUp()
    const stream = home.createStream()
    borrow(stream).free()
    const release = home.hold(stream)
    const calls = new Map(driver.calls)
    for (let round = 0; round < 3; round++) borrow(stream).free()
    const made = [...driver.calls].filter(([name, count]) => count !== calls.get(name)).map(([name]) => name)
    assert.deepEqual(made.sort(), ['cuCtxSetCurrent', 'cuEventCreate', 'cuEventRecord', 'cuStreamWaitEvent'])
    assert.equal(stream.query(), false)
    release()
    stream.synchronize()
  })

  it('the stream waits for its companion, so a buffer is usable when the pool has it ready', () => {
    const { home, peer, borrow, driver, second } = setUp()
    const stream = home.createStream()
    const first = borrow(stream)
    const companion = (second as ReturnType<TestDevice['createPool']>).live()[0].stream!
    peer.context.activate()
    const ticket = driver.holdOperation(companion)
    first.fill(1)
    assert.equal(stream.query(), true)
    borrow(stream).fill(2)
    assert.equal(stream.query(), false)
    peer.context.activate()
    driver.releaseThrough(companion, ticket)
    assert.equal(stream.query(), true)
  })

  it('the same stream reuses a block at once, other streams when its work is done', () => {
    const { home, borrow } = setUp(ORDERED)
    const [stream, other] = [home.createStream(), home.createStream()]
    const buffer = borrow(stream)
    const { ptr } = buffer
    const release = home.hold(stream)
    buffer.fill(1)
    buffer.free()
    const again = borrow(stream)
    assert.equal(again.ptr, ptr)
    again.free()
    const elsewhere = borrow(other)
    assert.notEqual(elsewhere.ptr, ptr)
    release()
    assert.equal(borrow(other).ptr, ptr)
  })

  it('a buffer freed after its stream or the wrapper closed is reused only when the stream is done', () => {
    for (const closed of ['stream', 'wrapper'] as const) {
      const { home, peer, pool, borrow, second } = setUp(ORDERED)
      const stream = home.createStream()
      const theirs = peer.createStream()
      const buffer = borrow(stream)
      const { ptr } = buffer
      home.hold(stream)
      buffer.fill(1)
      if (closed === 'stream') stream.close()
      else pool.close()
      buffer.free()
      const other = second.allocate(8 * MiB, theirs)
      assert.notEqual(other.ptr, ptr)
      other.free()
      home.context.finishWork()
      ;(second as ReturnType<TestDevice['createPool']>).processDeferred()
      assert.equal(second.stats().pendingBytes, 0)
    }
  })

  it('a free works on another stream, of either device, and after its stream closed', () => {
    for (const [kind, lender] of Object.entries(LENDERS)) {
      const { home, peer, pool, borrow, second } = setUp(lender)
      const [stream, other, theirs] = [home.createStream(), home.createStream(), peer.createStream()]
      const frees: readonly ((buffer: DeviceBuffer) => void)[] = [
        buffer => {
          signal(stream, other)
          buffer.free(other)
        },
        buffer => {
          signal(stream, theirs)
          buffer.free(theirs)
        },
        buffer => {
          buffer.recordUse(other)
          buffer.recordUse(theirs)
          buffer.free()
        },
        buffer => {
          stream.close()
          buffer.free()
        },
      ]
      for (const [index, free] of frees.entries()) {
        const buffer = borrow(stream)
        for (const [device, each] of [
          [home, stream],
          [home, other],
          [peer, theirs],
        ] as const)
          device.hold(each)
        buffer.fill(1)
        free(buffer)
        assert.ok(buffer.freed, `${kind}, ${index}`)
        assert.throws(() => buffer.free(), PoolError)
        buffer[Symbol.dispose]()
        assert.equal(second.stats().liveBuffers, 0)
        if (kind !== 'driver pool') pool.allocate(64 * MiB).free() // the driver keeps its memory in pieces
      }
    }
  })

  it('the fallback can have a fallback, on a third device or back on the first', () => {
    const { home, peer, upstream, second, driver } = setUp(undefined, { devices: 3 })
    const third = new TestDevice(driver, 2).createPool({ maxPoolBytes: '100%' })
    const inner = fallback(limited(second, 1), limited(home.createPlainPool(), 16 * MiB))
    const pool = fallback(fallback(upstream, inner), third)
    const stream = home.createStream()
    const buffers = [2 * MiB, 8 * MiB, 32 * MiB].map(bytes => pool.allocate(bytes, stream))
    assert.deepEqual(
      buffers.map(({ device }) => device),
      [0, 0, 2],
    )
    for (const buffer of buffers) {
      buffer.fill(4)
      assert.equal(buffer.readSync(buffer.byteLength - 1)[0], 4)
      buffer.free()
    }
    assert.equal(peer.freeBytes(), 64 * MiB)
    assert.deepEqual([pool.stats().liveBuffers, inner.stats().liveBuffers], [0, 0])
  })

  it('a fallback without access between the devices, or on another driver, is refused', () => {
    const [home, peer] = twoDevices({ peerAccess: false })
    const upstream = home.createPool()
    const expected = { name: 'PoolError', message: /device 0 .* memory of device 1.*copy/ }
    for (const lender of Object.values(LENDERS)) assert.throws(() => fallback(upstream, lender(peer)), expected)
    const elsewhere = new TestDevice().createPool()
    assert.throws(() => fallback(upstream, elsewhere), { name: 'PoolError', message: /two drivers/ })
  })

  it('once access is taken away, every use but the free is refused', async () => {
    const { home, second, borrow } = setUp()
    const buffer = borrow()
    second.setAccess(home, 'none')
    const bytes = new Uint8Array(4)
    const uses = {
      fill: () => buffer.fill(1),
      write: () => buffer.write(bytes),
      writeSync: () => buffer.writeSync(bytes),
      readSync: () => buffer.readSync(),
      copyFrom: () => buffer.copyFrom(buffer, 0, 4, 4),
    }
    for (const [name, use] of Object.entries(uses)) {
      const message = new RegExp(`^${name}: the buffer belongs to another device: device 0 has no access .*device 1`)
      assert.throws(use, { name: 'PoolError', message })
    }
    await assert.rejects(() => buffer.read(), PoolError)
    assert.throws(() => home.createHostPool().allocate(4).copyTo(buffer), PoolError)
    buffer.free()
    home.context.finishWork()
  })
})

describe('resources of a fallback on another device', () => {
  /** Handles that were made and not destroyed: streams, and events except those that the clocks keep. */
  const open = ({ driver }: ReturnType<typeof setUp>) => {
    const count = (name: string) => driver.calls.get(name) ?? 0
    return [count('cuStreamCreate') - count('cuStreamDestroy'), count('cuEventCreate') - count('cuEventDestroy')]
  }
  const closeAll = ({ home, peer, upstream, second }: ReturnType<typeof setUp>) => {
    upstream.close()
    ;(second as ReturnType<TestDevice['createPlainPool']>).close()
    for (const { clocks } of [home, peer]) {
      for (const stream of clocks.streams) stream?.close()
      clocks.close()
    }
  }

  it('each borrowing stream has one companion, closed with the wrapper', () => {
    const opened = setUp()
    const { home, pool, borrow } = opened
    const streams = [home.createStream(), home.createStream()]
    for (let round = 0; round < 5; round++) for (const stream of streams) borrow(stream).free()
    assert.equal(open(opened)[0], 4)
    const [held, given] = streams.map(stream => borrow(stream))
    home.hold(streams[0])
    held.fill(1)
    pool.close()
    pool.close()
    assert.equal(open(opened)[0], 2)
    assert.equal(held.readSync()[0], 1)
    held.free()
    given.free(streams[0])
    assert.throws(() => borrow(streams[0]), { name: 'PoolError', message: /pool is closed/ })
    pool.allocate(1 * MiB).free()
    closeAll(opened)
    assert.deepEqual(open(opened), [0, 0])
  })

  it('companions are closed with the devices, whichever comes first', () => {
    for (const first of ['home', 'peer'] as const) {
      const opened = setUp()
      const { home, borrow } = opened
      const held = borrow(home.createStream())
      borrow(home.createStream()).free()
      const devices = first === 'home' ? [opened.home, opened.peer] : [opened.peer, opened.home]
      const pools = first === 'home' ? [opened.upstream, opened.second] : [opened.second, opened.upstream]
      for (const [index, { clocks, context }] of devices.entries()) {
        ;(pools[index] as typeof opened.upstream).close()
        for (const stream of clocks.streams) stream?.close()
        clocks.close()
        context.release()
        if (index === 0 && first === 'home') held.free()
        else assert.throws(() => held.free(), PoolError)
      }
      assert.deepEqual(open(opened), [0, 0])
      assert.deepEqual([opened.driver.usedBytes(0), opened.driver.usedBytes(1)], [0, 0])
    }
  })

  it('the number of companions does not grow with streams that come and go', () => {
    const opened = setUp()
    const { home, peer, borrow } = opened
    const held: DeviceBuffer[] = []
    for (let round = 0; round < 200; round++) {
      using stream = home.createStream()
      const buffer = borrow(stream, 5 * MiB)
      if (round % 30 === 0) held.push(buffer)
      else buffer.free()
    }
    assert.ok(open(opened)[0] <= 1)
    peer.createStream()
    for (const buffer of held) buffer.free()
    closeAll(opened)
    assert.deepEqual(open(opened), [0, 0])
  })

  it('close also works if a buffer could be neither lent nor given back before its pool closed', () => {
    const { home, pool, borrow, driver, second } = setUp(LENDERS.plain)
    borrow().free()
    home.hold(home.defaultStream)
    driver.failCall({ call: 'cuStreamWaitEvent', code: 999 })
    driver.failCall({ call: 'cuMemFree', code: 999 })
    assert.throws(() => borrow(), { name: 'CudaError', call: 'cuStreamWaitEvent' })
    assert.equal(second.stats().liveBuffers, 1)
    ;(second as ReturnType<TestDevice['createPlainPool']>).close()
    pool.close()
  })

  it('a failed driver call leaks neither streams nor memory', () => {
    for (const [kind, lender] of Object.entries(LENDERS)) {
      for (const code of [2, 999]) {
        for (const onwards of [false, true]) {
          for (let nth = 1, failed = true; failed; nth++) {
            const opened = setUp(lender)
            const { home, driver, pool, second } = opened
            const streams = [home.createStream(), home.createStream()]
            const held: DeviceBuffer[] = []
            failed = false
            driver.failCall({ call: '*', nth, code, onwards })
            const steps = [
              () => held.push(pool.allocate(6 * MiB, streams[0])),
              () => held.push(pool.allocate(5 * MiB, streams[1])),
              () => held[0]?.free(),
              () => held.push(pool.allocate(6 * MiB, streams[0])),
              () => streams[1].close(),
              () => held.at(-1)?.free(),
              () => pool.close(),
            ]
            for (const step of steps) failed = isRefused(step, OutOfMemoryError) || failed
            driver.clearFaults()
            const where = `${kind}, code ${code}, call ${nth}${onwards ? ' and on' : ''}`
            pool.close()
            const live = held.filter(buffer => !buffer.freed && sourceOf(buffer) === second)
            assert.equal(second.stats().liveBuffers, live.length, where)
            for (const buffer of live) buffer.free()
            assert.equal(second.stats().liveBuffers, 0, where)
            closeAll(opened)
            assert.deepEqual([driver.usedBytes(0), driver.usedBytes(1)], [0, 0], where)
            if (!onwards) assert.ok(open(opened).reduce((sum, count) => sum + count) <= 1, where) // the refused one
          }
        }
      }
    }
  })
})

/** Streams of two devices share one pool of the second device; each stamps its buffers, and verifies its stamps. */
describe('streams of two devices on one pool', () => {
  it('no stream sees memory that another still uses, in any progress of the work', () => {
    for (const [kind, lender] of Object.entries(LENDERS)) {
      for (let seed = 1; seed <= 12; seed++) {
        const { home, peer, pool, second, upstream } = setUp(lender, { progress: 'seeded', seed })
        const random = new Random(seed)
        let streams = [home.defaultStream, home.createStream(), home.createStream(), peer.createStream()]
        const held: { buffer: DeviceBuffer; stamp: number }[] = []
        const check = ({ buffer, stamp }: (typeof held)[number]) => {
          for (const place of [0, buffer.byteLength >> 1, buffer.byteLength - 1]) {
            assert.equal(buffer.readSync(place, 1)[0], stamp, `${kind}, seed ${seed}`)
          }
        }
        for (let step = 1; step <= 250; step++) {
          const stream = streams[random.below(streams.length)]
          const from = stream.context === home.context ? pool : second
          const buffer = from.tryAllocate(random.logUniform(1 * KiB, 12 * MiB), stream)
          if (buffer !== null) {
            const stamp = step & 255
            buffer.fill(stamp)
            held.push({ buffer, stamp })
          }
          while (held.length > (buffer === null ? 0 : 12)) {
            const [one] = held.splice(random.below(held.length), 1)
            if (random.below(3) === 0) {
              // Another stream, of either device, copies the buffer, and is announced or frees it.
              const other = streams[random.below(streams.length)]
              const copy = (other.context === home.context ? pool : second).tryAllocate(one.buffer.byteLength, other)
              if (copy !== null) {
                signal(one.buffer.stream, other)
                copy.copyFrom(one.buffer)
                held.push({ buffer: copy, stamp: one.stamp })
                if (random.below(2) === 0 && one.buffer.context === other.context) one.buffer.free(other)
                else one.buffer.recordUse(other)
              }
            } else if (random.below(2) === 0) check(one)
            if (!one.buffer.freed) one.buffer.free()
          }
          if (step % 60 === 0) {
            streams[1].close()
            for (const one of held.filter(({ buffer: { stream: of } }) => of.closed)) {
              one.buffer.free()
              held.splice(held.indexOf(one), 1)
            }
            streams = streams.with(1, home.createStream())
          }
        }
        for (const one of held) check(one)
        for (const { buffer } of held) buffer.free()
        assert.ok(pool.fallbacks > 50, `${pool.fallbacks} fallbacks`)
        assert.equal(pool.stats().liveBuffers, 0)
        upstream.check()
      }
    }
  })
})
