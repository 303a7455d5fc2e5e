// The caching pool's own verbs: what it says of itself, rounding, and what its fast path costs.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { GiB, KiB, MiB } from '../../base/bytes.js'
import { PoolError } from '../../base/errors.js'
import { growthStep } from '../policy.js'
import { assertConsistent, TestDevice } from '../pool.fixture.js'

for (const backing of ['virtual', 'segments', 'registrable'] as const) {
  describe(`caching pool: ${backing}`, () => {
    it('serves every alignment up to 2 MiB', () => {
      const pool = new TestDevice().createPool({ backing })
      for (const bytes of [1, 4 * KiB, 1 * MiB, 3 * MiB]) {
        for (let alignment = 1; alignment <= 2 * MiB; alignment *= 2) {
          using buffer = pool.allocate(bytes, undefined, alignment)
          assert.equal(buffer.ptr % alignment, 0, `${bytes} bytes aligned to ${alignment}`)
          buffer.fill(1)
          using _between = pool.allocate(300)
        }
      }
      assertConsistent(pool)
      const held = Array.from({ length: 16 }, () => pool.allocate(300, undefined, 1 * MiB))
      for (const buffer of held) assert.equal(buffer.ptr % (1 * MiB), 0)
      for (const buffer of held) buffer.free()
      const most = pool.allocate(60 * MiB, undefined, 2 * MiB)
      assert.equal(most.ptr % (2 * MiB), 0)
      pool.trimTo(0) // the excess that the search for an aligned place took
      assertConsistent(pool)
    })

    it('live() lists every live buffer', () => {
      const device = new TestDevice()
      const pool = device.createPool({ backing })
      const stream = device.createStream()
      const [first, second] = [pool.allocate(1000), pool.allocate(3 * MiB, stream)]
      const byPtr = () => pool.live().sort((a, b) => a.byteLength - b.byteLength)
      assert.deepEqual(byPtr(), [
        { ptr: first.ptr, byteLength: 1000, blockBytes: 1024, stream: 0, label: '' },
        { ptr: second.ptr, byteLength: 3 * MiB, blockBytes: 3 * MiB, stream: stream.handle, label: '' },
      ])
      stream.close()
      assert.equal(byPtr()[1].stream, null)
      first.free()
      assert.deepEqual(byPtr(), [
        { ptr: second.ptr, byteLength: 3 * MiB, blockBytes: 3 * MiB, stream: null, label: '' },
      ])
    })

    it('a snapshot is plain JSON that agrees with the counters', () => {
      const device = new TestDevice()
      const pool = device.createPool({ backing })
      const held = pool.allocate(1000)
      const pending = pool.allocate(3 * MiB)
      device.hold(device.defaultStream)
      pending.recordUse(device.defaultStream)
      pending.free()
      pool.allocate(2000).free()
      const snapshot = pool.snapshot()
      assert.deepEqual(JSON.parse(JSON.stringify({ ...snapshot, stats: null })), { ...snapshot, stats: null })
      assert.deepEqual(snapshot.stats, pool.stats())
      assert.deepEqual([snapshot.version, snapshot.backing], [2, backing])
      const blocks = snapshot.ranges.flatMap(range => range.blocks)
      const states = (state: string) => blocks.filter(block => block.state === state)
      assert.deepEqual(states('live'), [{ ptr: held.ptr, bytes: 1024, state: 'live', requestedBytes: 1000, stream: 0 }])
      assert.deepEqual(states('cached').length, 1)
      assert.deepEqual(states('pending').length, 1)
      assert.equal(snapshot.largestFreeBytes, Math.max(...states('free').map(block => block.bytes)))
      assertConsistent(pool)
    })

    it('peaks stay until they are reset', () => {
      const device = new TestDevice()
      const pool = device.createPool({ backing })
      const held = pool.allocate(1000)
      pool.allocate(8 * MiB).free()
      device.defaultStream.synchronize()
      pool.trimTo(0)
      const before = pool.stats()
      assert.deepEqual([before.peakLiveBytes, before.peakReservedBytes], [8 * MiB + 1024, 10 * MiB])
      pool.resetPeaks()
      const { peakLiveBytes, peakReservedBytes } = pool.stats()
      assert.deepEqual([peakLiveBytes, peakReservedBytes], [1024, 2 * MiB])
      held.free()
      assertConsistent(pool)
    })

    it('processDeferred counts the settled blocks and does not wait', () => {
      const device = new TestDevice()
      const pool = device.createPool({ backing })
      const [a, b] = [device.createStream(), device.createStream()]
      assert.equal(pool.processDeferred(), 0)
      const release = device.hold(a)
      const buffers = Array.from({ length: 4 }, () => pool.allocate(5 * MiB, b))
      for (const buffer of buffers) buffer.recordUse(a)
      for (const buffer of buffers) buffer.free()
      b.synchronize()
      assert.equal(pool.processDeferred(), 0)
      assert.equal(pool.stats().pendingBytes, 20 * MiB)
      release()
      assert.equal(pool.processDeferred(), 4)
      assert.equal(pool.processDeferred(), 0)
      assert.equal(pool.stats().pendingBytes, 0)
      assertConsistent(pool)
    })

    it('close waits for pending work, gives all memory back, and reports live buffers', () => {
      const device = new TestDevice()
      const pool = device.createPool({ backing })
      const stream = device.createStream()
      const held = [pool.allocate(1000, stream), pool.allocate(3 * MiB)]
      pool.allocate(5 * MiB, stream).free()
      device.hold(stream)
      held[0].fill(1)
      assert.deepEqual(pool.close(), { heldBuffers: 2, heldBytes: 1000 + 3 * MiB })
      assert.deepEqual(pool.close(), { heldBuffers: 0, heldBytes: 0 })
      assert.equal(device.freeBytes(), device.totalBytes)
      for (const buffer of held) assert.equal(buffer.freed, true)
      const refused = { name: 'PoolError', message: /the pool is closed/ }
      for (const use of [
        () => pool.processDeferred(),
        () => pool.trimTo(0),
        () => pool.allocate(1),
        () => pool.deallocate(4096),
        () => pool.check(),
        () => pool.snapshot(),
      ]) {
        assert.throws(use, refused)
      }
      assert.equal(pool.stats().largestFreeBytes, 0)
      assert.deepEqual(pool.live(), [])
      const { liveBytes, liveBuffers, requestedBytes, reservedBytes, cachedBytes, pendingBytes } = pool.stats()
      assert.deepEqual(
        { liveBytes, liveBuffers, requestedBytes, reservedBytes, cachedBytes, pendingBytes },
        { liveBytes: 0, liveBuffers: 0, requestedBytes: 0, reservedBytes: 0, cachedBytes: 0, pendingBytes: 0 },
      )
    })

    it('a cached allocation and its free make no driver call', () => {
      const device = new TestDevice()
      const pool = device.createPool({ backing })
      const stream = device.createStream()
      for (const bytes of [1, 300, 70 * KiB]) pool.allocate(bytes, stream).free()
      const before = new Map(device.driver.calls)
      for (let round = 0; round < 100; round++)
        for (const bytes of [1, 300, 70 * KiB]) pool.allocate(bytes, stream).free()
      assert.deepEqual(new Map(device.driver.calls), before)
      assert.equal(pool.stats().cacheMisses, 3)
      assert.equal(pool.cacheMisses, 3)
    })

    it('several pools on one device share only its memory', () => {
      const device = new TestDevice()
      const pools = [1, 2, 3].map(() => device.createPool({ backing, maxPoolBytes: Infinity }))
      const buffers = pools.map(pool => pool.allocate(16 * MiB))
      for (const [index, buffer] of buffers.entries()) buffer.fill(index)
      for (const [index, buffer] of buffers.entries()) assert.equal(buffer.readSync(5, 1)[0], index)
      assert.equal(pools[0].tryAllocate(32 * MiB), null)
      pools[1].close()
      pools[0].allocate(32 * MiB)
      for (const pool of [pools[0], pools[2]]) assertConsistent(pool)
    })
  })
}

