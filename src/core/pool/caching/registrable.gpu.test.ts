// Registrable memory on a real GPU: what the driver grants, one mapping a segment, and that all of it goes back. With
// two GPUs, also that the other reaches it unasked. Without a GPU it fails.

import assert from 'node:assert/strict'
import { after, describe, it } from 'node:test'
import { MiB } from '../../base/bytes.js'
import { GpuDevice } from '../gpu-device.fixture.js'

const gpu = new GpuDevice()
after(() => gpu.close())

const freeBytes = () => gpu.context.activate().cuMemGetInfo().freeBytes

/** Why the other GPU cannot be used; false if it can. */
function noPeer(): string | false {
  const { driver } = gpu
  const count = driver.cuDeviceGetCount()
  if (count < 2) return `this needs two GPUs, and the driver finds ${count}`
  const other = driver.cuDeviceGet(1)
  return driver.cuDeviceCanAccessPeer(other, gpu.context.device) ? false : 'GPU 1 has no way to GPU 0'
}

describe('registrable memory on a GPU', () => {
  it('holds what kernels and copies put there, in one mapping a segment', () => {
    gpu.createPool({ backing: 'registrable' }).allocate(1) // the first kernel and mapping cost memory once
    gpu.synchronize()
    const before = freeBytes()
    const pool = gpu.createPool({ backing: 'registrable', maxPoolBytes: 256 * MiB })
    const calls = { cuMemCreate: 0, cuMemMap: 0, cuMemUnmap: 0 }
    const { driver } = gpu
    for (const name of Object.keys(calls) as (keyof typeof calls)[]) {
      const call = driver[name].bind(driver) as (...args: unknown[]) => number
      driver[name] = ((...args: unknown[]) => {
        calls[name]++
        return call(...args)
      }) as never
    }
    const held = [1000, 5 * MiB, 33 * MiB, 7 * MiB + 4].map(bytes => pool.allocate(bytes))
    held.forEach((buffer, index) => {
      gpu.stamp(buffer, index + 1)
      gpu.compare(buffer, index + 1)
    })
    assert.deepEqual(gpu.damages(), [])
    held[1].fill(7)
    assert.equal(held[1].readSync(5 * MiB - 1)[0], 7)
    const segments = pool.segments()
    for (const { ptr, bytes } of segments) {
      assert.ok(ptr % (2 * MiB) === 0 && bytes % (2 * MiB) === 0, `${bytes} at ${ptr}`)
      assert.throws(() => driver.cuMemUnmap(ptr, bytes / 2), { name: 'CudaError' }, 'a segment is one mapping')
    }
    assert.equal(calls.cuMemMap, segments.length)
    assert.ok(calls.cuMemCreate - segments.length <= 1, 'one refusal of fabric handles at most')
    for (const buffer of held.slice(1)) buffer.free()
    gpu.synchronize()
    pool.trimTo(0)
    assert.equal(pool.segments().length, 1)
    pool.allocate(200 * MiB).fill(1)
    pool.close()
    for (const name of Object.keys(calls)) delete (driver as unknown as Record<string, unknown>)[name]
    assert.equal(freeBytes(), before)
  })

  it('is the memory of an arena, and memory of others is handed out and left alone', () => {
    const arena = gpu.createArenaPool({ bytes: 5 * MiB, backing: 'registrable' })
    const whole = arena.allocate(6 * MiB)
    gpu.stamp(whole, 3)
    const [{ ptr, bytes }] = arena.segments()
    const over = gpu.createArenaPool({ over: { ptr, byteLength: bytes } })
    const same = over.allocate(6 * MiB)
    gpu.compare(same, 3)
    over.close()
    gpu.compare(whole, 3)
    assert.deepEqual(gpu.damages(), [])
    arena.close()
  })

  it('is reached by the other GPU, from the moment an observer hears of it', { skip: noPeer() }, () => {
    const peer = new GpuDevice(1)
    const pool = gpu.createPool({ backing: 'registrable' })
    let ready = 0
    const stop = pool.observeSegments({
      ready({ ptr, bytes }) {
        ready++
        peer.context.activate().cuMemsetD8Async(ptr, 9, bytes, peer.defaultStream.handle)
        peer.synchronize()
      },
      leaving() {},
    })
    const buffer = pool.allocate(40 * MiB)
    assert.ok(ready > 0)
    assert.equal(buffer.readSync(40 * MiB - 1)[0], 9)
    peer.stamp(buffer, 5, peer.defaultStream)
    peer.synchronize()
    gpu.compare(buffer, 5)
    assert.deepEqual(gpu.damages(), [])
    pool.setAccess(peer, 'none')
    assert.throws(() => peer.stamp(buffer, 1, peer.defaultStream), { name: 'PoolError', message: /no access/ })
    pool.setAccess(peer, 'readWrite')
    peer.stamp(buffer, 6, peer.defaultStream)
    peer.synchronize()
    gpu.compare(buffer, 6)
    assert.deepEqual(gpu.damages(), [])
    stop()
    pool.close()
    peer.close()
  })
})
