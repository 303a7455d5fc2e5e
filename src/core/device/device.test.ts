// A device works with all that it makes, and beside other devices. Its streams, its close and its captures have files
// of their own.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { GiB, MiB } from '../base/bytes.js'
import { SimulatedDriver } from '../driver/simulated/simulated-driver.js'
import { PTX } from './device.fixture.js'
import type { Device } from './device.js'
import { openDevice, openDevices } from './open.js'

describe('a device', () => {
  it('streams, pools, modules and events of a device work together', async () => {
    using device = openDevice('simulated')
    using stream = device.createStream()
    using pool = device.createPool({ maxPoolBytes: 1 * GiB })
    using module = device.loadModule(PTX)
    using event = device.createEvent()
    const array = pool.allocateArray(Int32Array, 1024, stream)
    array.write(Int32Array.from({ length: 1024 }, (_, index) => index))
    module.kernel('device_test_increment').launch({ grid: 4, block: 256, stream }, array, 1024)
    event.record(stream)
    device.defaultStream.wait(event)
    const copy = pool.allocateArray(Int32Array, 1024)
    copy.copyFrom(array)
    assert.deepEqual([...(await copy.read()).subarray(0, 3)], [1, 2, 3])
    await event.finished()
    array.free()
    copy.free()
    device.synchronize()
    assert.equal(pool.stats().liveBuffers, 0)
    pool.check()
  })

  it('every kind of shared pool is refused in Bun, with the remedy', t => {
    const versions = Object.getOwnPropertyDescriptor(process, 'versions')!
    t.after(() => Object.defineProperty(process, 'versions', versions))
    Object.defineProperty(process, 'versions', { ...versions, value: { ...process.versions, bun: '1.4.5' } })
    using device = openDevice('simulated')
    const refused = { name: 'PoolError', message: /needs Node, not Bun; run the program with Node/ }
    assert.throws(() => device.createSharedPool(), refused)
    assert.throws(() => device.createSharedArenaPool({ bytes: 1 * MiB }), refused)
    assert.throws(() => device.createSharedBlockPool({ blockBytes: 256, count: 4 }), refused)
    assert.throws(() => device.createSharedHostPool(), refused)
  })

  it('kernels take growable buffers and their views, before and after they grew', () => {
    using device = openDevice('simulated')
    const kernel = device.loadModule(PTX).kernel('device_test_increment')
    using growable = device.createGrowableBuffer({ bytes: 1 * MiB })
    using first = growable.array(Int32Array, 2)
    growable.fill(0)
    kernel.launch({ grid: 1, block: 1 }, growable, MiB / 4)
    growable.grow(5 * MiB)
    growable.fill(0, 1 * MiB)
    kernel.launch({ grid: 1, block: 1 }, growable, (5 * MiB) / 4)
    kernel.launch({ grid: 1, block: 1 }, first, first.length)
    assert.deepEqual([...first.readSync()], [3, 3])
    const words = new Int32Array(growable.readSync().buffer)
    assert.deepEqual([words[2], words[MiB / 4 - 1], words[MiB / 4], words.at(-1)], [2, 2, 1, 1])
    assert.throws(
      () => kernel.launch({ grid: 1, block: 1 }, openDevice('simulated').createGrowableBuffer({ bytes: 4 }), 1),
      {
        name: 'PoolError',
        message: /another device/,
      },
    )
  })

  it('kernels take only memory of their own device, as a buffer, an array or a view', () => {
    const driver = new SimulatedDriver({ devices: 2 })
    using device = openDevice(driver, 0)
    using other = openDevice(driver, 1)
    const kernel = device.loadModule(PTX).kernel('device_test_increment')
    const foreign = other.createPool().allocateArray(Int32Array, 4)
    for (const memory of [foreign.buffer, foreign, foreign.subarray(1)]) {
      assert.throws(() => kernel.launch({ grid: 1, block: 1 }, memory, 1), {
        name: 'PoolError',
        message: /another device/,
      })
    }
  })

  it('each device has its own memory, whichever was used last', () => {
    const driver = new SimulatedDriver({ devices: 2, capacityBytes: 64 * MiB })
    const devices = [openDevice(driver, 0), openDevice(driver, 1)]
    const pools = devices.map(device => device.createPool({ maxPoolBytes: '100%' }))
    const buffers = pools.map(pool => pool.allocate(40 * MiB))
    for (const [index, buffer] of buffers.entries()) buffer.fill(index + 1)
    for (const [index, buffer] of buffers.entries()) assert.equal(buffer.readSync(5, 1)[0], index + 1)
    buffers[0].copyFrom(buffers[1], 0, 0, 1)
    assert.deepEqual([...buffers[0].readSync(0, 2)], [2, 1])
    assert.throws(() => pools[0].allocate(1, devices[1].defaultStream), {
      name: 'PoolError',
      message: /another device/,
    })
    assert.throws(() => pools[0].free(buffers[1]), { name: 'PoolError', message: /another pool/ })
    devices[1].synchronize()
    buffers[0].free()
    devices[0].synchronize()
    buffers[1].free()
    assert.equal(devices[1].memoryInfo().freeBytes, 24 * MiB)
    for (const device of devices) device.close()
    assert.deepEqual([driver.usedBytes(0), driver.usedBytes(1)], [0, 0])
  })

  it('a launch with memory of a pool that threads share advises a copy to another device', () => {
    const [first, second] = openDevices('simulated')
    const kernel = second.loadModule(PTX).kernel('device_test_increment')
    using pool = first.createSharedPool()
    using buffer = pool.allocate(1000)
    const message = /setAccess\(device1, 'readWrite'\) unless threads share the pool, or copy with copyFrom$/
    assert.throws(() => kernel.launch({ grid: 1, block: 1 }, buffer, 4), { name: 'PoolError', message })
    const refusal = { name: 'PoolError', message: /use one of createPool, or copy with copyFrom$/ }
    assert.throws(() => pool.setAccess(second, 'readWrite'), refusal)
    using copy = second.createPool().allocate(1000)
    copy.copyFrom(buffer)
  })

  it("devices access each other's memory once that is enabled", () => {
    const [first, second] = openDevices('simulated')
    const kernel = second.loadModule(PTX).kernel('device_test_increment')
    const array = first.createPlainPool().allocateArray(Int32Array, 4)
    array.fill(0)
    first.synchronize()
    const launch = () => kernel.launch({ grid: 1, block: 1 }, array, 4)
    assert.deepEqual([second.canAccessPeer(first), first.canAccessPeer(first)], [true, true])
    assert.throws(launch, { name: 'PoolError', message: /device 1 has no access .*device 0.*setAccess\(device1/ })
    for (let round = 0; round < 2; round++) second.enablePeerAccess(first)
    launch()
    second.synchronize()
    assert.deepEqual([...array.readSync()], [1, 1, 1, 1])
    const pool = first.createPool()
    pool.setAccess(second, 'readWrite')
    const other = pool.allocateArray(Int32Array, 4)
    other.fill(0)
    first.synchronize()
    kernel.launch({ grid: 1, block: 1 }, other, 4)
    second.synchronize()
    assert.deepEqual([...other.readSync()], [1, 1, 1, 1])
    for (const device of [first, second]) device.close()
    assert.throws(() => second.canAccessPeer(first), { name: 'PoolError', message: /device is closed/ })
    assert.throws(() => second.enablePeerAccess(first), { name: 'PoolError', message: /device is closed/ })
  })

  it('peer access is refused by name if the devices cannot reach each other, or one is closed or no device', () => {
    const [first, second] = openDevices(new SimulatedDriver({ devices: 2, peerAccess: false }))
    assert.equal(first.canAccessPeer(second), false)
    assert.throws(() => first.enablePeerAccess(second), { name: 'PoolError', message: /device 0 cannot .*device 1/ })
    const elsewhere = openDevice('simulated')
    assert.equal(first.canAccessPeer(elsewhere), false)
    assert.throws(() => first.enablePeerAccess(elsewhere), { name: 'PoolError', message: /two drivers/ })
    for (const bad of [undefined, null, 1, {}, first.context] as unknown as Device[]) {
      assert.throws(() => first.canAccessPeer(bad), { name: 'TypeError', message: /other must be a Device/ })
      assert.throws(() => first.enablePeerAccess(bad), { name: 'TypeError', message: /other must be a Device/ })
    }
    second.close()
    assert.throws(() => first.enablePeerAccess(second), { name: 'PoolError', message: /device 1 is closed/ })
  })
})
