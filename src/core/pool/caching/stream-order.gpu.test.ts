// When freed memory may be used again, with kernels that really run: they write stamps late, and memory that was
// handed out too early would show them. Without a GPU it fails.

import assert from 'node:assert/strict'
import { after, describe, it } from 'node:test'
import { KiB, MiB } from '../../base/bytes.js'
import { signal } from '../../order/order.fixture.js'
import type { DeviceBuffer } from '../buffer.js'
import { GpuDevice } from '../gpu-device.fixture.js'
import type { CachingPool } from './caching-pool.js'
import type { PoolOptions } from './options.js'

const gpu = new GpuDevice()
after(() => gpu.close())

const BYTES = 4 * MiB

/** Where a buffer lies, also when it is freed. */
const spanOf = ({ ptr, byteLength }: DeviceBuffer) => ({ ptr, end: ptr + byteLength })

function overlaps(buffer: DeviceBuffer, span: { ptr: number; end: number }): boolean {
  return buffer.ptr < span.end && span.ptr < buffer.ptr + buffer.byteLength
}

/**
 * A pool that has memory for two buffers already, so that nothing has to grow. A live buffer between the two keeps them
 * from merging.
 */
function poolOfTwo(options: PoolOptions): CachingPool {
  const pool = gpu.createPool({ ...options, maxPoolBytes: 3 * BYTES })
  const [first, , last] = [pool.allocate(BYTES), pool.allocate(BYTES), pool.allocate(BYTES)]
  for (const buffer of [first, last]) buffer.free()
  pool.processDeferred() // marks the stream behind the last use of both
  gpu.synchronize()
  pool.processDeferred() // and sees that it is over
  return pool
}

/** The buffer holds `stamp`, also after all work that is still pending. */
function assertHolds(buffer: DeviceBuffer, stamp: number): void {
  gpu.compare(buffer, stamp)
  gpu.synchronize()
  gpu.compare(buffer, stamp)
  assert.deepEqual(gpu.damages(), [])
}

