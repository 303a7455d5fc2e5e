// Sleep and wake on a GPU: contents, views, a graph, growable buffers and a device that is full at wake. Fails without
// a GPU.

import assert from 'node:assert/strict'
import { randomFillSync } from 'node:crypto'
import { after, describe, it } from 'node:test'
import { GiB, KiB, MiB } from '../../../base/bytes.js'
import { OutOfMemoryError } from '../../../base/errors.js'
import type { DeviceBuffer } from '../../buffer.js'
import { GpuDevice } from '../../gpu-device.fixture.js'

const gpu = new GpuDevice()
after(() => gpu.close())

const freeBytes = () => gpu.context.activate().cuMemGetInfo().freeBytes

function filled(buffer: DeviceBuffer): { buffer: DeviceBuffer; bytes: Uint8Array } {
  const bytes = randomFillSync(new Uint8Array(buffer.byteLength))
  buffer.write(bytes)
  return { buffer, bytes }
}

function assertKept({ buffer, bytes }: { buffer: DeviceBuffer; bytes: Uint8Array }): void {
  assert.ok(Buffer.from(buffer.readSync()).equals(bytes), `${bytes.length} bytes are kept`)
}

describe('a pool that sleeps on a GPU', () => {
  it('keeps every byte, in views too, and gives the memory to the device meanwhile', async () => {
    const before = freeBytes()
    using pool = gpu.createPool({ backing: 'virtual', maxPoolBytes: 256 * MiB })
    const blocks = Array.from({ length: 8 }, () => pool.allocate(32 * MiB))
    const kept = [0, 2, 4, 6].map(index => filled(blocks[index]))
    for (const index of [1, 3, 5]) blocks[index].free()
    kept.push(filled(pool.allocate(80 * MiB)), filled(pool.allocate(1000)))
    for (const wait of ['host', 'streams'] as const) {
      const addresses = kept.map(({ buffer }) => buffer.ptr)
      await pool.sleep()
      assert.equal(pool.stats().reservedBytes, 0)
      assert.ok(freeBytes() >= before - 8 * MiB, `${before - freeBytes()} bytes are missing`)
      await pool.wake({ wait, keepCopy: wait === 'host' })
      assert.deepEqual(
        kept.map(({ buffer }) => buffer.ptr),
        addresses,
      )
      kept.forEach(assertKept)
      await pool.sleep({ unchanged: wait === 'host' })
      await pool.wake()
      kept.forEach(assertKept)
      pool.check()
    }
  })

  it('keeps many small blocks, neighbours and others, with batches of copies and without', async () => {
    const { driver } = gpu.context
    const version = driver.cuDriverGetVersion()
    using pool = gpu.createPool({ backing: 'virtual', maxPoolBytes: 512 * MiB })
    const blocks = Array.from({ length: 1500 }, (_, index) => pool.allocate(index % 3 === 0 ? 64 * KiB : 128 * KiB))
    for (const [index, block] of blocks.entries()) if (index % 4 === 1) block.free()
    const kept = blocks.filter(({ freed }) => !freed).map(filled)
    for (const reported of [version, 12_000]) {
      driver.cuDriverGetVersion = () => reported
      await pool.sleep()
      await pool.wake({ keepCopy: true })
      kept.forEach(assertKept)
      await pool.sleep({ unchanged: true })
      await pool.wake()
      kept.forEach(assertKept)
    }
    driver.cuDriverGetVersion = () => version
  })

  it('lets a graph run again after wake', async () => {
    using pool = gpu.createPool({ backing: 'virtual' })
    using stream = gpu.createStream()
    const [source, target] = [pool.allocate(4 * MiB, stream), pool.allocate(4 * MiB, stream)]
    const { bytes } = filled(source)
    stream.synchronize()
    stream.beginCapture()
    target.copyFrom(source)
    using graph = stream.endCapture()
    await pool.sleep()
    assert.throws(() => graph.launch(stream), /is asleep/)
    await pool.wake()
    graph.launch(stream)
    assertKept({ buffer: target, bytes })
  })

  it('sleeps on when the device is full at wake', async () => {
    using pool = gpu.createPool({ backing: 'virtual' })
    const kept = filled(pool.allocate(1 * GiB))
    await pool.sleep()
    const other = gpu.createPool({ backing: 'virtual', maxPoolBytes: '100%' })
    other.allocate(Math.floor((freeBytes() - 256 * MiB) / (64 * MiB)) * 64 * MiB)
    await assert.rejects(pool.wake(), (error: unknown) => error instanceof OutOfMemoryError)
    other.close()
    await pool.wake()
    assertKept(kept)
  })

  it('wakes a growable buffer at its address', async () => {
    const buffer = gpu.createGrowableBuffer({ bytes: 100 * MiB })
    const kept = filled(buffer)
    const { ptr } = buffer
    await buffer.sleep()
    assert.equal(buffer.mappedBytes, 0)
    await buffer.wake()
    assert.equal(buffer.ptr, ptr)
    assertKept(kept)
    buffer.free()
    buffer.settleSync()
  })
})
