// When a freed block may be used again. Each test holds back work on streams of an eager simulated device, and so
// decides which work is pending. Blocks are compared by address: a new block must not overlap memory that its stream
// may not use. The file is long because each case runs over both backings with one set-up.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { KiB, MiB } from '../../base/bytes.js'
import { OutOfMemoryError, PoolError } from '../../base/errors.js'
import { MOST_STREAMS } from '../../order/clocks.js'
import { Event } from '../../order/event.js'
import type { Stream } from '../../order/stream.js'
import type { DeviceBuffer } from '../buffer.js'
import { assertConsistent, TestDevice } from '../pool.fixture.js'

/** The addresses of a buffer, kept beyond its free. */
interface Span {
  readonly ptr: number
  readonly end: number
}

function spanOf(buffer: DeviceBuffer): Span {
  return { ptr: buffer.ptr, end: buffer.ptr + buffer.byteLength }
}

function overlap(a: Span, b: Span): boolean {
  return a.ptr < b.end && b.ptr < a.end
}

/** A pool with two streams, which are not made to wait for each other. */
function setUp(backing: 'virtual' | 'segments' | 'registrable') {
  const device = new TestDevice()
  const pool = device.createPool({ backing, maxPoolBytes: 64 * MiB, crossStreamReuse: 'ordered' })
  return { device, pool, a: device.createStream(), b: device.createStream() }
}

/**
 * Allocates on `stream`, uses the buffer there behind a held operation, and frees it; the work is pending until
 * `release`.
 */
function freePending(device: TestDevice, pool: ReturnType<TestDevice['createPool']>, bytes: number, stream: Stream) {
  const buffer = pool.allocate(bytes, stream)
  const span = spanOf(buffer)
  const release = device.hold(stream)
  buffer.fill(1)
  buffer.free()
  return { span, release }
}

/** Asserts that any of the streams can allocate all reserved memory in one piece. */
function assertAllReusable(pool: ReturnType<TestDevice['createPool']>, streams: readonly Stream[]): void {
  for (const stream of streams) pool.allocate(64 * MiB, stream).free()
  assertConsistent(pool)
}