for (const backing of ['virtual', 'segments'] as const) {
  describe(`stream order on a GPU, ${backing} memory`, () => {
    it('a block freed on a stream is that stream’s again at once, though its work still runs', () => {
      using pool = gpu.createPool({ backing, maxPoolBytes: 256 * MiB })
      using stream = gpu.createStream()
      for (const bytes of [256, 4 * KiB, 1 * MiB, 24 * MiB]) {
        const first = pool.allocate(bytes, stream)
        const { ptr } = first
        const release = gpu.hold(stream)
        gpu.stamp(first, 1)
        gpu.compare(first, 1)
        first.free()
        const second = pool.allocate(bytes, stream)
        assert.equal(second.ptr, ptr)
        gpu.stamp(second, 2)
        assert.equal(stream.query(), false)
        release()
        assertHolds(second, 2)
        second.free()
      }
    })

    it('another stream gets the block only when the work is done', () => {
      using pool = poolOfTwo({ backing })
      using busy = gpu.createStream()
      using other = gpu.createStream()
      const first = pool.allocate(BYTES, busy)
      const span = spanOf(first)
      const release = gpu.hold(busy)
      gpu.stamp(first, 1)
      first.free()
      const second = pool.allocate(BYTES, other)
      assert.equal(overlaps(second, span), false)
      gpu.stamp(second, 2)
      other.synchronize()
      assert.equal(busy.query(), false, 'other work went on meanwhile')
      release()
      assertHolds(second, 2)
      const third = pool.allocate(BYTES, other)
      assert.equal(overlaps(third, span), true)
      assert.equal(pool.stats().reservedBytes, 3 * BYTES)
      gpu.stamp(third, 3)
      assertHolds(third, 3)
    })

    it('the host waits for the work when all other steps fail', () => {
      using pool = gpu.createPool({ backing, maxPoolBytes: BYTES })
      const streams = [gpu.createStream(), gpu.createStream(), gpu.createStream(), gpu.createStream()]
      for (let round = 0; round < 12; round++) {
        const [busy, other] = [streams[round % 4], streams[(round + 1) % 4]]
        const first = pool.allocate(BYTES, busy)
        gpu.spin(busy, 5)
        gpu.stamp(first, 1)
        first.free()
        const second = pool.allocate(BYTES, other)
        gpu.stamp(second, 2)
        assertHolds(second, 2)
        second.free()
      }
      for (const stream of streams) stream.close()
    })

    it('a block waits for its announced use on another stream', () => {
      using pool = poolOfTwo({ backing })
      using own = gpu.createStream()
      using side = gpu.createStream()
      const first = pool.allocate(BYTES, own)
      const span = spanOf(first)
      gpu.stamp(first, 0)
      signal(own, side)
      const release = gpu.hold(side)
      gpu.stamp(first, 1, side)
      first.recordUse(side)
      first.free()
      assert.equal(pool.stats().pendingBytes >= BYTES, true)
      const second = pool.allocate(BYTES, own)
      assert.equal(overlaps(second, span), false)
      gpu.stamp(second, 2)
      own.synchronize()
      assert.equal(pool.processDeferred(), 0)
      assert.equal(side.query(), false)
      release()
      side.synchronize()
      assert.ok(pool.processDeferred() > 0)
      const third = pool.allocate(BYTES, own)
      assert.equal(overlaps(third, span), true)
      gpu.stamp(third, 3)
      assertHolds(second, 2)
      assertHolds(third, 3)
    })

    it('a block freed on another stream is that stream’s, and not its first one’s', () => {
      using pool = poolOfTwo({ backing })
      using own = gpu.createStream()
      using next = gpu.createStream()
      const first = pool.allocate(BYTES, own)
      const span = spanOf(first)
      gpu.stamp(first, 1)
      signal(own, next)
      const release = gpu.hold(next)
      gpu.stamp(first, 2, next)
      first.free(next)
      const second = pool.allocate(BYTES, own)
      assert.equal(overlaps(second, span), false)
      gpu.stamp(second, 3)
      own.synchronize()
      const third = pool.allocate(BYTES, next)
      assert.equal(overlaps(third, span), true)
      gpu.stamp(third, 4)
      assert.equal(next.query(), false)
      release()
      assertHolds(second, 3)
      assertHolds(third, 4)
    })

    it('the work of a stream that was closed is waited for', () => {
      using pool = poolOfTwo({ backing })
      using other = gpu.createStream()
      for (const freedFirst of [true, false]) {
        const closing = gpu.createStream()
        const first = pool.allocate(BYTES, closing)
        const span = spanOf(first)
        const release = gpu.hold(closing)
        gpu.stamp(first, 1)
        if (freedFirst) first.free()
        closing.close()
        if (!freedFirst) first.free()
        const second = pool.allocate(BYTES, other)
        assert.equal(overlaps(second, span), false)
        gpu.stamp(second, 2)
        other.synchronize()
        release()
        assertHolds(second, 2)
        const third = pool.allocate(BYTES, other)
        assert.equal(overlaps(third, span), true)
        second.free()
        third.free()
        gpu.synchronize()
      }
    })
  })
}

describe('the assumption of these tests', () => {
  it('contents reveal memory that is handed out too early', () => {
    using pool = gpu.createPool({ backing: 'segments', maxPoolBytes: BYTES, streamOrdered: false })
    using busy = gpu.createStream()
    using other = gpu.createStream()
    const first = pool.allocate(BYTES, busy)
    const release = gpu.hold(busy)
    gpu.stamp(first, 1)
    first.free() // a broken promise: its work is not done
    const second = pool.allocate(BYTES, other)
    gpu.stamp(second, 2)
    other.synchronize()
    release()
    busy.synchronize()
    gpu.compare(second, 2)
    assert.match(gpu.damages().join(), /^1048576 of 1048576 words at 0x[0-9a-f]+ were not 2$/)
  })
})
