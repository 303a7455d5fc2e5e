// Pools of a device with a thousand open streams.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { KiB, MiB } from '../base/bytes.js'
import { signal } from '../order/order.fixture.js'
import { assertConsistent, TestDevice } from './pool.fixture.js'

const STREAMS = 1024

function open(options: ConstructorParameters<typeof TestDevice>[0] = {}) {
  const device = new TestDevice(options)
  return { device, streams: Array.from({ length: STREAMS }, () => device.createStream()) }
}

for (const backing of ['virtual', 'segments'] as const) {
  describe(`${STREAMS} streams: a caching pool, ${backing}`, () => {
    it('every stream gets its own memory, and gets it again without the driver', () => {
      const { device, streams } = open()
      const pool = device.createPool({ backing })
      const releases = streams.map(stream => device.hold(stream))
      const buffers = streams.map(stream => pool.allocate(4 * KiB, stream))
      const addresses = buffers.map(({ ptr }) => ptr)
      assert.equal(new Set(addresses).size, STREAMS)
      for (const buffer of buffers) buffer.free()
      const { cacheMisses } = pool.stats()
      const again = streams.map(stream => pool.allocate(4 * KiB, stream))
      assert.deepEqual(
        again.map(({ ptr }) => ptr),
        addresses,
      )
      assert.equal(pool.stats().cacheMisses, cacheMisses)
      assertConsistent(pool)
      for (const buffer of again) buffer.free()
      for (const release of releases) release()
      device.context.activate().cuCtxSynchronize()
      assert.ok(pool.trimTo(0) > 0)
      assertConsistent(pool)
      assert.equal(pool.stats().reservedBytes, 0)
    })

    it('the last streams get memory of each other exactly when they come after it', () => {
      const { device, streams } = open()
      const pool = device.createPool({ backing, crossStreamReuse: 'ordered' })
      const [first, second, third] = streams.slice(-3)
      device.hold(first)
      for (const bytes of [4 * KiB, 3 * MiB]) {
        const buffer = pool.allocate(bytes, first)
        const { ptr } = buffer
        buffer.free()
        assert.notEqual(pool.allocate(bytes, third).ptr, ptr)
        signal(first, second)
        const taken = pool.allocate(bytes, second)
        assert.equal(taken.ptr, ptr)
        taken.free()
      }
      assertConsistent(pool)
    })

    it('a capture on the last stream has memory of its own, which comes back with the graph', () => {
      const { device, streams } = open()
      const pool = device.createPool({ backing })
      const [earlier, later] = streams.slice(-2)
      earlier.beginCapture()
      const [scratch, kept] = [pool.allocate(2 * MiB, earlier), pool.allocate(2 * MiB, earlier)]
      const addresses = [scratch.ptr, kept.ptr]
      scratch.free()
      signal(earlier, later)
      const again = pool.allocate(2 * MiB, later)
      assert.equal(again.ptr, addresses[0])
      signal(later, earlier)
      const graph = earlier.endCapture()
      for (const buffer of [again, kept]) buffer.free()
      const outside = pool.allocate(2 * MiB, earlier)
      assert.ok(!addresses.includes(outside.ptr))
      assertConsistent(pool)
      outside.free()
      graph.close()
      pool.trimTo(0)
      assertConsistent(pool)
      assert.equal(pool.stats().reservedBytes, 0)
    })
  })
}

describe(`${STREAMS} streams: other pools`, () => {
  it('a block pool gives a block of the last stream to others once its work is complete', () => {
    const { device, streams } = open()
    const pool = device.createBlockPool({ blockBytes: 4 * KiB, count: STREAMS })
    const buffers = streams.map(stream => pool.allocate(4 * KiB, stream))
    assert.equal(new Set(buffers.map(({ ptr }) => ptr)).size, STREAMS)
    assert.equal(pool.tryAllocate(4 * KiB, streams[0]), null)
    const release = device.hold(streams[STREAMS - 1])
    const [{ ptr }] = buffers.slice(-1)
    for (const buffer of buffers) buffer.free()
    const others = streams.slice(0, -1).map(stream => pool.allocate(4 * KiB, stream))
    assert.ok(others.every(other => other.ptr !== ptr))
    release()
    assert.equal(pool.allocate(4 * KiB, streams[0]).ptr, ptr)
    pool.check()
  })

  for (const shared of [false, true]) {
    it(`${shared ? 'a shared arena' : 'an arena'} waits for all of them before it gives memory out again`, () => {
      const { device, streams } = open()
      const options = { bytes: 8 * MiB }
      const pool = shared ? device.createSharedArena(options).pool : device.createArenaPool(options)
      for (const stream of streams) pool.allocate(KiB, stream)
      const last = streams[STREAMS - 1]
      const release = device.hold(last)
      pool.allocate(KiB, last)
      pool.reset()
      const stamp = device.clocks.marked[last.slot]
      pool.allocate(KiB, streams[0])
      assert.ok(stamp > device.clocks.completed[last.slot], 'the host has not waited')
      const { known } = device.clocks
      assert.ok(known[streams[0].slot * device.clocks.stride + last.slot] >= stamp)
      release()
    })
  }

  it('a shared pool gives memory of the last stream to the stream that comes after it', () => {
    const { device, streams } = open()
    const { pool } = device.createSharedPool()
    device.hold(streams[STREAMS - 2])
    const buffers = streams.map(stream => pool.allocate(4 * KiB, stream))
    assert.equal(new Set(buffers.map(({ ptr }) => ptr)).size, STREAMS)
    const [from, to] = streams.slice(-2)
    const { ptr } = buffers[STREAMS - 2]
    for (const buffer of buffers) buffer.free()
    pool.check()
    assert.equal(pool.allocate(4 * KiB, from).ptr, ptr)
    const large = pool.allocate(3 * MiB, from)
    const address = large.ptr
    large.free()
    assert.notEqual(pool.allocate(3 * MiB, to).ptr, address)
    signal(from, to)
    assert.equal(pool.allocate(3 * MiB, to).ptr, address)
    pool.check()
  })
})

describe(`${STREAMS} streams that come and go`, () => {
  it('the slots of closed streams serve again, with the memory of their former streams', () => {
    const { device, streams } = open()
    const pool = device.createPool()
    for (let round = 0; round < 3; round++) {
      for (const stream of streams) pool.allocate(8 * KiB, stream).free()
      const slots = new Set(streams.map(({ slot }) => slot))
      for (const stream of streams) stream.close()
      for (const index of streams.keys()) streams[index] = device.createStream()
      assert.deepEqual(new Set(streams.map(({ slot }) => slot)), slots)
    }
    const { reservedBytes } = pool.stats()
    assert.ok(reservedBytes <= 2 * STREAMS * 8 * KiB, 'memory of closed streams is used again')
    assertConsistent(pool)
  })

  it('a stream opens with a few questions to the driver, however many closed ones have work pending', () => {
    const { device, streams } = open()
    device.hold(streams[0])
    for (const stream of streams.slice(1)) {
      signal(streams[0], stream)
      stream.close()
    }
    const before = device.calls('cuEventQuery')
    device.createStream()
    assert.ok(device.calls('cuEventQuery') - before <= 64)
  })
})
