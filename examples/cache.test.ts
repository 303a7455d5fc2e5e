// Tests of a program's own code on the simulated device, which needs no GPU and fails where a test asks it to. Every
// test runner can do so; this is Node's.
// docs/recipes/tests.md explains it. In a clone: npm run build && node --test dist/examples/cache.test.js

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { type CachingPool, type DeviceBuffer, DeviceLostError, MiB, OutOfMemoryError, openDevice } from 'cuda-mempool'
import { SimulatedDriver } from 'cuda-mempool/simulated'

/** The code under test: all buffers, or none. */
function loadAll(pool: CachingPool, sizes: readonly number[]): DeviceBuffer[] {
  const loaded: DeviceBuffer[] = []
  try {
    for (const bytes of sizes) loaded.push(pool.allocate(bytes))
    return loaded
  } catch (error) {
    for (const buffer of loaded) buffer.free()
    throw error
  }
}

function open() {
  const driver = new SimulatedDriver({ capacityBytes: 64 * MiB })
  const device = openDevice(driver)
  return { driver, pool: device.createPool(), [Symbol.dispose]: () => device.close() }
}

describe('loadAll', () => {
  test('frees everything when memory runs out', () => {
    using opened = open()
    assert.throws(() => loadAll(opened.pool, [32 * MiB, 16 * MiB, 32 * MiB]), OutOfMemoryError)
    assert.equal(opened.pool.stats().liveBuffers, 0)
  })

  test('survives one failure of the driver, and works again after many', () => {
    using opened = open()
    const { driver, pool } = opened
    driver.failCall({ call: 'cuMemCreate' })
    assert.equal(loadAll(pool, [16 * MiB]).length, 1)
    driver.failCall({ call: 'cuMemCreate', onwards: true })
    assert.throws(() => loadAll(pool, [32 * MiB]), { code: 'ERR_OUT_OF_MEMORY' })
    driver.clearFaults()
    assert.equal(loadAll(pool, [32 * MiB]).length, 1)
  })

  test('calls the driver no more in a steady step', () => {
    using opened = open()
    const { driver, pool } = opened
    const step = () => {
      for (const buffer of loadAll(pool, [4 * MiB, 1000])) buffer.free()
    }
    for (let round = 0; round < 5; round++) step()
    const before = [...driver.calls]
    step()
    assert.deepEqual([...driver.calls], before)
  })
})

describe('a program', () => {
  test('learns that a copy failed, and that the device is lost', () => {
    using opened = open()
    const { driver, pool } = opened
    driver.failCall({ call: 'cuMemcpyHtoDAsync' })
    assert.throws(() => pool.upload(new Float32Array(4)), { code: 'ERR_CUDA' })
    assert.equal(pool.stats().liveBuffers, 0)
    const buffer = pool.allocate(16)
    driver.failCall({ call: 'cuStreamSynchronize', code: 'CUDA_ERROR_ILLEGAL_ADDRESS' }) // as a kernel's fault shows
    assert.throws(() => buffer.readSync(), { code: 'ERR_CUDA' })
    assert.throws(() => buffer.fill(0), DeviceLostError) // so is every later call
  })

  test('that forgets a buffer is found out', () => {
    using device = openDevice('simulated')
    const pool = device.createPool({ debug: true })
    pool.allocate(10)
    assert.equal(pool.close().heldBuffers, 1)
  })

  test('can compare and print its buffers', () => {
    using opened = open()
    const [first, second] = loadAll(opened.pool, [1024, 1024])
    assert.notDeepEqual(first, second)
    assert.equal(JSON.parse(JSON.stringify(first)).byteLength, 1024)
  })
})
