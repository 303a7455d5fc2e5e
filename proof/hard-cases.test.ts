// The cases in which allocators are known to have gone wrong, one test each, for both backings; and what the random
// programs have found.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { GiB, KiB, MiB } from '../src/core/base/bytes.js'
import { CudaError } from '../src/core/base/errors.js'
import { LAST_GENERATION, State } from '../src/core/heap/records.js'
import { Event } from '../src/core/order/event.js'
import { assertConsistent, TestDevice, twoDevices } from '../src/core/pool/pool.fixture.js'
import { SimulatedDriver } from '../src/entries/simulated.js'
import { openDevice, type PoolOptions, type Stream } from '../src/index.js'

for (const backing of ['virtual', 'segments', 'registrable'] as const) {
  function setUp(options: PoolOptions = {}) {
    const device = new TestDevice()
    const pool = device.createPool({ backing, maxPoolBytes: 64 * MiB, ...options })
    const [a, b, c] = Array.from({ length: 3 }, () => device.createStream())
    return { device, pool, a, b, c }
  }

  describe(`hard cases of stream order: ${backing}`, () => {
    it('a dependency is carried through two merges and over two streams, and no further than it reaches', () => {
      for (const freedInTime of [true, false]) {
        const { device, pool, a, b, c } = setUp({ crossStreamReuse: 'ordered' })
        const parts = [24, 16, 24].map(size => pool.allocate(size * MiB, a))
        const { ptr } = parts[0]
        device.hold(a)
        parts[0].free()
        parts[2].free()
        if (freedInTime) parts[1].free() // merges with both, if they lie in one range
        signal(a, b)
        if (!freedInTime) parts[1].free()
        signal(b, c)
        if (backing === 'virtual') {
          const before = device.calls('cuEventSynchronize')
          const whole = pool.allocate(64 * MiB, c)
          assert.equal(whole.ptr, ptr)
          assert.equal(device.calls('cuEventSynchronize') - before, freedInTime ? 0 : 1)
          assert.equal(c.query(), !freedInTime, 'c comes after a’s held work only by the events')
        } else {
          const before = device.calls('cuEventSynchronize')
          pool.allocate(16 * MiB, c)
          assert.equal(device.calls('cuEventSynchronize') - before, 0)
        }
        assertConsistent(pool)
      }
    })

    it('a stream is destroyed with frees pending, and its handle and its slot serve the next one', () => {
      const { device, pool, a } = setUp({ crossStreamReuse: 'ordered' })
      const block = pool.allocate(64 * MiB, a)
      const { handle, slot } = a
      device.hold(a)
      block.fill(1)
      block.free()
      a.close()
      const next = device.createStream()
      assert.equal(next.handle, handle)
      assert.notEqual(next.slot, slot, 'work of the old stream is pending')
      const before = device.calls('cuEventSynchronize')
      pool.allocate(64 * MiB, next).free()
      assert.equal(device.calls('cuEventSynchronize') - before, 1, 'the host waits for the old stream')
      assert.deepEqual([device.createStream(), device.createStream()].map(stream => stream.slot).includes(slot), true)
      assertConsistent(pool)
    })

    it('an adopted stream is destroyed elsewhere, and its handle serves another one, which inherits nothing', () => {
      const driver = new SimulatedDriver({ capacityBytes: 64 * MiB, progress: 'eager' })
      using device = openDevice(driver)
      const pool = device.createPool({ backing, maxPoolBytes: 64 * MiB })
      const first = device.adoptStream(driver.cuStreamCreate(1))
      const [pending, live] = [pool.allocate(4 * KiB, first), pool.allocate(4 * KiB, first)]
      const { ptr } = pending
      driver.holdOperation(first.handle)
      const work = driver.submitted(first.handle)
      pending.free()
      driver.cuStreamDestroy(first.handle)
      const second = device.adoptStream(driver.cuStreamCreate(1))
      assert.equal(second.handle, first.handle)
      assert.deepEqual([first.closed, second.closed], [true, false])
      assert.ok(driver.happensBefore(work, second.handle), 'all work was waited for')
      assert.equal(pool.allocate(4 * KiB, second).ptr, ptr)
      live.free()
      pool.check()
    })

    it('memory is not unmapped, or given back, while a kernel uses it', () => {
      const { device, pool, a, b } = setUp({ crossStreamReuse: 'ordered' })
      const block = pool.allocate(32 * MiB, a)
      const release = device.hold(a)
      block.fill(1)
      block.free()
      assert.equal(pool.trimTo(0), 0)
      const { reservedBytes } = pool.stats()
      pool.allocate(32 * MiB, b)
      assert.equal(pool.stats().reservedBytes, reservedBytes + 32 * MiB, 'nothing was moved')
      release()
      device.context.activate().cuCtxSynchronize() // a fault of the kernel would show
      assert.ok(pool.trimTo(0) >= 32 * MiB)
      assertConsistent(pool)
    })

    it('a free inside a synchronise, as of another thread, is not covered by it', () => {
      const calls = ['cuStreamSynchronize', 'cuCtxSynchronize', 'cuEventRecord', 'cuStreamWaitEvent'] as const
      for (const call of calls) {
        const { device, pool, a, b } = setUp({ crossStreamReuse: 'ordered' })
        const block = pool.allocate(64 * MiB, a)
        const { driver } = device
        const original = driver[call] as (...args: number[]) => void
        const racing = (...args: number[]) => {
          Object.assign(driver, { [call]: original })
          original.apply(driver, args)
          device.hold(a)
          block.free()
        }
        Object.assign(driver, { [call]: racing })
        if (call === 'cuStreamSynchronize') a.synchronize()
        else if (call === 'cuCtxSynchronize') device.clocks.synchronize()
        else signal(a, b)
        const before = device.calls('cuEventSynchronize')
        pool.allocate(64 * MiB, b)
        assert.equal(device.calls('cuEventSynchronize') - before, 1, call)
        assertConsistent(pool)
      }
    })

    it('no false out of memory: from rounding to bins', () => {
      const { pool } = setUp()
      // One class holds all of these; only the first of them serves the request.
      const sizes = Array.from({ length: 9 }, (_, index) => 4 * MiB + (index === 0 ? 200 : index) * KiB)
      const blocks = sizes.flatMap(bytes => {
        const block = pool.allocate(bytes)
        pool.allocate(MiB)
        return [block]
      })
      while (pool.tryAllocate(MiB) !== null);
      for (const block of blocks) block.free()
      assert.notEqual(pool.tryAllocate(sizes[0]), null)
      assertConsistent(pool)
    })

    it('no false out of memory: from records that run out', () => {
      const { pool } = setUp()
      const blocks = Array.from({ length: 20_000 }, () => pool.allocate(256))
      for (const block of blocks) block.free()
      assert.notEqual(pool.tryAllocate(64 * MiB), null)
      assertConsistent(pool)
    })

    it('no false out of memory: from idle caches of other streams', () => {
      const { device, pool, a } = setUp()
      const streams = Array.from({ length: 40 }, () => device.createStream())
      for (const stream of streams) device.hold(stream)
      for (const bytes of [512 * KiB, 64 * KiB, 512]) {
        for (const stream of streams) {
          for (const buffer of [pool.allocate(bytes, stream), pool.allocate(bytes, stream)]) buffer.free()
        }
      }
      assert.ok(pool.stats().cachedBytes > 0)
      assert.notEqual(pool.tryAllocate(64 * MiB, a), null)
      assertConsistent(pool)
    })

    it('no false out of memory: from streams that are used once', () => {
      const { device, pool } = setUp()
      for (let round = 0; round < 300; round++) {
        using stream = device.createStream()
        device.hold(stream)
        pool.allocate(48 * MiB, stream).free()
      }
      assert.ok(pool.stats().reservedBytes <= 64 * MiB)
      assertConsistent(pool)
    })

    it('generations wrap: a buffer of an earlier life of its record matches nothing', () => {
      const { pool, a } = setUp()
      const stale = pool.allocate(4 * KiB, a)
      const { record } = stale
      stale.free()
      pool.caches.blockOf(record).tag = (LAST_GENERATION - 2) * 8 + State.cached
      const seen = new Set<number>()
      for (let round = 0; round < 6; round++) {
        const buffer = pool.allocate(4 * KiB, a)
        seen.add(buffer.record)
        assert.deepEqual([buffer.freed, stale.freed], [false, true])
        buffer.free()
        assert.equal(buffer.freed, true)
      }
      assert.ok(seen.has(record) && seen.size === 2, 'the spent record is not used again')
      assertConsistent(pool)
    })

    it('clocks count on beyond 32 bits', () => {
      const { device, pool, a, b } = setUp({ crossStreamReuse: 'ordered' })
      for (const marked of [2 ** 31 - 2, 2 ** 32 - 2, 2 ** 52]) {
        device.clocks.marked[a.slot] = marked
        const block = pool.allocate(64 * MiB, a)
        const { ptr } = block
        device.hold(a)
        block.free()
        signal(a, b)
        const calls = device.calls('cuEventSynchronize')
        const again = pool.allocate(64 * MiB, b)
        assert.deepEqual([again.ptr, device.calls('cuEventSynchronize') - calls], [ptr, 0])
        device.hold(b)
        again.free()
        pool.allocate(64 * MiB, a).free()
        assert.equal(device.calls('cuEventSynchronize') - calls, 1)
        device.clocks.synchronize()
        pool.processDeferred()
      }
    })

    it('a small long-lived block on every granule does not make the pool grow without end', () => {
      const pool = new TestDevice({ capacityBytes: 16 * GiB }).createPool({ backing, maxPoolBytes: Infinity })
      for (let round = 0; round < 100; round++) {
        const [first, second] = [pool.allocate(91 * MiB), pool.allocate(45.5 * MiB)]
        pool.allocate(2 * MiB)
        first.free()
        second.free()
        const { reservedBytes } = pool.stats()
        assert.ok(reservedBytes < 500 * MiB, `${reservedBytes / MiB} MiB reserved after round ${round}`)
      }
      assert.equal(pool.stats().liveBytes, 200 * MiB)
      assertConsistent(pool)
    })

    it('a buffer over several physical handles is one: for its contents, peers and what lies beside it', () => {
      const [home, peer] = twoDevices()
      const pool = home.createPool({ backing, maxPoolBytes: 64 * MiB })
      const [a, b] = [home.createStream(), peer.createStream()]
      const granule = 2 * MiB
      const neighbours = [pool.allocate(granule, a)]
      const before = home.calls('cuMemCreate')
      const buffer = pool.allocate(5 * granule, a)
      if (backing === 'virtual') assert.equal(home.calls('cuMemCreate') - before, 5)
      neighbours.push(pool.allocate(granule, a))
      const numbers = Uint32Array.from({ length: buffer.byteLength / 4 }, (_, index) => index)
      buffer.writeSync(numbers)
      for (const neighbour of neighbours) neighbour.free()
      a.synchronize()
      assert.ok(pool.trimTo(0) >= 2 * granule)
      for (let border = granule; border < buffer.byteLength; border += granule) {
        const read = new Uint32Array(buffer.readSync(border - 8, 16).buffer)
        assert.deepEqual(
          [...read],
          Array.from({ length: 4 }, (_, index) => border / 4 - 2 + index),
        )
      }
      pool.setAccess(peer, 'readWrite')
      const copy = peer.createPool({ backing }).allocate(buffer.byteLength, b)
      copy.copyFrom(buffer)
      buffer.recordUse(b)
      assert.deepEqual(copy.readSync(), buffer.readSync())
      const part = pool.allocate(3 * granule, a)
      part.copyFrom(buffer, 0, granule + 4, 3 * granule)
      assert.deepEqual(part.readSync(), buffer.readSync(granule + 4, 3 * granule))
      const { ptr } = buffer
      buffer.free()
      b.synchronize()
      assert.equal(pool.allocate(5 * granule, a).ptr, ptr, 'it comes back whole')
      assertConsistent(pool)
    })

    it('a driver call that fails in the middle of a growth of several handles loses nothing', () => {
      const calls =
        backing === 'segments' ? (['cuMemAlloc'] as const) : (['cuMemCreate', 'cuMemMap', 'cuMemSetAccess'] as const)
      for (const call of calls) {
        for (const nth of call === 'cuMemAlloc' || call === 'cuMemSetAccess'
          ? [1]
          : backing === 'virtual'
            ? [1, 4, 8]
            : [1]) {
          for (const code of [2, 999]) {
            const { device, pool, a } = setUp()
            const kept = pool.allocate(2 * MiB, a)
            device.driver.failCall({ call, nth, code, onwards: true })
            if (code === 2) assert.equal(pool.tryAllocate(16 * MiB, a), null)
            else assert.throws(() => pool.tryAllocate(16 * MiB, a), CudaError)
            device.driver.clearFaults()
            assert.equal(kept.freed, false)
            pool.check()
            pool.allocate(62 * MiB, a).free()
            kept.free()
            a.synchronize()
            pool.processDeferred()
            pool.trimTo(0)
            assert.equal(device.freeBytes(), device.totalBytes, `${call} ${nth}`)
          }
        }
      }
    })
  })

  describe(`found by the proof: ${backing}`, () => {
    it('a device synchronise that the driver refuses, after a stream was closed with work pending', () => {
      const { device, pool, a, b } = setUp({ crossStreamReuse: 'wait-before-oom' })
      const block = pool.allocate(64 * MiB, a)
      const { ptr } = block
      device.hold(a)
      a.close()
      device.driver.failCall({ call: 'cuCtxSynchronize', code: 999 })
      assert.throws(() => device.clocks.synchronize(), CudaError)
      pool.deallocate(ptr)
      assert.equal(pool.allocate(64 * MiB, b).ptr, ptr)
      assert.equal(pool.stats().insertedWaits, 1)
      assert.equal(b.query(), false, 'b comes after what was submitted to a')
    })

    it('a capture gets little memory of a pool that is nearly full, which goes back to the heap that it came from', () => {
      const { pool, a, b } = setUp()
      const blocks = Array.from({ length: 64 }, () => pool.allocate(MiB, b))
      blocks[40].free()
      a.beginCapture()
      pool.allocate(64 * KiB, a).free()
      a.endCapture().close()
      a.synchronize()
      pool.processDeferred()
      assertConsistent(pool)
      assert.notEqual(pool.tryAllocate(MiB, a), null)
    })

    it('two captures that the default stream would break, of which one ends before the other', () => {
      const driver = new SimulatedDriver({ capacityBytes: 64 * MiB, progress: 'eager' })
      using device = openDevice(driver)
      const [first, second] = [0, 0].map(flags => device.adoptStream(driver.cuStreamCreate(flags)))
      using event = device.createEvent()
      first.beginCapture()
      second.beginCapture()
      first.endCapture().close()
      assert.throws(() => event.record(device.defaultStream), /ordered with the default stream is being captured/)
      second.endCapture().close()
      event.record(device.defaultStream)
    })

    it('recordUse of a captured stream, for work that was submitted to it before the capture', () => {
      const { device, pool, a, b } = setUp({ crossStreamReuse: 'ordered' })
      const block = pool.allocate(64 * MiB, b)
      const { ptr } = block
      const release = device.hold(a)
      a.beginCapture()
      block.recordUse(a)
      block.free()
      a.endCapture().close()
      const before = device.calls('cuEventSynchronize')
      assert.equal(pool.allocate(64 * MiB, b).ptr, ptr)
      assert.equal(device.calls('cuEventSynchronize') - before, 1, 'the host waits for a')
      release()
    })
  })
}

/** `later` waits for all that was submitted to `earlier`. */
function signal(earlier: Stream, later: Stream): void {
  using event = new Event(earlier.context)
  event.record(earlier)
  later.wait(event)
}
