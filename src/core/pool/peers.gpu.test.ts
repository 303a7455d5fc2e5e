// Two GPUs, each with a driver object of its own, as openDevice(0) and openDevice(1) return. Kernels check the memory
// that one GPU uses of the other. Fails without a GPU, and is skipped with one.

import assert from 'node:assert/strict'
import { after, describe, it } from 'node:test'
import { MiB } from '../base/bytes.js'
import { Random } from '../base/random.js'
import { NativeDriver } from '../driver/native/native-driver.js'
import { signal } from '../order/order.fixture.js'
import type { DeviceBuffer } from './buffer.js'
import { GpuDevice } from './gpu-device.fixture.js'
import { HostPool } from './host/host-pool.js'
import { assertConsistent, isFilled } from './pool.fixture.js'
import { fallback } from './wrappers/fallback.js'
import { spillable } from './wrappers/spillable.js'

/** Why the tests cannot run here; false when they can. */
function obstacle(): string | false {
  const driver = NativeDriver.open()
  driver.cuInit()
  const count = driver.cuDeviceGetCount()
  if (count < 2) return `this needs two GPUs, and the driver finds ${count}`
  const [first, second] = [driver.cuDeviceGet(0), driver.cuDeviceGet(1)]
  const both = driver.cuDeviceCanAccessPeer(first, second) && driver.cuDeviceCanAccessPeer(second, first)
  return both ? false : 'GPU 0 and GPU 1 have no way to each other'
}

const skip = obstacle()

