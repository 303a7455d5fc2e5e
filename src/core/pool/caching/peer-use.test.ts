// Buffers of one device used by streams of another device: copies between the two, and frees that wait for such work.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { MiB } from '../../base/bytes.js'
import { CudaError, PoolError } from '../../base/errors.js'
import type { SimulatedOptions } from '../../driver/simulated/options.js'
import { signal } from '../../order/order.fixture.js'
import type { Stream } from '../../order/stream.js'
import { ArenaPool } from '../arena/arena-pool.js'
import type { DeviceBuffer } from '../buffer.js'
import { assertConsistent, isFilled, isRefused, TestDevice, twoDevices } from '../pool.fixture.js'
import type { Pool } from '../pool.js'

const POOL_BYTES = 8 * MiB

function setUp(options: SimulatedOptions = {}) {
  const [home, peer] = twoDevices(options)
  const pool = home.createPool({ maxPoolBytes: POOL_BYTES })
  const peerPool = peer.createPool({ maxPoolBytes: POOL_BYTES })
  for (let count = 0; count < 3; count++) peer.createStream() // so that the slots differ
  const [stream, peerStream] = [home.createStream(), peer.createStream()]
  return { home, peer, pool, peerPool, stream, peerStream, driver: home.driver }
}

type Opened = ReturnType<typeof setUp>

function assertHolds(buffer: DeviceBuffer, value: number): void {
  const bytes = buffer.readSync()
  if (isFilled(bytes, value)) return
  assert.fail(`byte ${bytes.findIndex(byte => byte !== value)} is not ${value}`)
}

describe('copies between devices', () => {
  for (const peerAccess of [false, true]) {
    it(`arrive in order, in any progress of the work, ${peerAccess ? 'with' : 'without'} access`, () => {
      for (let seed = 1; seed <= 20; seed++) {
        const { pool, peerPool, stream, peerStream, home, peer } = setUp({ progress: 'seeded', seed, peerAccess })
        if (peerAccess) for (const one of [pool, peerPool]) one.setAccess(one === pool ? peer : home, 'readWrite')
        const [source, target] = [pool.allocate(1000, stream), peerPool.allocate(1000, peerStream)]
        const back = pool.allocate(1000, stream)
        for (let round = 1; round <= 5; round++) {
          source.fill(round)
          signal(stream, peerStream)
          target.copyFrom(source)
          signal(peerStream, stream)
          source.fill(99)
          back.copyFrom(target)
          signal(stream, peerStream)
          assertHolds(back, round)
        }
      }
    })
  }

  it('run in the stream of the target, and copy parts', () => {
    const { pool, peerPool, stream, peerStream, peer, driver } = setUp()
    const [source, target] = [pool.allocate(100, stream), peerPool.allocate(100, peerStream)]
    source.write(Uint8Array.from({ length: 100 }, (_, index) => index))
    target.fill(200)
    stream.synchronize()
    const release = peer.hold(peerStream)
    target.copyFrom(source, 10, 50, 3)
    assert.deepEqual([driver.calls.get('cuMemcpyPeerAsync'), driver.calls.get('cuMemcpyDtoDAsync')], [1, undefined])
    source.write(Uint8Array.of(77), 51)
    stream.synchronize()
    release()
    assert.deepEqual([...target.readSync(9, 5)], [200, 50, 77, 52, 200])
    target.copyFrom(source, 0, 0, 0)
    assert.throws(() => target.copyFrom(source, 1), RangeError)
    assert.equal(driver.calls.get('cuMemcpyPeerAsync'), 1)
  })

  it('wait for both streams, and until the copy is done, in copyFromSync', () => {
    for (let seed = 1; seed <= 10; seed++) {
      const { pool, peerPool, stream, peerStream } = setUp({ progress: 'seeded', seed })
      const [source, target] = [pool.allocate(1000, stream), peerPool.allocate(1000, peerStream)]
      source.fill(5)
      target.fill(6)
      target.copyFromSync(source, 0, 0, 500)
      source.fill(7)
      stream.synchronize()
      assert.equal(peerStream.query(), true)
      assert.deepEqual([...target.readSync(499, 2)], [5, 6])
    }
  })

  it('take typed arrays, plain buffers and growable ones', () => {
    const { home, peer, pool, peerPool, stream } = setUp()
    const [source, target] = [pool.allocateArray(Float32Array, 4, stream), peerPool.allocateArray(Float32Array, 6)]
    source.write(Float32Array.of(1, 2, 3, 4))
    stream.synchronize()
    target.fill(0)
    target.copyFrom(source.subarray(1, 3), 2)
    assert.deepEqual([...target.readSync()], [0, 0, 2, 3, 0, 0])
    const growable = home.createGrowableBuffer({ bytes: 16 })
    const plain = peer.createPlainPool().allocate(16)
    plain.copyFrom(source.buffer)
    growable.copyFromSync(plain)
    assert.deepEqual(growable.readSync(), source.buffer.readSync())
  })

  it('refuse a source of another driver, and change nothing', () => {
    const { pool } = setUp()
    const [target, source] = [pool.allocate(4), new TestDevice().createPool().allocate(4)]
    for (const copy of [() => target.copyFrom(source), () => target.copyFromSync(source)]) {
      assert.throws(copy, { name: 'PoolError', message: /source belongs to another device, of another driver/ })
    }
  })
})

