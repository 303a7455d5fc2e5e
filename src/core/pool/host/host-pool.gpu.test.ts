// Host pools on a GPU. Both kinds of array buffer can be pinned, copies run while Node goes on, and kernels reach
// mapped memory. Memory with a pending copy is not handed out. Fails without a GPU.

import assert from 'node:assert/strict'
import { randomFillSync } from 'node:crypto'
import { existsSync, readFileSync } from 'node:fs'
import { after, describe, it } from 'node:test'
import { KiB, MiB } from '../../base/bytes.js'
import type { DeviceBuffer } from '../buffer.js'
import { GpuDevice } from '../gpu-device.fixture.js'
import type { HostPoolOptions } from './host-options.js'
import { HostPool } from './host-pool.js'

const NUMA_MAPS = '/proc/self/numa_maps'
const gpu = new GpuDevice()
const devicePool = gpu.createPool()
after(() => gpu.close())

const open = (options: HostPoolOptions) => HostPool.open(gpu.clocks, gpu.defaultStream, options)

describe('a host pool on a GPU', () => {
  it('buffers of every size survive a round trip to the device', async () => {
    using pool = open({})
    using stream = gpu.createStream()
    for (const bytes of [1, 255, 4096, 64 * KiB + 3, 1 * MiB, 33 * MiB + 1]) {
      using up = pool.allocate(bytes)
      using down = pool.allocate(bytes)
      using target = devicePool.allocate(bytes, stream)
      randomFillSync(up.bytes)
      up.copyTo(target)
      down.copyFrom(target)
      await stream.finished()
      assert.ok(Buffer.from(down.bytes).equals(up.bytes), `${bytes} bytes`)
    }
    pool.check()
    assert.deepEqual(pool.stats().liveBuffers, 0)
  })

  it('addresses are aligned, and no two segments share a page', () => {
    using pool = open({ segmentBytes: 64 * KiB, maxPoolBytes: 64 * MiB })
    const held = Array.from({ length: 200 }, () => pool.allocate(64 * KiB)) // one registration each
    for (const { bytes } of held) assert.equal(gpu.driver.hostAddress(bytes) % (64 * KiB), 0)
    assert.equal(gpu.driver.hostAddress(pool.allocate(100).bytes) % 256, 0)
    for (const buffer of held) buffer.free()
    pool.trimTo(0)
    pool.allocate(64 * KiB)
  })

  it('copies do not wait for the stream, and their memory stays back until they are done', () => {
    using pool = open({ maxPoolBytes: 64 * MiB, segmentBytes: 4 * MiB })
    using stream = gpu.createStream()
    using target = devicePool.allocate(4 * MiB, stream)
    using back = devicePool.allocate(4 * MiB, stream)
    gpu.stamp(back, 0x05050505)
    pool.allocate(16 * MiB).free() // pins all memory before the stream is held, since pinning may wait for the device
    const release = gpu.hold(stream)
    for (let part = 0; part < 4; part++) {
      using up = pool.allocate(1 * MiB)
      up.bytes.fill(part + 1)
      up.copyTo(target, part * MiB)
      using down = pool.allocate(1 * MiB)
      down.copyFrom(back, 0, part * MiB, 1 * MiB)
    }
    assert.equal(stream.query(), false, 'nothing has run, and nothing has waited')
    assert.equal(pool.stats().pendingBytes, 8 * MiB)
    const held = Array.from({ length: 8 }, () => pool.allocate(1 * MiB, stream))
    for (const buffer of held) buffer.bytes.fill(0xee)
    release()
    const seen = target.readSync()
    for (let part = 0; part < 4; part++) {
      assert.ok(
        seen.subarray(part * MiB, (part + 1) * MiB).every(byte => byte === part + 1),
        `part ${part}`,
      )
    }
    for (const { bytes } of held)
      assert.ok(
        bytes.every(byte => byte === 0xee),
        'no late copy wrote here',
      )
    pool.processDeferred()
    assert.equal(pool.stats().pendingBytes, 0)
  })
})

