// Streams that wait for other streams: when the pool inserts a wait, for which uses, and what a refused wait leaves.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { MiB } from '../../../base/bytes.js'
import { CudaError } from '../../../base/errors.js'
import { assertConsistent } from '../../pool.fixture.js'
import { freePending, orderCalls, setUp } from './cross-stream.fixture.js'

for (const backing of ['virtual', 'segments'] as const) {
  describe(`waits for memory of other streams: ${backing}`, () => {
    it('before out of memory the stream waits for another stream, and the host does not', () => {
      const { device, pool, a, b } = setUp({ backing })
      const ptr = freePending(device, pool.allocate(64 * MiB, a))
      const calls = orderCalls(device, () => assert.equal(pool.allocate(64 * MiB, b).ptr, ptr))
      assert.equal(calls['cuStreamWaitEvent'], 1)
      assert.equal(calls['cuEventSynchronize'], undefined)
      assert.equal(pool.stats().insertedWaits, 1)
      assert.equal(b.query(), false, 'b waits for the held work of a')
      assertConsistent(pool)
    })

    it("'ordered' waits on the host instead", () => {
      const { device, pool, a, b } = setUp({ backing, crossStreamReuse: 'ordered' })
      freePending(device, pool.allocate(64 * MiB, a))
      const calls = orderCalls(device, () => pool.allocate(64 * MiB, b))
      assert.deepEqual([calls['cuStreamWaitEvent'], calls['cuEventSynchronize']], [undefined, 1])
      assert.equal(pool.stats().insertedWaits, 0)
    })

    it("'wait-before-grow' takes no new memory while the stream can wait for freed memory", () => {
      const { device, pool, a, b } = setUp({ backing, crossStreamReuse: 'wait-before-grow' })
      const ptr = freePending(device, pool.allocate(8 * MiB, a))
      const { reservedBytes } = pool.stats()
      assert.equal(pool.allocate(8 * MiB, b).ptr, ptr)
      assert.deepEqual([pool.stats().reservedBytes, pool.stats().insertedWaits], [reservedBytes, 1])
    })

    it('adjacent blocks of several streams, one of them closed, serve as one block', () => {
      const { device, pool, a, b, c } = setUp({ backing })
      const whole = pool.allocate(64 * MiB, a)
      const { ptr } = whole
      whole.free()
      a.synchronize()
      pool.processDeferred()
      const parts = [a, b, a, c].map(stream => pool.allocate(16 * MiB, stream))
      for (const part of parts) freePending(device, part)
      c.close()
      assertConsistent(pool)
      const again = pool.allocate(64 * MiB, b)
      assert.equal(again.ptr, ptr)
      assert.equal(pool.stats().insertedWaits, 2)
      assertConsistent(pool)
      again.fill(7)
      assert.ok(Buffer.alloc(64 * MiB, 7).equals(again.readSync()))
    })

    it('a stream waits for all uses of a block with other users', () => {
      const { device, pool, a, b, c } = setUp({ backing })
      const buffer = pool.allocate(64 * MiB, a)
      const { ptr } = buffer
      for (const stream of [a, b]) device.hold(stream)
      buffer.recordUse(b)
      buffer.free()
      assert.equal(pool.allocate(64 * MiB, c).ptr, ptr)
      assert.equal(pool.stats().insertedWaits, 2)
      assert.equal(pool.stats().pendingBytes, 0)
      assertConsistent(pool)
    })

    it('a stream waits for each of several users of a block', () => {
      for (const held of [0, 1, 2]) {
        const { device, pool, a, b, c } = setUp({ backing })
        const users = [b, c, device.createStream()]
        const later = device.createStream()
        const buffer = pool.allocate(64 * MiB, a)
        const release = device.hold(users[held])
        for (const user of users) buffer.recordUse(user)
        buffer.free()
        assert.equal(pool.processDeferred(), 0)
        pool.allocate(64 * MiB, later)
        assert.equal(pool.stats().insertedWaits, 1)
        assert.equal(later.query(), false)
        release()
        assert.equal(later.query(), true)
      }
    })

    it('a wait of the next stream in a closed stream’s slot does not end a use', () => {
      const { device, pool, a, b, c } = setUp({ backing })
      const { clocks } = device
      const buffer = pool.allocate(64 * MiB, a)
      device.hold(b)
      buffer.recordUse(b)
      b.close()
      a.close()
      clocks.watcher.waitFor(a.lastSlot, a.lastStamp)
      const next = device.createStream()
      assert.equal(next.slot, a.lastSlot)
      clocks.order(next.slot, b.lastSlot, b.lastStamp, false)
      buffer.free()
      pool.allocate(64 * MiB, c)
      assert.deepEqual([pool.stats().insertedWaits, c.query()], [1, false])
    })

    it('a block that waits for its users belongs to the stream of its free', () => {
      for (const freedOn of ['its own', 'another'] as const) {
        const { device, pool, a, b, c } = setUp({ backing })
        const buffer = pool.allocate(4 * MiB, a)
        const { ptr } = buffer
        device.hold(b)
        buffer.recordUse(b)
        buffer.free(freedOn === 'another' ? c : undefined)
        const block = pool
          .snapshot()
          .ranges.flatMap(({ blocks }) => blocks)
          .find(candidate => candidate.ptr === ptr)
        assert.equal(block?.stream, (freedOn === 'another' ? c : a).handle)
      }
    })

    it('a wait that the driver refuses changes nothing', () => {
      for (const call of ['cuStreamWaitEvent', 'cuEventRecord'] as const) {
        const { device, pool, a, b } = setUp({ backing, deterministic: true })
        const buffer = pool.allocate(64 * MiB, a)
        buffer.recordUse(b)
        freePending(device, buffer)
        device.driver.failCall({ call, code: 999 })
        assert.throws(() => pool.allocate(64 * MiB, b), CudaError)
        assert.equal(pool.stats().insertedWaits, 0)
        assertConsistent(pool)
        pool.allocate(64 * MiB, b)
      }
    })
  })
}

describe('waits for memory of other streams, with new memory behind it', () => {
  it('a block that lies on pending and on new memory keeps to the limit', () => {
    const { device, pool, a, b } = setUp({ backing: 'virtual' })
    const ptr = freePending(device, pool.allocate(40 * MiB, a))
    const calls = orderCalls(device, () => assert.equal(pool.allocate(60 * MiB, b).ptr, ptr))
    assert.deepEqual([calls['cuStreamWaitEvent'], calls['cuEventSynchronize']], [1, undefined])
    assert.equal(pool.stats().reservedBytes, 60 * MiB)
    assert.equal(pool.stats().insertedWaits, 1)
    assertConsistent(pool)
  })
})
