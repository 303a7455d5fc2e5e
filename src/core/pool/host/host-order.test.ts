// When host memory is handed out again. A copy accesses it when it runs, and a program writes new memory at once. So
// memory with a pending copy is handed out to no stream until the host knows the copy complete. Addresses show which
// memory was handed out; contents on the device show whether a copy was damaged.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { KiB, MiB } from '../../base/bytes.js'
import { Event } from '../../order/event.js'
import { signal } from '../../order/order.fixture.js'
import type { Stream } from '../../order/stream.js'
import type { DeviceBuffer } from '../buffer.js'
import { TestDevice } from '../pool.fixture.js'
import type { HostBuffer } from './host-buffer.js'
import type { HostPool } from './host-pool.js'

const BYTES = 256 * KiB

function open(byThreads: boolean, maxPoolBytes = 4 * MiB) {
  const device = new TestDevice()
  const options = { maxPoolBytes: maxPoolBytes, segmentBytes: 1 * MiB }
  const pool = byThreads ? device.createSharedHost(options).pool : device.createHostPool(options)
  const [stream, other] = [device.createStream(), device.createStream()]
  const devicePool = device.createPool()
  return { device, pool, stream, other, target: devicePool.allocate(BYTES, stream), devicePool }
}

/** Allocates everything that needs no wait, overwrites it like a program would, and frees it again. */
function scribble(pool: HostPool, stream?: Stream): void {
  const held: HostBuffer[] = []
  const { pendingBytes, maxPoolBytes } = pool.stats()
  while (held.length * BYTES < maxPoolBytes - pendingBytes) held.push(pool.allocate(BYTES, stream))
  for (const buffer of held) {
    buffer.bytes.fill(0xee)
    buffer.free()
  }
}

/** Ways to free host memory that has a pending copy to `target`. */
const WAYS: Readonly<Record<string, (pool: HostPool, target: DeviceBuffer) => void>> = {
  'copied by copyTo': (pool, target) => {
    const host = filled(pool.allocate(BYTES))
    host.copyTo(target)
    host.free()
  },
  'allocated for the stream': (pool, target) => {
    const host = filled(pool.allocate(BYTES, target.stream))
    target.write(host.bytes)
    host.free()
  },
  'announced before the work': (pool, target) => {
    const host = filled(pool.allocate(BYTES))
    host.recordUse(target.stream)
    target.write(host.bytes)
    host.free()
  },
  'announced after the work': (pool, target) => {
    const host = filled(pool.allocate(BYTES))
    target.write(host.bytes)
    host.recordUse(target.stream)
    host.free()
  },
  'freed on the stream': (pool, target) => {
    const host = filled(pool.allocate(BYTES))
    target.write(host.bytes)
    host.free(target.stream)
  },
  'an array at the end of its block': (pool, target) => {
    using array = pool.allocateArray(Uint8Array, BYTES)
    array.elements.fill(1)
    array.copyTo(target)
  },
}

function filled(host: HostBuffer): HostBuffer {
  host.bytes.fill(1)
  return host
}