describe('host pools on a GPU', () => {
  it('kernels access mapped memory, and the host sees their writes', () => {
    using pool = open({ mapped: true })
    using stream = gpu.createStream()
    using first = pool.allocate(1000)
    using host = pool.allocate(1 * MiB, stream)
    assert.equal(host.devicePtr % 256, 0)
    assert.equal(
      first.devicePtr - host.devicePtr,
      gpu.driver.hostAddress(first.bytes) - gpu.driver.hostAddress(host.bytes),
    )
    // A kernel of this device takes any object with an address and a length.
    const place = { ptr: host.devicePtr, byteLength: host.byteLength } as DeviceBuffer
    gpu.stamp(place, 12345, stream)
    stream.synchronize()
    assert.ok(host.view(Uint32Array).every(word => word === 12345))
    host.view(Uint32Array).fill(54321)
    gpu.compare(place, 54321, stream)
    assert.deepEqual(gpu.damages(), [])
  })

  it('a wait returns undamaged memory when no other is left', () => {
    using pool = open({ maxPoolBytes: 8 * MiB, segmentBytes: 8 * MiB })
    using stream = gpu.createStream()
    using target = devicePool.allocate(8 * MiB, stream)
    gpu.spin(stream, 20)
    for (let part = 0; part < 8; part++) {
      using up = pool.allocate(1 * MiB)
      up.bytes.fill(part + 1)
      up.copyTo(target, part * MiB)
    }
    using whole = pool.allocate(8 * MiB)
    assert.equal(stream.query(), true)
    whole.bytes.fill(0xee)
    const seen = target.readSync()
    for (let part = 0; part < 8; part++) assert.equal(seen[part * MiB], part + 1)
  })

  it('arrays outlive the pool as ordinary memory, and can be pinned again', () => {
    const pool = open({})
    const { bytes } = pool.allocate(1 * MiB)
    pool.close()
    bytes.fill(3)
    gpu.driver.cuMemHostRegister(bytes, 0)
    gpu.driver.cuMemHostUnregister(bytes)
    assert.equal(bytes[1 * MiB - 1], 3)
  })

  it('memory lies on the NUMA node of the device, and on each node that is asked for', test => {
    const nodes = gpu.driver.hostNodes()
    if (nodes.length === 0 || !existsSync(NUMA_MAPS)) return test.skip('this system does not tell where memory lies')
    for (const numaNode of [undefined, ...nodes]) {
      using pool = open(numaNode === undefined ? {} : { numaNode })
      if (pool.numaNode === null) return test.skip('this system does not let the process bind memory')
      assert.equal(pool.numaNode, numaNode ?? pool.numaNode)
      assert.deepEqual(nodesOf(pool.allocate(32 * MiB).bytes), [pool.numaNode])
    }
  })

  it('memory that another thread has filled is pinned, and survives a round trip', async () => {
    using pool = open({})
    const bytes = 40 * MiB
    assert.equal(await pool.reserveSoon(bytes), bytes)
    using stream = gpu.createStream()
    using target = devicePool.allocate(bytes, stream)
    for (const take of [() => pool.allocate(bytes), () => pool.allocateSoon(bytes)]) {
      const up = await take()
      randomFillSync(up.bytes)
      up.copyTo(target)
      const down = await pool.allocateSoon(bytes)
      down.copyFrom(target)
      await stream.finished()
      assert.ok(Buffer.from(down.bytes).equals(up.bytes))
      up.free()
      down.free()
    }
    pool.check()
  })

  it('a pool that is closed while memory is filled pins nothing', async () => {
    const pool = open({})
    const calls: Promise<unknown>[] = [pool.reserveSoon(256 * MiB), pool.allocateSoon(64 * MiB)]
    pool.close()
    await Promise.all(calls.map(call => assert.rejects(call, { code: 'ERR_POOL_CLOSED' })))
  })
})

/** The NUMA nodes of the pages in memory that was bound. */
function nodesOf(memory: Uint8Array): number[] {
  const address = gpu.driver.hostAddress(memory)
  const lines = readFileSync(NUMA_MAPS, 'utf8').trim().split('\n')
  const line = lines.findLast(each => Number.parseInt(each, 16) <= address)!
  return [...line.matchAll(/ N(\d+)=/g)].map(([, node]) => Number(node))
}