for (const backing of ['virtual', 'segments', 'registrable'] as const) {
  for (const [kind, bytes] of [
    ['cached', 4 * KiB],
    ['large', 3 * MiB],
  ] as const) {
    describe(`stream order: ${backing}, ${kind} blocks`, () => {
      it('the same stream gets its block back at once, while its work is pending', () => {
        const { device, pool, a } = setUp(backing)
        const { span } = freePending(device, pool, bytes, a)
        assert.equal(pool.allocate(bytes, a).ptr, span.ptr)
        assertConsistent(pool)
      })

      it('another stream gets another block while the work is pending, and either stream gets the block afterwards', () => {
        const { device, pool, a, b } = setUp(backing)
        const { span, release } = freePending(device, pool, bytes, a)
        const other = pool.allocate(bytes, b)
        assert.ok(!overlap(span, spanOf(other)))
        assertConsistent(pool)
        release()
        other.free()
        assertAllReusable(pool, [b, a, device.defaultStream])
      })

      it('another stream gets the block of a closed stream once that stream’s work is done', () => {
        const { device, pool, a, b } = setUp(backing)
        const { span, release } = freePending(device, pool, bytes, a)
        const later = pool.allocate(bytes, a)
        later.free()
        // A closed stream cannot be released: work behind the hold completes only when the host waits for it.
        a.close()
        assert.throws(release, RangeError)
        const other = pool.allocate(bytes, b)
        assert.ok(!overlap(span, spanOf(other)))
        other.free()
        assertAllReusable(pool, [b, device.createStream()])
      })

      it('a buffer freed after its stream was closed waits for the work submitted there', () => {
        const { device, pool, a, b } = setUp(backing)
        const buffer = pool.allocate(bytes, a)
        const span = spanOf(buffer)
        device.hold(a)
        buffer.fill(1)
        a.close()
        buffer.free()
        for (const stream of [b, device.defaultStream]) assert.ok(!overlap(span, spanOf(pool.allocate(bytes, stream))))
        assertConsistent(pool)
      })

      it('deallocate of a buffer whose stream was closed waits for the work submitted there', () => {
        const { device, pool, a, b } = setUp(backing)
        const buffer = pool.allocate(bytes, a)
        const span = spanOf(buffer)
        device.hold(a)
        buffer.fill(1)
        a.close()
        pool.deallocate(span.ptr)
        for (const stream of [device.defaultStream, b]) assert.ok(!overlap(span, spanOf(pool.allocate(bytes, stream))))
        assertConsistent(pool)
      })

      it('a free on another stream hands the block to that stream', () => {
        const { device, pool, a, b } = setUp(backing)
        const buffer = pool.allocate(bytes, a)
        const span = spanOf(buffer)
        device.hold(b)
        buffer.free(b)
        assert.ok(!overlap(span, spanOf(pool.allocate(bytes, a))))
        assert.equal(pool.allocate(bytes, b).ptr, span.ptr)
      })

      it('a block recorded on a side stream is not handed out until that stream is done', () => {
        const { device, pool, a, b } = setUp(backing)
        const buffer = pool.allocate(bytes, a)
        const span = spanOf(buffer)
        const release = device.hold(b)
        buffer.recordUse(b)
        buffer.free()
        assert.ok(pool.stats().pendingBytes >= bytes)
        const blocks = [a, device.defaultStream].map(stream => pool.allocate(bytes, stream))
        for (const block of blocks) assert.ok(!overlap(span, spanOf(block)))
        assert.equal(pool.processDeferred(), 0)
        assertConsistent(pool)
        release()
        assert.ok(pool.processDeferred() >= 1)
        assert.equal(pool.stats().pendingBytes, 0)
        for (const block of blocks) block.free()
        assertAllReusable(pool, [a, b])
      })

      it('a block recorded on a side stream serves that stream once the stream of the free is done', () => {
        const { device, pool, a, b } = setUp(backing)
        while (pool.tryAllocate(bytes) !== null);
        const [buffer] = pool.live()
        const span = { ptr: buffer.ptr, end: buffer.ptr + bytes }
        pool.deallocate(buffer.ptr)
        device.defaultStream.synchronize()
        const again = pool.allocate(bytes, a)
        assert.ok(overlap(span, spanOf(again)))
        device.hold(b)
        again.recordUse(b)
        again.free()
        a.synchronize()
        assert.ok(overlap(span, spanOf(pool.allocate(bytes, b))), 'what b does next comes after what it did')
        assert.equal(pool.stats().insertedWaits, 0)
        assert.equal(b.query(), false)
        assertConsistent(pool)
      })

      it('a recorded block waits for its own stream and for every side stream', () => {
        for (const order of [
          [0, 1, 2],
          [2, 0, 1],
          [1, 2, 0],
        ]) {
          const { device, pool, a, b } = setUp(backing)
          const streams = [a, b, device.createStream()]
          const buffer = pool.allocate(bytes, a)
          const span = spanOf(buffer)
          const releases = streams.map(stream => device.hold(stream))
          for (const side of [streams[1], streams[2], streams[1]]) buffer.recordUse(side)
          buffer.free()
          for (const index of order) {
            assert.ok(!overlap(span, spanOf(pool.allocate(bytes, device.defaultStream))), `before ${index} is done`)
            releases[index]()
            pool.processDeferred()
          }
          assert.equal(pool.stats().pendingBytes, 0)
          assertConsistent(pool)
        }
      })

      it('a block recorded on a stream that closes meanwhile waits for that stream', () => {
        for (const closeBeforeFree of [true, false]) {
          const { device, pool, a, b } = setUp(backing)
          const buffer = pool.allocate(bytes, a)
          const span = spanOf(buffer)
          device.hold(b)
          buffer.recordUse(b)
          if (closeBeforeFree) b.close()
          buffer.free()
          b.close()
          assert.ok(!overlap(span, spanOf(pool.allocate(bytes, a))))
          device.context.activate().cuCtxSynchronize()
          assert.ok(pool.processDeferred() >= 1)
          assert.equal(pool.stats().pendingBytes, 0)
          assertConsistent(pool)
        }
      })

      it('work submitted to the side stream after it was recorded counts up to the free', () => {
        const { device, pool, a, b } = setUp(backing)
        const buffer = pool.allocate(bytes, a)
        const span = spanOf(buffer)
        buffer.recordUse(b)
        b.synchronize()
        device.hold(b)
        buffer.free()
        assert.ok(!overlap(span, spanOf(pool.allocate(bytes, a))))
      })

      it('recording through a view protects the whole buffer', () => {
        const { device, pool, a, b } = setUp(backing)
        const array = pool.allocateArray(Float32Array, bytes / 4, a)
        const span = spanOf(array.buffer)
        device.hold(b)
        array.subarray(bytes / 8).buffer.recordUse(b)
        array.free()
        assert.ok(!overlap(span, spanOf(pool.allocate(bytes, a))))
      })

      it('without stream order any stream gets a freed block at once, recorded or not', () => {
        const device = new TestDevice()
        const pool = device.createPool({ backing, streamOrdered: false, maxPoolBytes: 4 * MiB })
        const [a, b] = [device.createStream(), device.createStream()]
        device.hold(a)
        const buffer = pool.allocate(4 * MiB, a)
        buffer.recordUse(b)
        buffer.free()
        const calls = device.driver.calls.get('cuEventRecord')
        pool.allocate(4 * MiB, b).free()
        assert.equal(device.driver.calls.get('cuEventRecord'), calls, 'no marks')
        assert.equal(pool.stats().pendingBytes, 0)
        assertConsistent(pool)
      })
    })
  }

  describe(`stream order: ${backing}`, () => {
    it('waits for pending work before it throws out of memory', () => {
      const { device, pool, a, b } = setUp(backing)
      freePending(device, pool, 64 * MiB, a)
      const whole = pool.allocate(64 * MiB, b)
      assert.equal(pool.tryAllocate(1, a), null)
      whole.free()
      for (const next of [a, b, device.defaultStream]) {
        const shared = pool.allocate(64 * MiB, a)
        device.hold(a)
        device.hold(b)
        shared.recordUse(b)
        shared.free()
        pool.allocate(64 * MiB, next).free()
        assertConsistent(pool)
      }
    })

    it('a clock that the user moved hides no completion', () => {
      const moves: readonly ((stream: Stream) => void)[] = [
        stream => assert.equal(stream.query(), false),
        stream => new Event(stream.context).record(stream),
      ]
      for (const move of moves) {
        const { device, pool, a, b } = setUp(backing)
        const { release } = freePending(device, pool, 64 * MiB, a)
        move(a)
        assert.equal(pool.processDeferred(), 0)
        release()
        assert.equal(pool.processDeferred(), 1)
        pool.allocate(64 * MiB, b).free()
        freePending(device, pool, 64 * MiB, b)
        move(b)
        pool.allocate(64 * MiB, a) // waits on the host
      }
    })

    it('free neighbours of two streams serve no request together until both streams are done', () => {
      const { device, pool, a, b } = setUp(backing)
      const first = freePending(device, pool, 32 * MiB, a)
      const second = freePending(device, pool, 32 * MiB, b)
      assertConsistent(pool)
      first.release()
      second.release()
      assertAllReusable(pool, [a, b])
    })

    it('the contents that another stream writes survive work that was pending on the freed block', () => {
      for (const bytes of [4 * KiB, 3 * MiB]) {
        const { device, pool, a, b } = setUp(backing)
        const { release } = freePending(device, pool, bytes, a)
        const buffer = pool.allocate(bytes, b)
        buffer.fill(2)
        b.synchronize()
        release()
        a.synchronize()
        assert.deepEqual([...new Set(buffer.readSync())], [2])
      }
    })

    it('the same stream overwrites its own pending contents in order', () => {
      const { device, pool, a } = setUp(backing)
      const { span, release } = freePending(device, pool, 3 * MiB, a)
      const buffer = pool.allocate(3 * MiB, a)
      assert.equal(buffer.ptr, span.ptr)
      buffer.fill(2)
      release()
      assert.deepEqual([...new Set(buffer.readSync())], [2])
    })

    it('memory whose last use is pending is not given back to the device', () => {
      const { device, pool, a } = setUp(backing)
      const { release } = freePending(device, pool, 16 * MiB, a)
      assert.equal(pool.trimTo(0), 0)
      release()
      assert.equal(pool.trimTo(0), 16 * MiB)
      assert.equal(device.freeBytes(), device.totalBytes)
      a.synchronize() // a device that lost memory under pending work would say so now
    })

    it('an older free that reaches the heap later does not hide a newer one on the same memory', () => {
      const { device, pool, a } = setUp(backing)
      const [older, newer] = [pool.allocate(1 * MiB, a), pool.allocate(1 * MiB, a)]
      const releaseOlder = device.hold(a)
      older.fill(1)
      older.free() // goes to the stream's cache, which is full then
      device.clocks.watcher.mark(a.slot)
      const releaseNewer = device.hold(a)
      newer.fill(2)
      newer.free() // goes to the heap
      assert.equal(pool.trimTo(0), 0) // empties the cache into the heap
      releaseOlder()
      assert.equal(pool.trimTo(0), 0)
      releaseNewer()
      a.synchronize()
      assert.equal(pool.trimTo(0), 2 * MiB)
    })

    it('a granule that two streams used goes back only after the work of both', () => {
      for (const first of [0, 1]) {
        const { device, pool, a, b } = setUp(backing)
        const streams = [a, b]
        const buffers = streams.map(stream => pool.allocate(1 * MiB, stream))
        const releases = streams.map(stream => device.hold(stream))
        for (const buffer of buffers) {
          buffer.fill(1)
          buffer.free()
        }
        assert.equal(pool.stats().reservedBytes, 2 * MiB)
        assert.equal(pool.trimTo(0), 0)
        releases[first]()
        assert.equal(pool.trimTo(0), 0)
        releases[1 - first]()
        // a device that lost memory under pending work would say so now
        for (const stream of streams) stream.synchronize()
        assert.equal(pool.trimTo(0), 2 * MiB)
      }
    })

    it('200 streams can follow each other, each closed with work and frees pending', () => {
      const { device, pool, a } = setUp(backing)
      for (let round = 0; round < 200; round++) {
        const stream = device.createStream()
        for (const bytes of [4 * KiB, 1 * MiB]) freePending(device, pool, bytes, stream)
        const late = pool.allocate(2 * KiB, stream)
        stream.close()
        late.free()
        if (round % 20 === 0) assertConsistent(pool)
      }
      assertAllReusable(pool, [a])
    })

    it('the slot of a closed stream serves the next one only when its work is done', () => {
      const { device, pool, b } = setUp(backing)
      const closed = device.createStream()
      const span = freePending(device, pool, 4 * KiB, closed).span
      closed.close()
      const rest = Array.from({ length: MOST_STREAMS - 4 }, () => device.createStream())
      for (const stream of rest) assert.ok(!overlap(span, spanOf(pool.allocate(4 * KiB, stream))))
      const last = device.createStream() // waits: all slots are open or pending
      pool.allocate(4 * KiB, last)
      assert.ok(device.clocks.completed[closed.lastSlot] >= closed.lastStamp)
      assert.throws(() => device.createStream(), { name: 'PoolError', message: /2048 streams are open.*close one/ })
      b.close()
      device.createStream()
      assertConsistent(pool)
    })
  })
}

describe('stream order: misuse', () => {
  it('a buffer freed on a side stream is stale afterwards, though it was recorded', () => {
    const { pool, a, b } = setUp('virtual')
    const buffer = pool.allocate(4 * KiB, a)
    buffer.recordUse(b)
    buffer.free(b)
    assert.throws(() => buffer.recordUse(b), PoolError)
    assert.throws(() => buffer.free(), PoolError)
    assert.equal(pool.stats().liveBuffers, 0)
    assertConsistent(pool)
  })

  it('out of memory with all blocks live is thrown at once', () => {
    const { device, pool, a, b } = setUp('virtual')
    pool.allocate(64 * MiB, a)
    device.hold(a)
    assert.throws(() => pool.allocate(1, b), OutOfMemoryError)
  })
})
