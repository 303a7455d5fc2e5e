// Host pools that threads share, with all threads' ends and the pool server in one thread: the differences from
// host-pool.test.ts. host-order.test.ts tests when memory is handed out again; test/shared-kinds.test.ts uses real
// threads.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { KiB, MiB } from '../../base/bytes.js'
import { PoolError } from '../../base/errors.js'
import { CU_STREAM_PER_THREAD } from '../../driver/constants.js'
import { Stream } from '../../order/stream.js'
import { TestDevice } from '../pool.fixture.js'

describe('a host pool that threads share', () => {
  it('every thread sees the same memory, also in segments pinned later', () => {
    const device = new TestDevice()
    const { pool, attach } = device.createSharedHost({ maxPoolBytes: 8 * MiB, segmentBytes: 1 * MiB })
    const other = attach()
    for (let round = 0; round < 4; round++) {
      const buffer = pool.allocate(900 * KiB)
      assert.ok(buffer.bytes.buffer instanceof SharedArrayBuffer)
      buffer.bytes.fill(round + 1)
      const adopted = other.adopt(structuredClone(buffer.transfer()))
      assert.equal(buffer.freed, true)
      assert.throws(() => buffer.bytes.length + buffer.byteLength, PoolError)
      assert.throws(() => buffer.free(), { name: 'PoolError', message: /handed to another thread/ })
      assert.deepEqual([adopted.byteLength, adopted.bytes[0], adopted.bytes.at(-1)], [900 * KiB, round + 1, round + 1])
      assert.equal(adopted.pool, other)
    }
    assert.equal(other.stats().liveBuffers, 4)
    assert.deepEqual(
      pool.threads().map(({ liveBuffers }) => liveBuffers),
      [0, 0, 4],
    )
    assert.deepEqual(other.close(), { heldBuffers: 4, heldBytes: 4 * 900 * KiB })
    pool.check()
    assert.deepEqual(pool.close(), { heldBuffers: 0, heldBytes: 0 })
    assert.equal(device.driver.usedHostBytes(), 0)
  })

  it('work that one thread submitted holds the memory back for all threads', () => {
    const device = new TestDevice()
    const { pool, attach } = device.createSharedHost({ maxPoolBytes: 1 * MiB, segmentBytes: 1 * MiB })
    const other = attach()
    const target = device.createPool().allocate(1 * MiB, device.createStream())
    const host = pool.allocate(1 * MiB)
    host.bytes.fill(7)
    device.hold(target.stream)
    host.copyTo(target)
    const adopted = other.adopt(host.transfer())
    adopted.free()
    assert.equal(target.stream.query(), false)
    const next = other.allocate(1 * MiB) // waits on the host, and the stream goes on
    next.bytes.fill(9)
    assert.equal(target.readSync(1 * MiB - 1)[0], 7)
    other.check()
  })

  it('device addresses are the same in every thread', () => {
    const device = new TestDevice()
    const { pool, attach } = device.createSharedHost({ mapped: true })
    const buffer = pool.allocate(100)
    const { devicePtr } = buffer
    assert.equal(attach().adopt(buffer.transfer()).devicePtr, devicePtr)
    assert.throws(() => device.createSharedHost().pool.allocate(1).devicePtr, { name: 'PoolError', message: /mapped/ })
  })

  it('a thread forgets memory that was unpinned', () => {
    const device = new TestDevice()
    const { pool, attach } = device.createSharedHost({ segmentBytes: 1 * MiB })
    const other = attach()
    const [first, second] = [pool.allocate(1 * MiB), other.allocate(1 * MiB)]
    second.bytes.fill(1)
    first.bytes.fill(1)
    first.free()
    second.free()
    assert.equal(pool.trimTo(0), 2 * MiB)
    assert.equal(device.driver.usedHostBytes(), 0)
    const again = other.allocate(1 * MiB)
    again.bytes.fill(2)
    assert.equal(pool.adopt(again.transfer()).bytes[5], 2)
    pool.check()
  })

  it('the per-thread default stream is refused in the name of the call', () => {
    const device = new TestDevice()
    const { pool } = device.createSharedHost()
    const stream = new Stream(device.clocks, CU_STREAM_PER_THREAD, false)
    const [host, target] = [pool.allocate(100), device.createPool().allocate(100, stream)]
    for (const [name, call] of Object.entries({
      copyTo: () => host.copyTo(target),
      copyFrom: () => host.copyFrom(target),
      recordUse: () => host.recordUse(stream),
      free: () => host.free(stream),
      allocate: () => pool.allocate(100, stream),
    })) {
      assert.throws(call, { name: 'PoolError', message: new RegExp(`^${name}: the per-thread default stream`) })
    }
    host.free()
  })

  it('bad arguments are refused by name', () => {
    const device = new TestDevice()
    const { pool } = device.createSharedHost()
    for (const bad of [0, -1, 1.5, Number.NaN])
      assert.throws(() => pool.allocate(bad), { name: 'RangeError', message: /bytes/ })
    for (const bad of [null, 5, {}]) {
      assert.throws(() => pool.adopt(bad as never), { name: 'TypeError', message: /adopt: transferred must come from/ })
    }
    const stream = device.createStream()
    const buffer = pool.allocate(1)
    stream.beginCapture()
    assert.throws(() => buffer.recordUse(stream), {
      name: 'PoolError',
      message: /recordUse: the stream is being captured/,
    })
    assert.throws(() => buffer.free(stream), { name: 'PoolError', message: /the stream is being captured/ })
    assert.equal(buffer.freed, false)
    assert.throws(() => device.createHostPool().allocate(1).transfer(), {
      name: 'PoolError',
      message: /transfer: the pool is one of this thread; make it with createSharedPool/,
    })
    assert.throws(() => pool.allocate(2 * 1024 * MiB), { name: 'OutOfMemoryError', message: /pinned host memory/ })
    assert.throws(() => pool.close(), { name: 'PoolError', message: /close: a stream is being captured/ })
    stream.endCapture().close()
    pool.close()
    for (const use of [() => pool.allocate(1), () => pool.share(), () => buffer.bytes]) {
      assert.throws(use, { name: 'PoolError', message: /pool is closed/ })
    }
  })
})