/** Kinds of pool whose buffers are given back while a stream of another device still reads them. */
const POOLS: Readonly<Record<string, (device: TestDevice) => Pool>> = {
  'virtual memory': device => device.createPool({ maxPoolBytes: POOL_BYTES, backing: 'virtual' }),
  segments: device => device.createPool({ maxPoolBytes: POOL_BYTES, backing: 'segments' }),
  plain: device => device.createPlainPool(),
  'driver pool': device => device.createDriverPool({}),
  arena: device => device.createArenaPool({ bytes: POOL_BYTES }),
  blocks: device => device.createBlockPool({ blockBytes: POOL_BYTES, count: 1 }),
}

/** An arena gives nothing back before it is reset. */
function reset(pool: Pool, stream: Stream): void {
  if (pool instanceof ArenaPool) pool.reset(stream)
}

/** A buffer of the whole pool that holds 1, and a copy of it to the other device that has not run. */
function copying({ home, peer, peerPool, stream, peerStream }: Opened, open: (device: TestDevice) => Pool) {
  const pool = open(home)
  const source = pool.allocate(POOL_BYTES, stream)
  const target = peerPool.allocate(POOL_BYTES, peerStream)
  source.fill(1)
  signal(stream, peerStream)
  const release = peer.hold(peerStream)
  target.copyFrom(source)
  return { pool, source, target, release }
}

