// The per-thread default stream with pools that threads share. Its handle means another stream in each thread, so a
// mark that another thread records by the handle does not cover its work.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { MiB } from '../../base/bytes.js'
import { CU_STREAM_PER_THREAD } from '../../driver/constants.js'
import { signal } from '../../order/order.fixture.js'
import { Stream } from '../../order/stream.js'
import { TestDevice } from '../pool.fixture.js'

const REFUSED = {
  name: 'PoolError',
  message:
    /^\w+: the per-thread default stream is another one in each thread, .*; use a stream of device.createStream\(\)$/,
}

const POOLS = {
  'caching pool': (device: TestDevice) => device.createSharedPool().pool,
  'block pool': (device: TestDevice) => device.createSharedBlocks({ blockBytes: 1 * MiB, count: 2 }).pool,
  'host pool': (device: TestDevice) => device.createSharedHost().pool,
  arena: (device: TestDevice) => device.createSharedArena({ bytes: 4 * MiB }).pool,
}

for (const [name, makePool] of Object.entries(POOLS)) {
  describe(`${name} that threads share`, () => {
    it('refuses the per-thread default stream, and keeps working', () => {
      const device = new TestDevice()
      const pool = makePool(device)
      const perThread = new Stream(device.clocks, CU_STREAM_PER_THREAD, false)
      const buffer = pool.allocate(1 * MiB, device.defaultStream)
      const calls = [
        () => pool.allocate(1000, perThread),
        () => pool.tryAllocate(1000, perThread),
        () => buffer.recordUse(perThread),
        () => buffer.free(perThread),
      ]
      for (const call of name === 'host pool' ? calls.slice(0, 3) : calls) assert.throws(call, REFUSED)
      assert.equal(pool.stats().liveBuffers, 1)
      buffer.free()
      pool.close()
      assert.throws(() => pool.allocate(1000, perThread), { name: 'PoolError', message: /the pool is closed/ })
    })
  })
}

describe('the per-thread default stream', () => {
  it('is refused though the thread caches a block for an earlier stream of its slot', () => {
    const device = new TestDevice()
    const { pool } = device.createSharedPool()
    const before = device.createStream()
    pool.allocate(1000, before).free()
    before.close()
    device.clocks.synchronize()
    const perThread = new Stream(device.clocks, CU_STREAM_PER_THREAD, false)
    assert.equal(perThread.slot, before.lastSlot)
    assert.throws(() => pool.allocate(1000, perThread), REFUSED)
  })

  it('does not cover the uses of an earlier stream of its slot', () => {
    const device = new TestDevice()
    const { pool } = device.createSharedPool({ maxPoolBytes: 2 * MiB })
    const [before, other] = [device.createStream(), device.createStream()]
    const buffer = pool.allocate(2 * MiB, before)
    const { ptr } = buffer
    before.close()
    const release = device.hold(device.defaultStream)
    buffer.recordUse(device.defaultStream)
    buffer.free()
    device.clocks.watcher.poll(before.lastSlot)
    const perThread = new Stream(device.clocks, CU_STREAM_PER_THREAD, false)
    assert.equal(perThread.slot, before.lastSlot)
    signal(device.defaultStream, perThread)
    assert.equal(pool.allocate(2 * MiB, other).ptr, ptr)
    assert.equal(other.query(), false, 'it waits for the use')
    release()
    assert.equal(other.query(), true)
    pool.check()
  })

  it('works with pools of its thread', () => {
    const device = new TestDevice()
    const perThread = new Stream(device.clocks, CU_STREAM_PER_THREAD, false)
    const pool = device.createPool({ crossStreamReuse: 'ordered' })
    const release = device.hold(perThread)
    const buffer = pool.allocate(2 * MiB, perThread)
    const { ptr } = buffer
    buffer.free()
    assert.notEqual(pool.allocate(2 * MiB).ptr, ptr)
    release()
    pool.processDeferred()
    assert.equal(pool.allocate(2 * MiB).ptr, ptr)
  })
})