it('deallocate finds a block in a view', () => {
  const pool = new TestDevice().createPool({ backing: 'virtual', maxPoolBytes: 64 * MiB })
  const blocks = Array.from({ length: 32 }, () => pool.allocate(2 * MiB))
  for (const [index, block] of blocks.entries()) if (index % 2 === 0) block.free()
  const { ptr } = pool.allocate(32 * MiB)
  const parts = pool
    .snapshot()
    .ranges.flatMap(range => range.blocks)
    .filter(block => block.state === 'part')
  assert.equal(
    parts.reduce((sum, part) => sum + part.bytes, 0),
    32 * MiB,
  )
  assert.throws(() => pool.deallocate(parts[0].ptr), PoolError, 'a part is no block')
  assert.throws(() => pool.deallocate(ptr + 2 * MiB), PoolError)
  pool.deallocate(ptr)
  assert.throws(() => pool.deallocate(ptr), PoolError)
  assert.equal(pool.stats().liveBytes, 32 * MiB)
  assertConsistent(pool)
})

describe('caching pool: sizes', () => {
  it('rounds to multiples of minBlockBytes', () => {
    for (const minBlockBytes of [256, 512, 4096, 2 * MiB]) {
      const pool = new TestDevice().createPool({ minBlockBytes })
      for (const bytes of [1, 255, 256, 257, 4096, 4097, 3 * MiB - 1]) {
        using _buffer = pool.allocate(bytes)
        assert.equal(pool.stats().liveBytes, Math.ceil(bytes / minBlockBytes) * minBlockBytes)
      }
      assertConsistent(pool)
    }
  })

  it('rounds to powers of two from 512 B to 2 GiB, exactly above', () => {
    const device = new TestDevice({ capacityBytes: 8 * GiB })
    const pool = device.createPool({ sizeClasses: 'powerOfTwo', maxPoolBytes: Infinity })
    const rounded: readonly [bytes: number, block: number][] = [
      [1, 512],
      [512, 512],
      [513, 1024],
      [1025, 2048],
      [3 * MiB, 4 * MiB],
      [4 * MiB, 4 * MiB],
      [1 * GiB + 1, 2 * GiB],
      [2 * GiB, 2 * GiB],
      [2 * GiB + 1, 2 * GiB + 256],
      [3 * GiB, 3 * GiB],
    ]
    for (const [bytes, block] of rounded) {
      using _buffer = pool.allocate(bytes)
      assert.equal(pool.stats().liveBytes, block, `${bytes} bytes`)
    }
    assertConsistent(pool)
  })

  it('sizes around 2^30 and 2^31 bytes, above the fast path, are exact', () => {
    const device = new TestDevice({ capacityBytes: 16 * GiB })
    const pool = device.createPool({ maxPoolBytes: Infinity })
    for (const bytes of [2 ** 30 - 1, 2 ** 30, 2 ** 30 + 1, 2 ** 31 - 1, 2 ** 31, 2 ** 31 + 257, 2 ** 32 + 1]) {
      using buffer = pool.allocate(bytes)
      assert.equal(buffer.byteLength, bytes)
      assert.equal(pool.stats().liveBytes, Math.ceil(bytes / 256) * 256)
    }
    assertConsistent(pool)
  })

  it('a cached block below 1 MiB serves sizes that waste at most an eighth of it', () => {
    const device = new TestDevice({ capacityBytes: 1 * GiB })
    for (const bytes of [64 * KiB, 900 * KiB]) {
      const pool = device.createPool({ maxPoolBytes: '100%' })
      const first = pool.allocate(bytes)
      const { ptr } = first
      first.free()
      const served = pool.allocate(bytes - 300)
      assert.deepEqual([served.ptr, served.byteLength], [ptr, bytes - 300])
      assert.equal(pool.stats().cacheMisses, 1)
      served.free()
      pool.allocate(Math.floor(bytes * 0.85))
      assert.ok(pool.stats().cacheMisses === 2 && pool.stats().liveBytes < bytes * 0.91, `${bytes} bytes`)
      assertConsistent(pool)
      pool.close()
    }
  })

  it('a cached block from 1 MiB on serves exactly its size', () => {
    const device = new TestDevice({ capacityBytes: 1 * GiB })
    for (const bytes of [1 * MiB + 256, 3 * MiB, 8 * MiB]) {
      const pool = device.createPool({ maxPoolBytes: '100%' })
      pool.allocate(bytes).free()
      assert.equal(pool.stats().cachedBytes, bytes)
      pool.allocate(bytes - 255).free()
      assert.equal(pool.stats().cacheMisses, 1)
      pool.allocate(bytes + 256)
      pool.allocate(bytes - 256)
      assert.deepEqual([pool.stats().cacheMisses, pool.stats().liveBytes], [3, 2 * bytes], `${bytes} bytes`)
      assertConsistent(pool)
      pool.close()
    }
  })

  it('memory is mapped in granules of the size that the device reports, and in whole steps', () => {
    for (const granularityBytes of [64 * KiB, 512 * KiB, 8 * MiB]) {
      const device = new TestDevice({ granularityBytes })
      const pool = device.createPool({ maxPoolBytes: '100%' })
      pool.allocate(1)
      assert.equal(pool.stats().reservedBytes, Math.max(granularityBytes, growthStep(device.totalBytes)))
      pool.allocate(7 * MiB)
      assert.equal(pool.stats().reservedBytes % granularityBytes, 0)
      assertConsistent(pool)
      pool.close()
      device.createPool({ maxPoolBytes: '100%' }).allocate(64 * MiB)
    }
  })
})
