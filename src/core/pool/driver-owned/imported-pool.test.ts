// Shared pools on the simulated device, where the opening process is the process that made the pool. A real socket
// passes the descriptor.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { MiB } from '../../base/bytes.js'
import { PoolError } from '../../base/errors.js'
import { CU_MEM_ACCESS_FLAGS_PROT_NONE } from '../../driver/constants.js'
import type { SimulatedOptions } from '../../driver/simulated/options.js'
import { TestDevice } from '../pool.fixture.js'
import type { DriverPool } from './driver-pool.js'
import type { ImportedPool } from './imported-pool.js'

const PATH = '/tmp/imported-pool-test'
const SHORT = { timeoutMs: 20 }

async function opened(device: TestDevice, pool: DriverPool): Promise<ImportedPool> {
  const exporting = pool.exportTo(PATH)
  try {
    return await device.importPool(PATH)
  } finally {
    await exporting
  }
}

async function openPair(options: SimulatedOptions = {}) {
  const device = new TestDevice(options)
  const pool = device.createDriverPool({ handleTypes: 'posixFileDescriptor' })
  return { device, pool, imported: await opened(device, pool) }
}

describe('an imported pool', () => {
  it('a block is the same memory at another address, and a free here ends only the import', async () => {
    const { device, pool, imported } = await openPair()
    const stream = device.createStream()
    const before = pool.allocate(1 * MiB)
    before.fill(0)
    const block = pool.allocate(5000)
    block.fill(4)
    const exported = pool.exportPointer(block)
    assert.ok(exported instanceof Uint8Array && exported.length === 120)
    const view = imported.importBuffer(Buffer.from(exported), stream)
    assert.notEqual(view.ptr, block.ptr)
    assert.deepEqual([view.byteLength, view.stream, view.device], [5000, stream, 0])
    assert.equal((await view.read())[4999], 4)
    view.fill(6)
    stream.synchronize()
    assert.deepEqual([block.readSync(0, 1)[0], before.readSync(0, 1)[0]], [6, 0])
    assert.deepEqual([imported.stats().liveBuffers, imported.stats().liveBytes], [1, 5000])
    view.free()
    assert.equal(imported.stats().liveBuffers, 0)
    assert.equal(block.freed, false)
    block.fill(7)
    assert.equal(block.readSync()[0], 7)
    imported.close()
    imported.close()
    pool.close()
    assert.equal(device.freeBytes(), device.totalBytes)
  })

  it("the import of an aligned buffer begins at the buffer, not at the driver's block", async () => {
    const { device, pool, imported } = await openPair()
    for (let count = 0; count < 3; count++) {
      pool.allocate(1000)
      const block = pool.allocate(4096, device.defaultStream, 1 * MiB)
      block.fill(count + 1)
      const view = imported.importBuffer(pool.exportPointer(block))
      assert.deepEqual([view.readSync(0, 1)[0], view.readSync(4095)[0]], [count + 1, count + 1])
      view.free()
    }
    imported.close()
  })

  it('a free waits for all streams that use a block', async () => {
    const { device, pool, imported } = await openPair()
    const [a, b] = [device.createStream(), device.createStream()]
    const view = imported.importBuffer(pool.exportPointer(pool.allocate(1 * MiB)), a)
    view.recordUse(b)
    const release = device.hold(b)
    device.context.activate().cuMemsetD8Async(view.ptr, 1, 1 * MiB, b.handle)
    view.free()
    assert.equal(a.query(), false)
    release()
    imported.close() // a missing wait would be a fault here
  })

  it('a block can be imported only once at a time, because the driver does not count imports', async () => {
    const { device, pool, imported } = await openPair()
    const exported = pool.exportPointer(pool.allocate(1 * MiB))
    const view = imported.importBuffer(exported)
    const twice = { name: 'PoolError', message: /imported already/ }
    assert.throws(() => imported.importBuffer(exported), twice)
    assert.equal(device.driver.calls.get('cuMemPoolImportPointer'), 1, 'the driver is not asked')
    const otherwise = exported.slice()
    otherwise[63] = 1 // other bytes for the same block, as this simulated driver reads them
    assert.throws(() => imported.importBuffer(otherwise), twice)
    view.fill(1)
    view.free()
    imported.importBuffer(exported).free()
  })

  it('only live blocks that this pool exported can be imported', async () => {
    const { device, pool, imported } = await openPair()
    const block = pool.allocate(1 * MiB)
    const exported = pool.exportPointer(block)
    const other = device.createDriverPool({ handleTypes: 'posixFileDescriptor' })
    const foreign = other.exportPointer(other.allocate(1 * MiB))
    assert.throws(() => imported.importBuffer(foreign), { name: 'PoolError', message: /the block is of another pool/ })
    for (const bytes of [null, undefined, 'text', [...exported], exported.buffer]) {
      assert.throws(() => imported.importBuffer(bytes as never), {
        name: 'TypeError',
        message: /bytes must be the Uint8Array of exportPointer/,
      })
    }
    for (const bytes of [exported.subarray(0, 119), new Uint8Array(64), new Uint8Array(0), new Uint8Array(120)]) {
      assert.throws(() => imported.importBuffer(bytes), { name: 'RangeError', message: /importBuffer/ })
    }
    const broken = exported.slice().fill(255, 0, 64)
    assert.throws(() => imported.importBuffer(broken), { name: 'PoolError', message: /owner has freed/ })
    for (const stream of [5, null] as never[]) {
      assert.throws(() => imported.importBuffer(exported, stream), { name: 'TypeError', message: /stream must be/ })
    }
    assert.throws(() => imported.importBuffer(exported, new TestDevice().createStream()), {
      name: 'PoolError',
      message: /importBuffer: .*another device/,
    })
    block.free()
    assert.throws(() => imported.importBuffer(exported), {
      name: 'PoolError',
      message: /importBuffer: .*its owner has freed or closed it/,
    })
    const again = pool.allocate(1 * MiB)
    assert.throws(() => imported.importBuffer(exported), PoolError, 'the same place, another block')
    imported.importBuffer(pool.exportPointer(again)).free()
    assert.equal(imported.stats().liveBuffers, 0)
  })

  it('allocate, trim and share throw', async () => {
    const { device, pool, imported } = await openPair()
    const view = imported.importBuffer(pool.exportPointer(pool.allocate(1 * MiB)))
    const uses: readonly (() => unknown)[] = [
      () => (imported as { allocate(bytes: number): unknown }).allocate(1),
      () => (imported as { tryAllocate(bytes: number): unknown }).tryAllocate(1),
      () => imported.allocateArray(Float32Array, 4),
      () => imported.allocateAsync(1, device.defaultStream),
      () => imported.trimTo(0),
      () => imported.exportTo(PATH),
      () => imported.exportPointer(view),
    ]
    for (const use of uses)
      assert.throws(use, { name: 'PoolError', message: /this pool is another process's/ }, `${use}`)
    assert.throws(() => pool.exportPointer(view), { name: 'PoolError', message: /none of this pool/ })
    imported.close()
    assert.throws(() => imported.importBuffer(new Uint8Array(120)), { name: 'PoolError', message: /pool is closed/ })
  })

  it('it has access rights of its own, and its device has access from the start', async () => {
    const { device, pool, imported } = await openPair()
    assert.deepEqual([imported.access(device), imported.access('host')], ['readWrite', 'none'])
    assert.throws(() => imported.setAccess(device, 'none'), { name: 'PoolError', message: /own device keeps access/ })
    // A driver that gives an importer no access.
    imported.close()
    const { driver } = device
    const { cuMemPoolGetAccess } = driver
    driver.cuMemPoolGetAccess = () => CU_MEM_ACCESS_FLAGS_PROT_NONE
    const before = driver.calls.get('cuMemPoolSetAccess') ?? 0
    const second = await opened(device, pool)
    assert.equal(driver.calls.get('cuMemPoolSetAccess'), before + 1)
    second.close()
    driver.failCall({ call: 'cuMemPoolSetAccess', code: 999 })
    const destroyed = driver.calls.get('cuMemPoolDestroy') ?? 0
    await assert.rejects(opened(device, pool), { name: 'CudaError', call: 'cuMemPoolSetAccess' })
    assert.equal(driver.calls.get('cuMemPoolDestroy'), destroyed + 1, 'it is no use without')
    driver.cuMemPoolGetAccess = cuMemPoolGetAccess
  })

  it('it must be closed before the pool that it came from', async () => {
    const { device, pool, imported } = await openPair()
    const block = pool.allocate(1 * MiB)
    assert.equal(pool.importers, 1)
    const view = imported.importBuffer(pool.exportPointer(block))
    assert.throws(() => pool.close(), { name: 'PoolError', message: /^close: 1 other process has this pool open/ })
    view.fill(1)
    assert.equal(block.readSync()[0], 1, 'nothing was closed')
    imported.close()
    assert.equal(view.freed, true)
    assert.equal(pool.importers, 0)
    const second = await opened(device, pool)
    assert.equal(pool.importers, 1)
    device.driver.failCall({ call: 'cuMemPoolDestroy', code: 999 })
    assert.throws(() => second.close(), { name: 'CudaError' })
    assert.equal(pool.importers, 1, 'it is not closed yet')
    second.close()
    pool.close()
  })

  it('a process can open a pool only once at a time', async () => {
    const { device, pool, imported } = await openPair()
    const sharing = pool.exportTo(PATH)
    await assert.rejects(device.importPool(PATH), { name: 'PoolError', message: /has opened the pool.*already/ })
    await sharing
    assert.equal(pool.importers, 1)
    imported.close()
    await opened(device, pool)
  })

  it('a pool whose owner is gone cannot be opened, and a pool cannot close while it is exported', async () => {
    const { device, pool, imported } = await openPair()
    imported.close()
    const sharing = pool.exportTo(PATH, SHORT)
    assert.throws(() => pool.close(), {
      name: 'PoolError',
      message: /is being exported; wait for the promise of exportTo/,
    })
    await assert.rejects(sharing, { name: 'DescriptorError', resultName: 'ETIMEDOUT' })
    device.driver.failCall({ call: 'cuMemPoolImportFromShareableHandle', code: 1 })
    const last = pool.exportTo(PATH)
    await assert.rejects(device.importPool(PATH), {
      name: 'PoolError',
      message: /importPool: .*its owner has freed or closed it/,
    })
    await last
    assert.equal(pool.importers, 0)
    pool.close()
    await assert.rejects(pool.exportTo(PATH), { name: 'PoolError', message: /the pool is closed/ })
    await assert.rejects(device.importPool(PATH, SHORT), { name: 'DescriptorError', resultName: 'ETIMEDOUT' })
  })

  it('only a pool that was made to be shared can be shared', async () => {
    const device = new TestDevice({ capacityBytes: 256 * MiB })
    for (const pool of [device.defaultDriverPool(), device.createDriverPool()]) {
      const expected = { name: 'PoolError', message: /createDriverPool\(\{ handleTypes: 'posixFileDescriptor' \}\)/ }
      await assert.rejects(pool.exportTo(PATH), expected)
      assert.throws(() => pool.exportPointer(pool.allocate(1)), expected)
    }
    const pool = device.createDriverPool({ handleTypes: 'posixFileDescriptor' })
    for (const buffer of [5, null, new Float32Array(4)] as never[]) {
      assert.throws(() => pool.exportPointer(buffer), { name: 'TypeError', message: /buffer must be a DeviceBuffer/ })
    }
    const array = pool.allocateArray(Float32Array, 4)
    assert.deepEqual(pool.exportPointer(array), pool.exportPointer(array.buffer))
    assert.throws(() => pool.exportPointer(array.subarray(1)), { name: 'PoolError', message: /this is a view/ })
    assert.throws(() => pool.exportPointer(device.createPlainPool().allocate(1)), {
      name: 'PoolError',
      message: /none of this pool/,
    })
    const stale = pool.allocate(1)
    stale.free()
    assert.throws(() => pool.exportPointer(stale), { name: 'PoolError', message: /exportPointer: .*already freed/ })
    await assert.rejects(pool.exportTo(''), { name: 'RangeError', message: /path/ })
    await assert.rejects(pool.exportTo(PATH, { timeoutMs: -1 }), { name: 'RangeError', message: /timeoutMs/ })
    await assert.rejects(device.importPool('\0'), { name: 'RangeError', message: /path/ })
  })

  it('a pool on a NUMA node is shared like one on the device', async () => {
    const device = new TestDevice()
    const pool = device.createDriverPool({ location: { numaNode: 0 }, handleTypes: 'posixFileDescriptor' })
    const imported = await opened(device, pool)
    const block = pool.allocate(1 * MiB)
    imported.importBuffer(pool.exportPointer(block)).fill(3)
    assert.equal(block.readSync()[0], 3)
  })
})