for (const byThreads of [false, true])
  describe(`host memory under pending work${byThreads ? ', shared by threads' : ''}`, () => {
    const setUp = (maxPoolBytes?: number) => open(byThreads, maxPoolBytes)
    for (const [name, useAndFree] of Object.entries(WAYS)) {
      it(`memory stays back: ${name}`, () => {
        const { device, pool, stream, target } = setUp()
        const release = device.hold(stream)
        useAndFree(pool, target)
        assert.deepEqual([pool.stats().pendingBytes, pool.stats().liveBuffers], [BYTES, 0])
        scribble(pool)
        assert.equal(pool.processDeferred(), 0)
        release()
        assert.deepEqual(new Set(target.readSync()), new Set([1]))
        assert.equal(pool.processDeferred(), 1)
        assert.equal(pool.stats().pendingBytes, 0)
        pool.check()
      })
    }

    it('memory stays back even for the stream that uses it', () => {
      const { device, pool, stream, target } = setUp()
      const host = pool.allocate(BYTES, stream)
      const { byteOffset, buffer } = host.bytes.fill(1)
      const release = device.hold(stream)
      host.copyTo(target)
      host.free(stream)
      const next = pool.allocate(BYTES, stream)
      assert.ok(next.bytes.buffer !== buffer || next.bytes.byteOffset !== byteOffset)
      next.bytes.fill(2)
      release()
      assert.equal(target.readSync()[BYTES - 1], 1)
    })

    it('a late copy does not write memory that was handed out again', () => {
      const { device, pool, stream, target } = setUp()
      target.fill(9)
      const release = device.hold(stream)
      const host = pool.allocate(BYTES)
      host.copyFrom(target)
      host.free()
      const held = Array.from({ length: 15 }, () => pool.allocate(BYTES))
      for (const buffer of held) buffer.bytes.fill(1)
      release()
      for (const buffer of held) assert.deepEqual(new Set(buffer.bytes), new Set([1]))
    })

    it('memory stays back until every stream that uses it is done', () => {
      const { device, pool, stream, other, target, devicePool } = setUp()
      const second = devicePool.allocate(BYTES, other)
      const host = pool.allocate(BYTES)
      host.bytes.fill(1)
      const releases = [device.hold(stream), device.hold(other)]
      host.copyTo(target)
      host.copyTo(second)
      host.free()
      releases[0]()
      assert.equal(pool.processDeferred(), 0)
      scribble(pool)
      releases[1]()
      assert.equal(pool.processDeferred(), 1)
      assert.deepEqual([target.readSync()[0], second.readSync()[0]], [1, 1])
    })

    it('the host waits for it when all other memory is in use', () => {
      const { device, pool, stream, target } = setUp(1 * MiB)
      const held = Array.from({ length: 4 }, () => pool.allocate(BYTES))
      device.hold(stream)
      held.forEach((host, index) => {
        host.bytes.fill(index + 1)
        host.copyTo(target)
        host.free()
      })
      const whole = pool.allocate(1 * MiB)
      assert.equal(stream.query(), true)
      whole.bytes.fill(0xee)
      assert.deepEqual(new Set(target.readSync()), new Set([4]))
    })

    it('a new segment comes before a wait', () => {
      const { device, pool, stream, target } = setUp(2 * MiB)
      const release = device.hold(stream)
      for (let count = 0; count < 8; count++) {
        const host = pool.allocate(BYTES)
        host.copyTo(target)
        host.free()
      }
      assert.equal(stream.query(), false)
      assert.equal(pool.stats().reservedBytes, 2 * MiB)
      release()
    })

    it('a use outlives its stream, and another stream with the same slot does not complete it', () => {
      const { device, pool, target, devicePool } = setUp()
      const closing = device.createStream()
      const copy = devicePool.allocate(BYTES, closing)
      const host = pool.allocate(BYTES)
      host.bytes.fill(1)
      const gate = device.hold(target.stream)
      signal(target.stream, closing)
      host.copyTo(copy)
      closing.close()
      host.free()
      for (let count = 0; count < 3; count++) device.createStream().synchronize()
      assert.equal(pool.processDeferred(), 0)
      scribble(pool)
      gate()
      assert.equal(pool.processDeferred(), 1)
      target.copyFromSync(devicePool.allocate(BYTES, target.stream)) // any driver call of the stream will do
      const seen = new Uint8Array(BYTES)
      device.context.activate().cuMemcpyDtoH(seen, copy.ptr)
      assert.deepEqual(new Set(seen), new Set([1]))
    })
  })

for (const byThreads of [false, true])
  describe(`host memory whose work is known complete${byThreads ? ', shared by threads' : ''}`, () => {
    const setUp = (maxPoolBytes?: number) => open(byThreads, maxPoolBytes)
    const waysToKnow: readonly (readonly [string, (stream: Stream, event: Event) => void | Promise<void>])[] = [
      ['a synchronise', stream => stream.synchronize()],
      ['a query', stream => void stream.query()],
      ['a promise', stream => stream.finished()],
      ['an event', (_, event) => event.synchronize()],
    ]
    for (const [name, know] of waysToKnow) {
      it(`it is handed out at once, without a driver call, after ${name}, even with later work submitted`, async () => {
        const { device, pool, stream, target } = setUp(64 * MiB)
        const host = pool.allocate(BYTES)
        const event = new Event(device.context)
        host.copyTo(target)
        host.copyFrom(target, 0, 0, 1)
        event.record(stream)
        await know(stream, event)
        const release = device.hold(stream)
        target.fill(3)
        const before = JSON.stringify([...device.driver.calls])
        const { bytes } = host
        host.free()
        const next = pool.allocate(BYTES)
        assert.equal(JSON.stringify([...device.driver.calls]), before)
        assert.deepEqual([next.bytes.buffer, next.bytes.byteOffset], [bytes.buffer, bytes.byteOffset])
        assert.equal(pool.stats().pendingBytes, 0)
        release()
      })
    }

    it('an announcement covers work submitted after it, until the free', () => {
      const { device, pool, stream, target } = setUp()
      const host = pool.allocate(BYTES)
      host.bytes.fill(1)
      host.recordUse(stream)
      host.copyTo(target)
      stream.synchronize()
      const release = device.hold(stream)
      target.write(host.bytes)
      host.free()
      scribble(pool)
      release()
      assert.deepEqual(new Set(target.readSync()), new Set([1]))
    })

    it('a new allocation of the same block begins without uses', () => {
      const { device, pool, stream, target } = setUp(64 * MiB)
      pool.allocate(BYTES).copyTo(target)
      const host = pool.allocate(BYTES)
      host.copyTo(target)
      stream.synchronize()
      host.free()
      const again = pool.allocate(BYTES)
      const release = device.hold(stream)
      again.free()
      assert.equal(pool.stats().pendingBytes, 0)
      release()
    })
  })