describe('a buffer that a stream of another device uses', () => {
  for (const [kind, open] of Object.entries(POOLS)) {
    for (const free of ['recordUse', 'free on that stream'] as const) {
      it(`is not reused before that work has completed: ${kind}, ${free}`, () => {
        for (const ended of ['nothing', 'the stream', 'the device'] as const) {
          const opened = setUp()
          const { peer, peerStream, home, stream } = opened
          const { pool, source, target } = copying(opened, open)
          if (free === 'recordUse') {
            source.recordUse(peerStream)
            source.free()
          } else {
            pool.setAccess(peer, 'readWrite')
            source.free(peerStream)
          }
          assert.throws(() => source.free(), PoolError)
          if (ended === 'the stream') peerStream.close()
          if (ended === 'the device') {
            for (const other of peer.clocks.streams) other?.close()
            peer.clocks.close()
            peer.context.release()
          }
          reset(pool, stream)
          const next = pool.allocate(POOL_BYTES, stream)
          next.fill(2)
          stream.synchronize()
          if (ended === 'nothing') assertHolds(target, 1)
          next.free()
          home.context.finishWork()
          assert.equal(pool.stats().liveBuffers, 0)
        }
      })
    }
  }

  it('of a plain pool delays only its own free', () => {
    const { home, peer, peerStream } = setUp()
    const pool = home.createPlainPool()
    const stale = pool.allocate(100)
    stale.free()
    pool.allocate(100).recordUse(peerStream)
    const release = peer.hold(peerStream)
    assert.throws(() => stale.free(), PoolError)
    pool.allocate(100).free()
    assert.equal(peerStream.query(), false)
    release()
  })

  it('comes back without a wait once that work is known to have completed, and not before', () => {
    const opened = setUp()
    const { peerStream } = opened
    const { pool, source, release } = copying(opened, device => device.createPool({ crossStreamReuse: 'ordered' }))
    const { ptr } = source
    source.recordUse(peerStream)
    source.free()
    const other = pool.allocate(POOL_BYTES, opened.stream)
    assert.notEqual(other.ptr, ptr)
    const { processDeferred } = pool as ReturnType<TestDevice['createPool']>
    assert.equal(processDeferred.call(pool), 0)
    assert.equal(pool.stats().pendingBytes, POOL_BYTES)
    release()
    assert.equal(processDeferred.call(pool), 1)
    assert.equal(pool.stats().pendingBytes, 0)
    assert.equal(pool.allocate(POOL_BYTES).ptr, ptr)
  })

  it('waits for streams of its own and of two other devices together', () => {
    const opened = setUp({ devices: 3 })
    const { driver, pool, stream, peerStream, home, peer } = opened
    const third = new TestDevice(driver, 2)
    const streams = [stream, home.createStream(), peerStream, third.createStream()]
    const releases = [home, home, peer, third].map((device, index) => device.hold(streams[index]))
    const buffer = pool.allocate(1 * MiB, stream)
    for (const user of streams) buffer.recordUse(user)
    buffer.free()
    for (const release of releases) {
      pool.processDeferred()
      assert.equal(pool.stats().pendingBytes, 1 * MiB)
      release()
    }
    pool.processDeferred()
    assert.equal(pool.stats().pendingBytes, 0)
    assertConsistent(pool)
  })

  it('is freed on a stream of a device that can reach it only', () => {
    const { home, peer, pool, stream, peerStream } = setUp()
    const elsewhere = new TestDevice().createStream()
    const growable = home.createGrowableBuffer({ bytes: 100 })
    for (const buffer of [pool.allocate(100, stream), home.createPlainPool().allocate(100), growable]) {
      const expected = { name: 'PoolError', message: /^free: the stream belongs to another device: device 1 has no/ }
      assert.throws(() => buffer.free(peerStream), expected)
      assert.throws(() => buffer.free(elsewhere), { name: 'PoolError', message: /another driver/ })
      assert.throws(() => buffer.recordUse(elsewhere), { name: 'PoolError', message: /another driver/ })
      assert.equal(buffer.freed, false)
      buffer.recordUse(peerStream)
      buffer.free()
    }
    pool.setAccess(peer, 'readWrite')
    pool.allocate(100, stream).free(peerStream)
    assertConsistent(pool)
  })

  it('keeps its memory while a growable one shrinks', () => {
    const { home, peer, peerPool, peerStream } = setUp()
    const source = home.createGrowableBuffer({ bytes: 6 * MiB })
    source.fill(3)
    home.context.finishWork()
    const target = peerPool.allocate(6 * MiB, peerStream)
    const release = peer.hold(peerStream)
    target.copyFrom(source)
    source.recordUse(peerStream)
    source.shrink(1 * MiB)
    assert.equal(source.mappedBytes, 6 * MiB)
    release()
    source.settleSync()
    assert.equal(source.mappedBytes, 2 * MiB)
    assertHolds(target, 3)
  })

  for (const [kind, open] of Object.entries({
    ...POOLS,
    growable: (device: TestDevice) => {
      const buffer = device.createGrowableBuffer({ bytes: POOL_BYTES })
      return { allocate: () => buffer, setAccess: () => {}, close: () => buffer.allocation.close() } as unknown as Pool
    },
  })) {
    it(`is waited for when its pool is closed, held or freed: ${kind}`, () => {
      for (const freed of [false, true]) {
        const opened = setUp()
        const { home, peerStream } = opened
        const { pool, source, target } = copying(opened, open)
        source.recordUse(peerStream)
        if (freed && kind !== 'plain') source.free()
        ;(pool as ReturnType<TestDevice['createPlainPool']>).close()
        assert.equal(home.driver.usedBytes(0), 0)
        assertHolds(target, 1)
      }
    })
  }

  it('of a lost device comes back, since nothing runs there any more', () => {
    const opened = setUp()
    const { peer, peerStream, driver, stream } = opened
    const { pool, source } = copying(opened, POOLS['virtual memory'])
    source.recordUse(peerStream)
    source.free()
    driver.failCall({ call: 'cuMemGetInfo', code: 700 })
    assert.throws(() => peer.freeBytes(), CudaError)
    pool.allocate(POOL_BYTES, stream).free()
    assert.throws(() => peer.freeBytes(), { name: 'DeviceLostError' })
  })

  it('survives every driver call that fails', () => {
    for (const [kind, open] of Object.entries(POOLS)) {
      for (const onwards of [false, true]) {
        for (let nth = 1, failed = true; failed; nth++) {
          const opened = setUp()
          const { driver, peerStream, stream, home, peer } = opened
          const { pool, source, target } = copying(opened, open)
          pool.setAccess(peer, 'readWrite')
          failed = false
          driver.failCall({ call: '*', nth, code: 999, onwards })
          const steps = [
            () => source.recordUse(peerStream),
            () => source.free(),
            () => reset(pool, stream),
            () => pool.tryAllocate(POOL_BYTES, stream)?.fill(2),
          ]
          for (const step of steps) failed = isRefused(step) || failed
          driver.clearFaults()
          if (!source.freed) source.free(peerStream)
          assertHolds(target, 1)
          ;(pool as ReturnType<TestDevice['createPlainPool']>).close()
          assert.equal(home.driver.usedBytes(0), 0, `${kind}, call ${nth}`)
        }
      }
    }
  })
})
