// The promises of a shared pool, in one thread that plays several, so that the test chooses each step. With threads
// of their own: test/shared-pool-threads.test.ts.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { KiB, MiB } from '../../base/bytes.js'
import { addServed } from '../../driver/serve-waiting.js'
import { loadKoffi } from '../../libraries/koffi.js'
import { growthStep, leastPiece, policy } from '../policy.js'
import { TestDevice } from '../pool.fixture.js'
import { poolSuite } from '../pool.suite.js'
import { limited } from '../wrappers/limited.js'

for (const backing of ['virtual', 'segments', 'registrable'] as const) {
  poolSuite(`shared by threads, ${backing}`, () => {
    const device = new TestDevice()
    const { pool } = device.createSharedPool({ backing })
    return { device, pool, check: () => pool.check(), close: () => pool.close() }
  })
}

describe('a pool that threads share', () => {
  it('reuses a freed block', () => {
    const { pool } = new TestDevice().createSharedPool()
    const first = pool.allocate(1 * MiB)
    const { ptr } = first
    first.free()
    assert.equal(pool.allocate(1 * MiB).ptr, ptr)
    pool.check()
  })

  it('a peak that the counters had is kept', () => {
    const { pool } = new TestDevice().createSharedPool()
    const buffers = [1, 2, 3].map(() => pool.allocate(1 * MiB))
    assert.equal(pool.stats().peakLiveBytes, 3 * MiB)
    for (const buffer of buffers) buffer.free()
    assert.equal(pool.stats().peakLiveBytes, 3 * MiB)
  })

  it('waits for a stream whose first block comes back during a driver call', () => {
    const device = new TestDevice()
    const { driver } = device
    const isCapturing = driver.cuStreamIsCapturing.bind(driver)
    let meanwhile = () => {}
    driver.cuStreamIsCapturing = handle => {
      meanwhile()
      meanwhile = () => {}
      return isCapturing(handle)
    }
    const { pool, attach } = device.createSharedPool({ maxPoolBytes: 32 * MiB })
    const other = attach()
    const [own, late, asking] = [0, 1, 2].map(() => device.createStream())
    const held = []
    for (let buffer = pool.tryAllocate(4 * MiB, own); buffer !== null; buffer = pool.tryAllocate(4 * MiB, own))
      held.push(buffer)
    assert.equal(pool.tryAllocate(8 * MiB, late), null)
    const freed = held.pop()!
    const { ptr } = freed
    meanwhile = () => {
      device.hold(late)
      freed.free(late)
    }
    assert.equal(other.tryAllocate(4 * MiB, asking)?.ptr, ptr)
    assert.equal(pool.stats().insertedWaits, 1)
  })

  it('aligns its records to pages', { skip: process.platform !== 'linux' }, () => {
    const { pool } = new TestDevice().createSharedPool()
    const { buffer, byteOffset } = pool['state'].records.words
    assert.equal(Number(loadKoffi().address(new Uint8Array(buffer, byteOffset))) % 4096, 0)
  })

  it('answers other threads while it waits for the lock, since the owner may wait for them', () => {
    const { pool, attach } = new TestDevice().createSharedPool()
    pool.reserve(8 * MiB)
    const state = pool['state']
    const other = attach()
    let calls = 0
    const drain = () => {
      if (calls++ === 0) state.release()
      return 1
    }
    state.acquire()
    addServed({ drain })
    assert.equal(other.allocate(2 * MiB).byteLength, 2 * MiB)
    pool.check()
  })

  it('moves a block that another thread used to a record of its own', () => {
    const { pool, attach } = new TestDevice().createSharedPool()
    const other = attach()
    const { records } = pool['state']
    for (const each of [pool, other, pool, other]) {
      assert.equal(records.ownerOf(each.allocate(2 * MiB).record), each.thread)
    }
    pool.check()
  })

  it('splits a larger cached block without a request to the pool server', () => {
    const { pool } = new TestDevice().createSharedPool({ maxPoolBytes: 256 * MiB })
    const wholes = [pool.allocate(64 * KiB)]
    while (wholes.length < policy.slabBytes / (64 * KiB)) wholes.push(pool.allocate(64 * KiB))
    const addresses = wholes.map(({ ptr }) => ptr)
    for (const whole of wholes) whole.free()
    assert.equal(pool.stats().cachedBytes, policy.slabBytes)
    const { rings } = pool['state'].channel.doorbell
    const quarters = wholes.flatMap(() => [0, 1, 2, 3].map(() => pool.allocate(16 * KiB)))
    assert.equal(pool['state'].channel.doorbell.rings, rings)
    assert.deepEqual(
      quarters.map(({ ptr }) => ptr).sort((one, other) => one - other),
      addresses.flatMap(ptr => [0, 1, 2, 3].map(index => ptr + index * 16 * KiB)).sort((one, other) => one - other),
    )
    pool.check()
  })

  for (const bytes of [4096, 100 * 1024]) {
    it(`serves bursts of 64 blocks of ${bytes} bytes from the thread cache`, () => {
      const { pool } = new TestDevice().createSharedPool({ maxPoolBytes: 128 * MiB })
      const burst = () => {
        const held = Array.from({ length: 64 }, () => pool.allocate(bytes))
        for (const buffer of held) buffer.free()
      }
      burst()
      const { cacheMisses } = pool.stats()
      burst()
      assert.equal(pool.stats().cacheMisses, cacheMisses)
      pool.check()
    })
  }

  it('finds a block that a thread moved between streams and freed', () => {
    const device = new TestDevice()
    const { pool, attach } = device.createSharedPool({ maxPoolBytes: 32 * MiB })
    const other = attach()
    const [first, second] = [device.createStream(), device.createStream()]
    const buffer = pool.allocate(1000, first)
    const { ptr } = buffer
    buffer.free()
    device.clocks.watcher.mark(first.slot)
    first.synchronize()
    const again = pool.allocate(1000, second) // a block that the thread caches for the first stream
    assert.equal(again.ptr, ptr)
    again.free()
    pool.check()
    assert.notEqual(other.tryAllocate(32 * MiB), null)
    pool.check()
  })

  it('keeps working when the pool server takes cached blocks away', () => {
    const device = new TestDevice()
    const { pool, attach } = device.createSharedPool({ maxPoolBytes: 32 * MiB })
    const other = attach()
    const take = (count: number, bytes: number) => Array.from({ length: count }, () => pool.allocate(bytes))
    for (let round = 0; round < 4; round++) {
      for (const buffer of [...take(70, 3000), ...take(3, 1 * MiB)]) buffer.free()
      other.allocate(32 * MiB).free()
      pool.check()
      const held = [...take(round + 1, 3000), ...take(round, 1 * MiB)]
      assert.equal(new Set(held.map(({ ptr }) => ptr)).size, held.length)
      for (const buffer of held) buffer.free()
      pool.check()
      assert.ok(pool.stats().cachedBytes <= 32 * MiB)
    }
    pool.trimTo(0)
    assert.equal(pool.stats().reservedBytes, 0)
  })

  it('gives memory above the release threshold back out of the caches of all threads', () => {
    const { pool, attach } = new TestDevice().createSharedPool({ releaseThresholdBytes: 0 })
    for (const user of [pool, attach()]) for (const bytes of [3000, 1 * MiB]) user.allocate(bytes).free()
    assert.ok(pool.stats().cachedBytes > 0)
    pool.processDeferred()
    assert.equal(pool.stats().reservedBytes, 0)
    pool.check()
  })

  it('keeps a large block cached when it makes no room for a small one', () => {
    const { pool } = new TestDevice({ capacityBytes: 1024 * MiB }).createSharedPool()
    pool.allocate(2 * MiB).free()
    assert.equal(pool.stats().cachedBytes, 2 * MiB)
    pool.allocate(1000)
    assert.equal(pool.stats().cachedBytes, 2 * MiB)
    pool.check()
  })

  it('throws at its limit of driver allocations and loses none', () => {
    const device = new TestDevice()
    const { pool } = device.createSharedPool({ backing: 'segments' }, { ranges: 4 })
    const held = Array.from({ length: 4 }, () => pool.allocate(5 * MiB))
    const { reservedBytes } = pool.stats()
    const full = { name: 'PoolError', message: /allocate: the pool has 4 driver allocations, which is the limit/ }
    assert.throws(() => pool.tryAllocate(5 * MiB), full)
    assert.deepEqual([pool.stats().reservedBytes, pool.stats().liveBuffers], [reservedBytes, 4])
    pool.check()
    held.pop()!.free()
    device.clocks.synchronize()
    held.push(pool.allocate(7 * MiB)) // replaces the idle driver allocation
    for (const buffer of held) buffer.free()
    pool.check()
    pool.trimTo(0)
    assert.equal(pool.stats().reservedBytes, 0)
  })

  it('counts each block once while other blocks come and go', () => {
    const { pool, attach } = new TestDevice().createSharedPool()
    const other = attach()
    const held = Array.from({ length: 8 }, () => other.allocate(1000))
    for (const buffer of held) buffer.free()
    const { records } = pool['state']
    const looksLive = records.isLive.bind(records)
    const deeds: (() => unknown)[] = [
      () => pool.allocate(1000).free(),
      () => pool.trimTo(0),
      () => held.fill(other.allocate(3 * MiB)),
      () => pool.adopt(held[0].transfer()).free(),
    ]
    for (const deed of deeds) {
      let looks = 0
      // Cached blocks, which the pool server takes away during a sum.
      for (const buffer of Array.from({ length: 8 }, () => other.allocate(1000))) buffer.free()
      records.isLive = record => {
        if (++looks === 3) {
          delete (records as Partial<typeof records>).isLive
          deed()
        }
        return looksLive(record)
      }
      const { liveBuffers, liveBytes, requestedBytes, cachedBytes, frees } = pool.stats()
      assert.equal(looks, 3)
      for (const few of [liveBuffers, liveBytes / (4 * MiB), requestedBytes / (4 * MiB)])
        assert.ok(few >= 0 && few <= 1)
      assert.ok(cachedBytes >= 0 && frees >= 8)
    }
    const { liveBuffers, liveBytes, requestedBytes } = pool.stats()
    assert.deepEqual([liveBuffers, liveBytes, requestedBytes], [0, 0, 0])
    pool.check()
  })

  it('frees blocks of a closed stream after another thread wrote an older completion', () => {
    const device = new TestDevice()
    const { pool } = device.createSharedPool({ maxPoolBytes: 32 * MiB })
    const stream = device.createStream()
    const { slot } = stream
    const held = [pool.allocate(4 * MiB, stream), pool.allocate(1000), pool.allocate(1000, stream)]
    for (const buffer of held) buffer.free() // the small ones, which share a granule, stay cached
    stream.close()
    pool.processDeferred()
    device.clocks.completed[slot] = 0
    pool.trimTo(0)
    assert.deepEqual([pool.stats().pendingBytes, pool.stats().reservedBytes], [0, 0])
    pool.check()
  })

  it('refuses threads that attach while it closes', () => {
    const device = new TestDevice()
    const { pool, attach } = device.createSharedPool()
    const { driver } = device
    const synchronize = driver.cuCtxSynchronize.bind(driver)
    let attempts = 0
    driver.cuCtxSynchronize = () => {
      attempts++
      assert.throws(attach, { name: 'PoolError', message: /attachPool: the pool is closed; create another/ })
      synchronize()
    }
    pool.close()
    assert.equal(attempts, 1)
    assert.throws(attach, { name: 'PoolError', message: /attachPool: the pool is closed/ })
  })

  it('refuses buffers after it was closed, adopted ones too', () => {
    const { pool, attach } = new TestDevice().createSharedPool()
    const other = attach()
    const adopted = pool.adopt(other.allocate(1000).transfer())
    other.close()
    assert.equal(pool.close().heldBuffers, 1)
    assert.throws(() => adopted.free(), { name: 'PoolError', message: /the buffer's pool is closed/ })
  })

  it('hands out the requested block when the driver refuses further memory', () => {
    const device = new TestDevice({ granularityBytes: 64 * KiB })
    const { pool } = device.createSharedPool({ backing: 'virtual', maxPoolBytes: 32 * MiB })
    const pieces = growthStep(32 * MiB) / leastPiece(32 * MiB, 0) // of the growth for the request
    const before = device.calls('cuMemCreate')
    device.driver.failCall({ call: 'cuMemCreate', nth: pieces + 1, code: 999 })
    pool.allocate(1000).free()
    assert.equal(device.calls('cuMemCreate') - before, pieces + 1, 'memory ahead was refused')
    assert.equal(pool.stats().liveBuffers, 0)
    pool.check()
    assert.deepEqual(pool.close(), { heldBuffers: 0, heldBytes: 0 })
  })

  it('transfers only buffers that it handed out itself', () => {
    const device = new TestDevice()
    const { pool } = device.createSharedPool()
    const arena = device.createSharedArena({ bytes: 1 * MiB }).pool
    const wrapped = limited(pool, 1 * MiB).allocate(1000)
    for (const kind of [pool, arena]) {
      for (const bad of [wrapped, device.createPool().allocate(1)]) {
        assert.throws(() => kind.transfer(bad), { name: 'PoolError', message: /a wrapper; use buffer.transfer\(\)/ })
      }
      assert.throws(() => kind.transfer(5 as never), { name: 'TypeError', message: /^transfer: buffer must be/ })
      kind.adopt(kind.transfer(kind.allocate(1000))).free()
      const array = kind.upload(Uint8Array.of(1, 2, 3))
      assert.throws(() => kind.transfer(array.subarray(1)), { name: 'PoolError', message: /^transfer: this is a view/ })
      using adopted = kind.adopt(kind.transfer(array))
      assert.deepEqual([array.freed, [...adopted.readSync()]], [true, [1, 2, 3]])
    }
    wrapped.free()
    pool.check()
  })
})
