// Growing, giving back and running out, with memory of virtual granules and of segments.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { GiB, KiB, MiB } from '../../base/bytes.js'
import { OutOfMemoryError } from '../../base/errors.js'
import type { DeviceBuffer } from '../buffer.js'
import { growthStep } from '../policy.js'
import { assertConsistent, TestDevice } from '../pool.fixture.js'
import type { CachingPool } from './caching-pool.js'

const UNIT = 2 * MiB

/** Leaves 256 small blocks of sixteen classes in the cache: pairs of 98 KiB. */
function cacheMany(pool: CachingPool): void {
  const sizes = [34, 64, 36, 62, 38, 60, 40, 58, 42, 56, 44, 54, 46, 52, 48, 50].map(size => size * KiB)
  const blocks = Array.from({ length: 256 }, (_, index) => pool.allocate(sizes[index % 16]))
  for (const block of blocks) block.free()
  assert.equal(pool.stats().cachedBytes, 8 * 16 * 98 * KiB)
}

for (const backing of ['virtual', 'segments', 'registrable'] as const) {
  describe(`limits: ${backing}`, () => {
    it('grows by as little as its requests need where a step is less than a granule, and counts the growths', () => {
      const device = new TestDevice()
      assert.ok(growthStep(device.totalBytes) < UNIT)
      const pool = device.createPool({ backing })
      assert.deepEqual([pool.stats().reservedBytes, pool.stats().growths], [0, 0])
      const small = pool.allocate(1)
      assert.deepEqual([pool.stats().reservedBytes, pool.stats().growths], [UNIT, 1])
      pool.allocate(64 * KiB)
      assert.deepEqual([pool.stats().reservedBytes, pool.stats().growths], [UNIT, 1])
      pool.allocate(5 * MiB)
      // Small blocks of virtual memory lie in a slab. The rest of the granule is free for large ones.
      const reservedBytes = (backing === 'virtual' ? 3 : 4) * UNIT
      assert.deepEqual([pool.stats().reservedBytes, pool.stats().growths], [reservedBytes, 2])
      small.free()
      assert.equal(pool.stats().peakReservedBytes, reservedBytes)
      assertConsistent(pool)
    })

    it('with a limit of 10 MiB a larger request fails, and one that a free makes room for succeeds', () => {
      const pool = new TestDevice().createPool({ backing, maxPoolBytes: 10 * MiB })
      assert.equal(pool.tryAllocate(10 * MiB + 1), null)
      const [first, second] = [pool.allocate(4 * MiB), pool.allocate(4 * MiB)]
      assert.equal(pool.tryAllocate(3 * MiB), null)
      assert.equal(pool.stats().liveBytes, 8 * MiB)
      first.free()
      pool.allocate(6 * MiB).free()
      second.free()
      pool.allocate(10 * MiB)
      assertConsistent(pool)
    })

    it('a pool limited to 6 granules serves all 6 at once after 5 were freed', () => {
      const pool = new TestDevice().createPool({ backing, maxPoolBytes: 6 * UNIT })
      pool.allocate(5 * UNIT).free()
      const six = pool.allocate(6 * UNIT)
      assert.equal(pool.tryAllocate(1), null)
      six.free()
      for (let count = 0; count < 6; count++) pool.allocate(UNIT)
      assert.equal(pool.stats().reservedBytes, 6 * UNIT)
      assertConsistent(pool)
    })

    it('cached small blocks make room for a large block, and cached large blocks for small ones', () => {
      const device = new TestDevice()
      const pool = device.createPool({ backing, maxPoolBytes: 64 * MiB })
      const streams = [device.defaultStream, device.createStream(), device.createStream()]
      for (const stream of streams) {
        const blocks = Array.from({ length: 20 }, () => pool.allocate(40 * KiB, stream))
        for (const block of blocks) block.free()
      }
      assert.ok(pool.stats().cachedBytes > 0)
      pool.allocate(64 * MiB).free()
      const blocks = Array.from({ length: 8 }, () => pool.allocate(256 * KiB, streams[1]))
      for (const block of blocks) block.free()
      assert.ok(pool.stats().cachedBytes > 0)
      for (let bytes = 0; bytes < 64 * MiB; bytes += 64 * KiB) pool.allocate(64 * KiB, streams[2])
      assertConsistent(pool)
    })

    it('a block as large as the pool gets the memory of small blocks that no cache keeps', () => {
      const device = new TestDevice()
      const pool = device.createPool({ backing, maxPoolBytes: 64 * MiB })
      const stream = device.createStream()
      const small = pool.allocate(4 * KiB, stream)
      stream.close() // whose blocks are not cached any more
      small.free()
      assert.equal(pool.stats().cachedBytes, 0)
      pool.allocate(64 * MiB)
      assertConsistent(pool)
    })

    it('a few cached small blocks are given back before another segment is taken, not before a slab is needed', () => {
      const pool = new TestDevice().createPool({ backing })
      const blocks = Array.from({ length: 16 }, () => pool.allocate(64 * KiB))
      for (const block of blocks) block.free()
      const { cachedBytes } = pool.stats()
      assert.equal(cachedBytes, 1 * MiB)
      pool.allocate(32 * MiB)
      assert.equal(pool.stats().cachedBytes, backing === 'virtual' ? cachedBytes : 0)
      if (backing === 'virtual') {
        pool.allocate(26 * MiB)
        assert.equal(pool.stats().cachedBytes, cachedBytes)
      }
      assertConsistent(pool)
    })

    it('with half of the memory held, the other half can be allocated twice in turn', () => {
      for (const maxPoolBytes of [Infinity, '100%', 64 * MiB] as const) {
        const device = new TestDevice()
        const pool = device.createPool({ backing, maxPoolBytes })
        pool.allocate(32 * MiB)
        const other = pool.allocate(32 * MiB, device.createStream())
        assert.throws(() => pool.allocate(32 * MiB), OutOfMemoryError)
        assert.throws(() => pool.allocate(1), OutOfMemoryError)
        other.free()
        pool.allocate(32 * MiB)
        assertConsistent(pool)
      }
    })

    it('memory whose work on another stream has completed is used before the pool grows', () => {
      for (const bytes of [64 * KiB, 3 * MiB]) {
        const device = new TestDevice()
        const pool = device.createPool({ backing })
        const [a, b] = [device.createStream(), device.createStream()]
        const blocks = Array.from({ length: 8 }, () => pool.allocate(bytes, a))
        for (const block of blocks) block.free()
        const { reservedBytes } = pool.stats()
        for (let count = 0; count < 8; count++) pool.allocate(bytes, b)
        assert.equal(pool.stats().reservedBytes, reservedBytes, `blocks of ${bytes}`)
        assertConsistent(pool)
      }
    })

    it('memory that other programs hold on the device is left alone, and named when it is the reason', () => {
      const device = new TestDevice()
      const pool = device.createPool({ backing, maxPoolBytes: Infinity })
      const taken = device.context.activate().cuMemAlloc(40 * MiB)
      assert.throws(() => pool.allocate(32 * MiB), {
        name: 'OutOfMemoryError',
        message: /24 MiB free on the device.*in other programs/,
      })
      pool.allocate(24 * MiB).free()
      device.driver.cuMemFree(taken)
      pool.allocate(64 * MiB)
      assertConsistent(pool)
    })

    it('says by how much to raise the limit', () => {
      const pool = new TestDevice().createPool({ backing, maxPoolBytes: 16 * MiB })
      pool.allocate(10 * MiB)
      assert.throws(() => pool.allocate(16 * MiB), { message: /raise maxPoolBytes by at least 10 MiB/ })
      assert.throws(
        () => pool.allocate(16 * MiB),
        (error: unknown) => {
          assert.ok(error instanceof OutOfMemoryError)
          assert.deepEqual(error.figures, {
            requestedBytes: 16 * MiB,
            liveBytes: 10 * MiB,
            pendingBytes: 0,
            reservedBytes: 10 * MiB,
            cachedBytes: 0,
            largestFreeBytes: 0,
            maxPoolBytes: 16 * MiB,
            deviceFreeBytes: 54 * MiB,
            heldElsewhereBytes: 0,
          })
          return true
        },
      )
    })

    it('keeps leaveFreeBytes of the device free', () => {
      const device = new TestDevice()
      const pool = device.createPool({ backing, maxPoolBytes: Infinity, leaveFreeBytes: 20 * MiB })
      pool.allocate(40 * MiB)
      assert.equal(pool.tryAllocate(6 * MiB), null)
      pool.allocate(4 * MiB)
      assert.equal(device.freeBytes(), 20 * MiB)
      assert.equal(pool.tryAllocate(1), null)
      assertConsistent(pool)
    })

    it('trimTo gives idle memory back and returns its bytes', () => {
      const device = new TestDevice()
      const pool = device.createPool({ backing })
      const buffers = [8, 6, 4].map(size => pool.allocate(size * MiB))
      const small = pool.allocate(4 * KiB)
      assert.equal(pool.trimTo(0), 0)
      buffers[0].free()
      buffers[2].free()
      assert.equal(pool.stats().reservedBytes, 20 * MiB)
      assert.equal(pool.trimTo(20 * MiB), 0)
      assert.equal(pool.trimTo(64 * MiB), 0)
      assert.equal(pool.trimTo(0), 12 * MiB)
      assert.equal(device.freeBytes(), 56 * MiB)
      assertConsistent(pool)
      buffers[1].fill(1)
      small.fill(2)
      assert.deepEqual([buffers[1].readSync()[0], small.readSync()[0]], [1, 2])
      buffers[1].free()
      small.free()
      assert.ok(pool.trimTo(3 * MiB) >= 5 * MiB)
      pool.trimTo(0)
      assert.equal(pool.stats().reservedBytes, 0)
      assert.equal(device.freeBytes(), device.totalBytes)
      for (const bytes of [-1, 1.5, Number.NaN]) assert.throws(() => pool.trimTo(bytes), RangeError)
      pool.allocate(64 * MiB)
      assertConsistent(pool)
    })

    it('idle memory above the release threshold goes back when the pool settles', () => {
      const device = new TestDevice()
      const pool = device.createPool({ backing, releaseThresholdBytes: 4 * MiB })
      const buffers = [12, 10, 9].map(size => pool.allocate(size * MiB)) // too large to be cached
      pool.processDeferred()
      assert.equal(pool.stats().liveBytes, 31 * MiB)
      for (const buffer of buffers) buffer.free()
      pool.processDeferred()
      assert.ok(pool.stats().reservedBytes <= 4 * MiB)
      assert.equal(device.freeBytes(), device.totalBytes - pool.stats().reservedBytes)
      assertConsistent(pool)
    })

    it('memory above the release threshold goes back out of the caches of all streams, too', () => {
      const device = new TestDevice({ capacityBytes: 256 * MiB, progress: 'eager' })
      const pool = device.createPool({ backing, releaseThresholdBytes: 0 })
      const streams = Array.from({ length: 8 }, () => device.createStream())
      const sizes = [1 * KiB, 70 * KiB, 1 * MiB, 2 * MiB]
      for (const buffer of streams.flatMap(stream => sizes.map(bytes => pool.allocate(bytes, stream)))) buffer.free()
      assert.ok(pool.stats().cachedBytes > 0)
      for (const stream of streams) stream.synchronize()
      pool.processDeferred()
      assert.equal(pool.stats().reservedBytes, 0)
      assert.equal(device.freeBytes(), device.totalBytes)
      assertConsistent(pool)
    })

    it('caches keep their blocks when a large block is freed above the release threshold, and below it', () => {
      const pool = new TestDevice().createPool({ backing, releaseThresholdBytes: 4 * MiB })
      const large = pool.allocate(32 * MiB)
      pool.allocate(1 * KiB).free()
      const { cachedBytes } = pool.stats()
      assert.ok(cachedBytes > 0)
      large.free()
      assert.ok(pool.stats().reservedBytes <= 4 * MiB)
      pool.processDeferred()
      assert.equal(pool.stats().cachedBytes, cachedBytes)
    })

    it('a refused request leaves the reserved bytes as they were', () => {
      const device = new TestDevice()
      for (const maxPoolBytes of [16 * MiB, Infinity]) {
        const pool = device.createPool({ backing, maxPoolBytes })
        pool.allocate(4 * MiB)
        assert.equal(pool.tryAllocate(62 * MiB), null)
        assert.equal(pool.stats().reservedBytes, 4 * MiB)
        assert.equal(device.freeBytes(), 60 * MiB)
        assertConsistent(pool)
        pool.close()
      }
    })

    it('every size fills the whole capacity, which then comes back in one piece', () => {
      const pool = new TestDevice().createPool({ backing, maxPoolBytes: '100%' })
      for (const bytes of [64 * KiB, 512 * KiB, 1 * MiB, 2 * MiB, 4 * MiB, 32 * MiB, 64 * MiB]) {
        const held: DeviceBuffer[] = []
        for (let next = pool.tryAllocate(bytes); next !== null; next = pool.tryAllocate(bytes)) held.push(next)
        assert.equal(held.length, (64 * MiB) / bytes, `buffers of ${bytes} bytes`)
        assertConsistent(pool)
        for (const buffer of held) buffer.free()
        pool.allocate(64 * MiB).free()
        assertConsistent(pool)
      }
    })
  })
}