describe('two GPUs', { skip }, () => {
  if (skip !== false) return
  const [allocation, peer] = [new GpuDevice(0), new GpuDevice(1)]
  after(() => {
    for (const gpu of [allocation, peer]) gpu.close()
  })
  const assertIntact = () => assert.deepEqual([...allocation.damages(), ...peer.damages()], [])

  it('work side by side in one thread', () => {
    const gpus = [allocation, peer]
    const buffers = gpus.map(gpu => gpu.createPool().allocate(64 * MiB, gpu.createStream()))
    for (let round = 1; round <= 20; round++) {
      for (const [index, gpu] of gpus.entries()) gpu.stamp(buffers[index], 10 * round + index)
      for (const [index, gpu] of gpus.entries()) gpu.compare(buffers[index], 10 * round + index)
    }
    assertIntact()
    assert.deepEqual(
      buffers.map(({ device }) => device),
      [0, 1],
    )
    for (const [index, gpu] of gpus.entries()) {
      const { freeBytes, totalBytes } = gpu.context.activate().cuMemGetInfo()
      assert.ok(totalBytes - freeBytes >= 64 * MiB, `GPU ${index}`)
    }
  })

  it('copy between each other without access, in order', () => {
    using stream = allocation.createStream()
    using peerStream = peer.createStream()
    const source = allocation.createPool().allocate(32 * MiB, stream)
    const target = peer.createPool().allocate(32 * MiB, peerStream)
    const back = allocation.createPool().allocate(32 * MiB, stream)
    for (let round = 1; round <= 10; round++) {
      allocation.spin(stream, 1)
      allocation.stamp(source, round)
      signal(stream, peerStream)
      target.copyFrom(source)
      signal(peerStream, stream)
      allocation.stamp(source, 1000)
      peer.compare(target, round)
      peer.spin(peerStream, 1)
      back.copyFrom(target)
      allocation.compare(back, round)
      signal(stream, peerStream)
    }
    assertIntact()
    target.copyFromSync(source)
    peer.compare(target, 1000)
    assertIntact()
    assert.throws(() => peer.stamp(source, 1, peerStream), {
      name: 'PoolError',
      message: /device 1 has no access .* device 0/,
    })
  })

  for (const crossStreamReuse of ['ordered', 'wait-before-oom'] as const) {
    it(`reuse memory only after the work of the other GPU on it, with '${crossStreamReuse}'`, () => {
      using stream = allocation.createStream()
      using peerStream = peer.createStream()
      const pool = allocation.createPool({ crossStreamReuse })
      const source = pool.allocate(64 * MiB, stream)
      const target = peer.createPool().allocate(64 * MiB, peerStream)
      allocation.stamp(source, 7)
      signal(stream, peerStream)
      const release = peer.hold(peerStream)
      target.copyFrom(source)
      source.recordUse(peerStream)
      const { ptr } = source
      source.free()
      const other = pool.allocate(64 * MiB, stream)
      allocation.stamp(other, 8)
      release()
      // A stream that may be made to wait gets the same memory; otherwise the pool grows.
      const waits = crossStreamReuse === 'ordered' ? 0 : 1
      assert.deepEqual([other.ptr === ptr, pool.stats().insertedWaits], [waits === 1, waits])
      peer.compare(target, 7)
      assertIntact()
      pool.processDeferred()
      assert.equal(pool.stats().pendingBytes, 0)
      assertConsistent(pool)
    })
  }

  it('reach present, future and moved memory of a pool that was opened to them', () => {
    using stream = peer.createStream()
    const pool = allocation.createPool({ maxPoolBytes: 64 * MiB, backing: 'virtual' })
    const early = pool.allocate(8 * MiB)
    pool.setAccess(peer, 'readWrite')
    const used = [early, ...Array.from({ length: 6 }, () => pool.allocate(8 * MiB))]
    const touch = (buffer: DeviceBuffer, stamp: number) => {
      peer.stamp(buffer, stamp, stream)
      peer.synchronize()
      allocation.compare(buffer, stamp)
    }
    for (const [index, buffer] of used.entries()) touch(buffer, index + 1)
    for (const buffer of used.filter((_, index) => index % 2 === 1)) buffer.free()
    allocation.synchronize()
    touch(pool.allocate(24 * MiB), 99)
    assertIntact()
    pool.setAccess(peer, 'none')
    allocation.stamp(early, 5)
    allocation.compare(early, 5)
    assert.throws(() => peer.stamp(early, 1, stream), { name: 'PoolError', message: /setAccess/ })
    assertIntact()
    pool.setAccess(peer, 'readWrite')
    touch(early, 6)
    assertIntact()
    assertConsistent(pool)
  })

  it('move spillable buffers on the other GPU to the host and back', () => {
    using host = HostPool.open(allocation.clocks, allocation.defaultStream, { maxPoolBytes: 64 * MiB })
    const pool = fallback(allocation.createPool({ maxPoolBytes: 4 * MiB }), peer.createPool())
    using set = spillable(pool, { host })
    const buffers = [set.allocate(4 * MiB), set.allocate(4 * MiB)]
    for (let round = 1; round <= 3; round++) {
      for (const [index, buffer] of buffers.entries()) {
        using here = buffer.use()
        assert.equal(here.device, 0, 'streams of this GPU use it')
        here.fill(10 * round + index)
      }
      for (const buffer of buffers) assert.equal(buffer.spill(), true)
      for (const [index, buffer] of buffers.entries()) {
        using here = buffer.use(undefined, { writes: false })
        const bytes = here.readSync()
        assert.ok(isFilled(bytes, 10 * round + index), `round ${round}: ${bytes[0]}`)
      }
    }
  })

  it('reach the memory of a pool again after it slept, in a view too', async () => {
    using stream = peer.createStream()
    const pool = allocation.createPool({ maxPoolBytes: 64 * MiB, backing: 'virtual' })
    pool.setAccess(peer, 'readWrite')
    const blocks = Array.from({ length: 7 }, () => pool.allocate(8 * MiB))
    for (const index of [1, 3, 5]) blocks[index].free()
    allocation.synchronize()
    const used = [blocks[0], pool.allocate(24 * MiB)]
    const addresses = used.map(({ ptr }) => ptr)
    for (let round = 1; round <= 3; round++) {
      for (const [index, buffer] of used.entries()) peer.stamp(buffer, 10 * round + index, stream)
      await pool.sleep()
      assert.equal(pool.stats().reservedBytes, 0)
      await pool.wake()
      assert.deepEqual(
        used.map(({ ptr }) => ptr),
        addresses,
      )
      for (const [index, buffer] of used.entries()) allocation.compare(buffer, 10 * round + index)
      assertIntact()
    }
    assertConsistent(pool)
  })

  it('reach plain allocations by peer access, which is enabled once', () => {
    const pool = allocation.createPool({ backing: 'segments' })
    const early = pool.allocate(8 * MiB)
    for (let round = 0; round < 2; round++) peer.context.enablePeerAccess(allocation.context)
    for (const buffer of [early, pool.allocate(100 * MiB), allocation.createPlainPool().allocate(8 * MiB)]) {
      peer.stamp(buffer, 3, peer.defaultStream)
      peer.synchronize()
      allocation.compare(buffer, 3)
    }
    assertIntact()
  })

  for (const backing of ['virtual', 'segments'] as const) {
    it(`share a pool when one runs full, also with work pending: ${backing}`, () => {
      const random = new Random(3)
      const streams = [allocation.defaultStream, allocation.createStream(), allocation.createStream()]
      const lender = peer.createPool({ backing })
      const theirs = peer.createStream()
      using pool = fallback(allocation.createPool({ maxPoolBytes: 2 * MiB }), lender)
      const held: { buffer: DeviceBuffer; stamp: number }[] = []
      for (let step = 1; step <= 300; step++) {
        const stream = streams[random.below(streams.length)]
        if (random.below(4) === 0) allocation.spin(stream, random.fraction())
        const buffer = pool.allocate(4 * random.logUniform(256, 8 * MiB), stream)
        allocation.stamp(buffer, step)
        held.push({ buffer, stamp: step })
        // The lending device continues with memory of the same pool.
        const own = lender.allocate(4 * random.logUniform(256, 8 * MiB), theirs)
        peer.stamp(own, step)
        peer.compare(own, step)
        own.free()
        while (held.length > 6) {
          const [one] = held.splice(random.below(held.length), 1)
          allocation.compare(one.buffer, one.stamp)
          one.buffer.free()
        }
      }
      assert.ok(pool.fallbacks > 50, `${pool.fallbacks} fallbacks`)
      assertIntact()
      for (const { buffer, stamp } of held) {
        allocation.compare(buffer, stamp)
        assert.equal(buffer.readSync(0, 1)[0], stamp & 255)
        buffer.free()
      }
      assertIntact()
      assert.equal(lender.stats().liveBuffers, 0)
    })
  }
})