describe('limits: virtual memory', () => {
  it('many cached small blocks make room for a large block only once the pool cannot grow', () => {
    const pool = new TestDevice({ capacityBytes: 1 * GiB }).createPool()
    cacheMany(pool)
    const { cachedBytes } = pool.stats()
    pool.allocate(900 * MiB)
    assert.equal(pool.stats().cachedBytes, cachedBytes)
    pool.allocate(118 * MiB)
    assert.equal(pool.stats().cachedBytes, 0)
    assertConsistent(pool)
  })

  it('scattered free granules serve one large block without new memory', () => {
    const device = new TestDevice()
    const pool = device.createPool({ maxPoolBytes: 64 * MiB })
    const blocks = Array.from({ length: 32 }, () => pool.allocate(2 * MiB))
    for (let index = 0; index < 32; index += 2) blocks[index].free()
    const stamps = blocks.filter((_, index) => index % 2 === 1)
    for (const [index, block] of stamps.entries()) block.fill(index)
    const large = pool.allocate(32 * MiB)
    assert.equal(pool.stats().reservedBytes, 64 * MiB)
    large.fill(255)
    for (const [index, block] of stamps.entries()) {
      assert.equal(block.readSync(1 * MiB, 1)[0], index, 'stitching left the blocks in between alone')
    }
    assertConsistent(pool)
  })

  it('scattered free granules with pending work are not taken before the work has completed', () => {
    const device = new TestDevice()
    const pool = device.createPool({ maxPoolBytes: 64 * MiB })
    const stream = device.createStream()
    const blocks = Array.from({ length: 32 }, () => pool.allocate(2 * MiB, stream))
    device.hold(stream)
    for (const [index, block] of blocks.entries()) {
      block.fill(index)
      if (index % 2 === 0) block.free()
    }
    pool.allocate(32 * MiB, device.createStream())
    stream.synchronize()
    assert.equal(blocks[31].readSync(0, 1)[0], 31)
    assertConsistent(pool)
  })

  it('a request beyond the device’s memory takes none of it, not even for a moment', () => {
    const device = new TestDevice()
    const pool = device.createPool({ maxPoolBytes: Infinity })
    pool.allocate(40 * MiB).free()
    const created = device.driver.calls.get('cuMemCreate')
    assert.throws(() => pool.allocate(65 * MiB), { name: 'OutOfMemoryError', message: /the device has 64 MiB in all/ })
    assert.equal(device.driver.calls.get('cuMemCreate'), created)
    assert.equal(pool.stats().maxPoolBytes, Infinity)
    assertConsistent(pool)
  })

  it('a device with more units than 32 bits count serves blocks up to that count', () => {
    const device = new TestDevice({ capacityBytes: 1024 * GiB })
    const pool = device.createPool({ backing: 'segments', maxPoolBytes: Infinity })
    for (const bytes of [250 * GiB, 250 * GiB]) pool.allocate(bytes)
    assert.equal(pool.tryAllocate(250 * GiB), null)
    assert.equal(pool.stats().liveBytes, 500 * GiB)
    assertConsistent(pool)
  })

  it('an out of memory because of leaveFreeBytes names that option', () => {
    const pool = new TestDevice().createPool({ leaveFreeBytes: 60 * MiB })
    assert.throws(() => pool.allocate(6 * MiB), /leaveFreeBytes keeps 60 MiB of the device free: lower it/)
  })

  it('addresses are aligned to 2 MiB also where granules are smaller', () => {
    const device = new TestDevice({ granularityBytes: 64 * KiB })
    const { driver } = device
    const alignments: number[] = []
    const reserve = driver.cuMemAddressReserve.bind(driver)
    driver.cuMemAddressReserve = (bytes, alignment) => {
      alignments.push(alignment)
      return reserve(bytes, alignment)
    }
    const pool = device.createPool({ backing: 'virtual' })
    assert.equal(alignments.at(-1), 2 * MiB)
    assert.equal(pool.allocate(1, undefined, 2 * MiB).ptr % (2 * MiB), 0)
    const blocks = Array.from({ length: 16 }, () => pool.allocate(3 * MiB))
    const ranges = alignments.length
    for (let index = 0; index < 16; index += 2) blocks[index].free()
    const joined = pool.allocate(20 * MiB, undefined, 2 * MiB)
    assert.deepEqual(alignments.slice(ranges), [2 * MiB], 'the addresses of a view')
    assert.equal(joined.ptr % (2 * MiB), 0)
    assertConsistent(pool)
  })

  it('a capacity between two multiples of a granule is used up to the last whole granule', () => {
    const device = new TestDevice({ capacityBytes: 63 * MiB })
    const pool = device.createPool({ maxPoolBytes: '100%' })
    pool.allocate(62 * MiB)
    assert.equal(pool.tryAllocate(1), null)
    assertConsistent(pool)
  })
})
