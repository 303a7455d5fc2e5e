// The front door: opening devices, and what one makes, keeps and closes. One file, long as that list is, so that each thing
// a device makes is seen beside the others in the same few checks.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { GiB, KiB, MiB } from '../base/bytes.js'
import { NoDeviceError, PoolError } from '../base/errors.js'
import { SimulatedDriver } from '../driver/simulated/simulated-driver.js'
import { registerSimulatedKernel } from '../driver/simulated-kernels.js'
import type { Stream } from '../order/stream.js'
import { withFallback } from '../pool/wrappers/fallback.js'
import type { Device } from './device.js'
import { type DeviceChoice, openDevice, openDevices, parseDeviceChoice } from './open.js'

/** Whether this machine has a GPU, which decides the outcome of some choices. */
function hasGpu(): boolean {
  try {
    openDevice(0).close()
    return true
  } catch (error) {
    if (error instanceof NoDeviceError) return false
    throw error
  }
}

const PATH = '/tmp/device-test'
const PTX = `
.version 8.0
.target sm_90
.address_size 64
.visible .entry device_test_increment(.param .u64 words, .param .u32 count) { ret; }`

registerSimulatedKernel('device_test_increment', ({ args, memory }) => {
  const [ptr, count] = [args.pointer(0), args.uint32(1)]
  memory.store(
    ptr,
    memory.load(Int32Array, ptr, count).map(word => word + 1),
  )
})

describe('opening a device', () => {
  it("'simulated' opens without a GPU", () => {
    using device = openDevice('simulated')
    assert.deepEqual([device.simulated, device.ordinal, device.totalBytes], [true, 0, 140 * GiB])
    assert.match(device.name, /simulated/)
    assert.deepEqual(device.memoryInfo(), { freeBytes: 140 * GiB, totalBytes: 140 * GiB })
  })

  it("without a GPU, a number throws with a remedy, and 'auto' opens the simulated device", () => {
    if (hasGpu()) {
      for (const choice of [undefined, 0, 'auto'] as const) {
        using device = openDevice(choice)
        assert.equal(device.simulated, false)
      }
      return
    }
    for (const choice of [undefined, 0, 1]) {
      assert.throws(() => openDevice(choice), { name: 'NoDeviceError', message: /openDevice\('simulated'\)/ })
    }
    using device = openDevice('auto')
    assert.equal(device.simulated, true)
  })

  it('a number beyond the GPUs throws NoDeviceError', () => {
    assert.throws(() => openDevice(9999), { name: 'NoDeviceError' })
    assert.throws(() => openDevice(1e20), { name: 'NoDeviceError' })
  })

  it('a custom driver can have several devices', () => {
    const driver = new SimulatedDriver({ devices: 3, capacityBytes: 1 * GiB })
    using first = openDevice(driver)
    using third = openDevice(driver, 2)
    assert.deepEqual([first.ordinal, third.ordinal, third.driver], [0, 2, driver])
    assert.throws(() => openDevice(driver, 3), {
      name: 'NoDeviceError',
      message: /device 3 does not exist: the driver finds 3/,
    })
    for (const ordinal of [-1, 0.5, Number.NaN]) {
      assert.throws(() => openDevice(driver, ordinal), { name: 'RangeError' }, `ordinal ${ordinal}`)
    }
  })

  it('a driver without devices is a NoDeviceError, and any other failure a CudaError', () => {
    const none = new SimulatedDriver({ faults: [{ call: 'cuInit', code: 100 }] })
    assert.throws(() => openDevice(none), { name: 'NoDeviceError', message: /finds no GPU.*openDevice\('simulated'\)/ })
    for (const call of ['cuInit', 'cuDeviceGetCount', 'cuDeviceGet', 'cuDevicePrimaryCtxRetain'] as const) {
      const broken = new SimulatedDriver({ faults: [{ call, code: 999 }] })
      assert.throws(() => openDevice(broken), { name: 'CudaError', call })
    }
  })

  it('openDevices opens all devices on one driver', () => {
    const driver = new SimulatedDriver({ devices: 3 })
    const devices = openDevices(driver)
    assert.deepEqual(
      devices.map(device => [device.ordinal, device.driver === driver]),
      [0, 1, 2].map(ordinal => [ordinal, true]),
    )
    for (const device of devices) device.close()
    assert.deepEqual([openDevices('simulated').length, openDevices('auto').length >= 1], [2, true])
    if (!hasGpu()) assert.throws(() => openDevices(), { name: 'NoDeviceError' })
    for (const choice of [0, 'gpu', null, true]) {
      assert.throws(() => openDevices(choice as 'auto'), { name: 'RangeError', message: /openDevices: choose 'auto'/ })
    }
  })

  it('openDevices opens all devices or none', () => {
    for (let nth = 1; nth <= 3; nth++) {
      const driver = new SimulatedDriver({ devices: 3, faults: [{ call: 'cuDevicePrimaryCtxRetain', nth, code: 999 }] })
      assert.throws(() => openDevices(driver), { name: 'CudaError', call: 'cuDevicePrimaryCtxRetain' })
      assert.equal(driver.calls.get('cuDevicePrimaryCtxRelease') ?? 0, nth - 1)
    }
  })

  it('a bad choice is refused', () => {
    for (const choice of [-1, 0.5, Number.NaN, Infinity, 'gpu', '0', '', null, true, 1n, {}, []]) {
      assert.throws(() => openDevice(choice as DeviceChoice), { name: 'RangeError', message: /openDevice: choose/ })
      assert.throws(() => openDevices(choice as 'auto'), { name: 'RangeError', message: /openDevices: choose/ })
    }
  })

  it('parseDeviceChoice reads the choices of the command line', () => {
    assert.deepEqual(['auto', 'simulated', '0', '12'].map(parseDeviceChoice), ['auto', 'simulated', 0, 12])
    for (const text of ['', 'gpu', '-1', '1.5', ' 0', '0x1', 'Simulated']) {
      assert.throws(() => parseDeviceChoice(text), { name: 'RangeError', message: /write auto, simulated or a number/ })
    }
  })
})

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

  it('close also closes the streams of a fallback on another device', () => {
    const driver = new SimulatedDriver({ devices: 2, capacityBytes: 64 * MiB })
    for (const order of [
      [0, 1],
      [1, 0],
    ]) {
      const devices = openDevices(driver)
      const [first, second] = devices
      const pool = withFallback(first.createPool({ maxPoolBytes: 4 * MiB }), second.createPool())
      pool.allocate(8 * MiB, first.createStream()).free()
      assert.equal(pool.allocate(8 * MiB).device, 1)
      for (const index of order) devices[index].close()
      assert.deepEqual([driver.usedBytes(0), driver.usedBytes(1)], [0, 0])
      for (const kind of ['Stream', 'Event']) {
        assert.equal(driver.calls.get(`cu${kind}Create`), driver.calls.get(`cu${kind}Destroy`), kind)
      }
    }
  })

  it('the default stream is the legacy default stream', () => {
    using device = openDevice('simulated')
    assert.equal(device.defaultStream.handle, 0)
    assert.equal(device.adoptStream(0), device.defaultStream)
    const buffer = device.createPool().allocate(4)
    assert.equal(buffer.stream, device.defaultStream)
  })

  it('a stream made elsewhere is adopted once, and recognised by more than its handle', () => {
    const driver = new SimulatedDriver()
    using device = openDevice(driver)
    const handle = driver.cuStreamCreate(1)
    const stream = device.adoptStream(handle)
    assert.equal(stream.handle, handle)
    assert.equal(device.adoptStream(handle), stream)
    stream.close()
    assert.notEqual(device.adoptStream(handle), stream)
    device.adoptStream(handle).close()
    driver.cuStreamDestroy(handle)
    const again = driver.cuStreamCreate(1)
    const adopted = device.adoptStream(again)
    assert.equal(adopted.closed, false)
    assert.equal(device.adoptStream(2).handle, 2)
    for (const bad of [-1, 0.5, Number.NaN, '5', undefined]) {
      assert.throws(() => device.adoptStream(bad as number), { name: 'RangeError', message: /adoptStream: handle/ })
    }
    assert.throws(() => device.adoptStream(123_456), { name: 'CudaError' })
  })

  it('adopting a stream of its own, or the default stream by its other handle, returns the existing object', () => {
    using device = openDevice(new SimulatedDriver())
    const own = device.createStream()
    assert.equal(device.adoptStream(own.handle), own)
    assert.equal(device.adoptStream(1), device.defaultStream)
    const { handle } = own
    own.close()
    const driver = device.driver
    assert.equal(driver.cuStreamCreate(1), handle)
    const adopted = device.adoptStream(handle)
    assert.notEqual(adopted, own)
    assert.equal(adopted.owned, false)
  })

  it('an adopted stream that was destroyed elsewhere is closed when its handle is reused', () => {
    const driver = new SimulatedDriver({ progress: 'eager' })
    using device = openDevice(driver)
    const stream = device.adoptStream(driver.cuStreamCreate(1))
    const { handle } = stream
    const pool = device.poolFor(stream)
    driver.holdOperation(handle)
    const work = driver.submitted(handle)
    driver.cuStreamDestroy(handle)
    assert.equal(driver.cuStreamCreate(1), handle)
    const next = device.adoptStream(handle)
    assert.deepEqual([stream.closed, pool.closed, next.closed], [true, true, false])
    assert.ok(driver.happensBefore(work, handle), 'its work was waited for')
    assert.ok(device.clocks.completed[stream.lastSlot] >= stream.lastStamp)
    stream.close()
    next.close()
    assert.equal(driver.calls.get('cuStreamDestroy'), 1, 'both are left to their owners')
  })

  it('a stream of another device is refused', () => {
    const driver = new SimulatedDriver({ devices: 2 })
    using first = openDevice(driver, 0)
    using second = openDevice(driver, 1)
    const stream = second.createStream()
    assert.throws(() => first.adoptStream(stream.handle), { name: 'PoolError', message: /another device/ })
  })

  it('a 65th stream is refused, and no stream is left in the driver', () => {
    using device = openDevice('simulated')
    const streams = Array.from({ length: 63 }, () => device.createStream())
    const made = () => device.driver.calls.get('cuStreamCreate')! - (device.driver.calls.get('cuStreamDestroy') ?? 0)
    assert.equal(made(), 63)
    assert.throws(() => device.createStream(), { name: 'PoolError', message: /64 streams/ })
    assert.equal(made(), 63)
    streams[5].close()
    device.createStream()
  })

  it('close ends pools and streams, gives all memory back, and can be repeated', () => {
    const driver = new SimulatedDriver({ capacityBytes: 1 * GiB })
    const device = openDevice(driver)
    const stream = device.createStream()
    const adopted = device.adoptStream(driver.cuStreamCreate(1))
    const cachingPools = [device.createPool(), device.createPool({ backing: 'segments' })]
    const pools = [...cachingPools, ...fixedPools(device), device.createPlainPool()]
    const buffers = pools.map(pool => pool.allocate(3 * MiB, stream))
    const growable = device.createGrowableBuffer({ bytes: 3 * MiB, stream })
    driver.holdOperation(stream.handle)
    for (const buffer of [...buffers, growable]) buffer.fill(1)
    device.close()
    device.close()
    assert.equal(driver.usedBytes(), 0)
    assert.deepEqual([stream.closed, adopted.closed, device.defaultStream.closed], [true, true, true])
    assert.equal(growable.freed, true)
    for (const [index, buffer] of buffers.entries()) {
      assert.equal(buffer.freed, true)
      buffer[Symbol.dispose]()
      assert.throws(() => pools[index].allocate(1), PoolError)
    }
    assertRefusesAll(device)
    openDevice(driver).close() // the driver can be opened again
  })

  it('a device forgets pools that are closed', () => {
    using device = openDevice('simulated')
    const { pools } = device as unknown as { pools: Set<unknown> }
    for (let round = 0; round < 10; round++) {
      for (const pool of [device.createPool(), device.createPlainPool(), device.defaultDriverPool()]) pool.close()
      const growable = device.createGrowableBuffer({ bytes: 1 })
      growable.free()
      growable.settleSync()
    }
    assert.ok(pools.size <= 4, `${pools.size} of 30`)
  })

  it('events and modules that outlive the device can be closed, and otherwise throw', () => {
    const device = openDevice('simulated')
    const event = device.createEvent()
    event.record(device.defaultStream)
    const module = device.loadModule(PTX)
    device.close()
    const refused = { name: 'PoolError', message: /the device is closed/ }
    assert.throws(() => event.query(), refused)
    assert.throws(() => module.kernel('device_test_increment'), refused)
    event.close()
    module.close()
  })

  it("a second close, or the device's, destroys an object that the driver refused to destroy", () => {
    const makers = [
      ['cuStreamDestroy', (device: Device) => device.createStream()],
      ['cuEventDestroy', (device: Device) => device.createEvent()],
      ['cuModuleUnload', (device: Device) => device.loadModule(PTX)],
      ['cuGraphExecDestroy', (device: Device) => device.capture(device.createStream(), () => {})],
    ] as const
    for (const [call, make] of makers) {
      for (const again of [true, false]) {
        const driver = new SimulatedDriver()
        const device = openDevice(driver)
        const part = make(device)
        driver.failCall({ call, code: 999 })
        assert.throws(() => part.close(), { name: 'CudaError' })
        const refused = driver.calls.get(call)!
        if (again) part.close()
        else device.close()
        assert.ok(driver.calls.get(call)! > refused, call)
        const destroyed = driver.calls.get(call)!
        part.close()
        assert.equal(driver.calls.get(call), destroyed, call)
        device.close()
      }
    }
  })

  it("the device's close destroys a captured graph that the driver refused to destroy", () => {
    const driver = new SimulatedDriver()
    const device = openDevice(driver)
    const stream = device.createStream()
    driver.failCall({ call: 'cuGraphDestroy', code: 999 })
    device.capture(stream, () => {}).close()
    assert.equal(driver.calls.get('cuGraphDestroy'), 1)
    device.close()
    assert.equal(driver.calls.get('cuGraphDestroy'), 2)
  })

  it('the next close finishes a close that the driver refused, at whichever call', () => {
    let refused = 0
    for (let done = false; !done; refused++) {
      const driver = new SimulatedDriver({ capacityBytes: 1 * GiB })
      const device = openDevice(driver)
      const stream = device.createStream()
      device.adoptStream(driver.cuStreamCreate(1))
      const callingPools = [device.createPlainPool(), device.defaultDriverPool(), device.createDriverPool()]
      for (const pool of [device.createPool(), ...fixedPools(device), ...callingPools]) {
        pool.allocate(3 * MiB, stream).fill(1)
      }
      device.createGrowableBuffer({ bytes: 3 * MiB, stream }).fill(1)
      const before = callsOf(driver)
      driver.failCall({ call: '*', nth: refused + 1, code: 999 })
      try {
        device.close() // some refusals do not throw
        done = callsOf(driver) - before <= refused
      } catch (error) {
        assert.equal((error as Error).name, 'CudaError')
        device.close()
      }
      assert.equal(driver.usedBytes(), 0)
      assertRefusesAll(device)
    }
    assert.ok(refused > 20, `${refused} calls`)
  })

  it('a device closes after its pools were closed, and during reads', { timeout: 5000 }, async () => {
    const device = openDevice('simulated')
    const pool = device.createPool()
    const buffer = pool.allocate(100 * KiB)
    buffer.fill(3)
    const reading = buffer.read()
    pool.close()
    device.close()
    assert.equal((await reading)[99_999], 3)
    const { calls } = device.driver
    assert.equal(calls.get('cuMemHostUnregister'), calls.get('cuMemHostRegister'))
  })

  it('the simulated device shares buffers and pools within a process, and closes opened ones first', async () => {
    const driver = new SimulatedDriver({ capacityBytes: 1 * GiB })
    const device = openDevice(driver)
    const buffer = device.createInterprocessBuffer(3 * MiB)
    buffer.fill(1)
    const [other] = await Promise.all([device.importBuffer(PATH), buffer.exportTo(PATH)])
    assert.equal((await other.read())[3 * MiB - 1], 1)
    const pool = device.createDriverPool({ handleTypes: 'posixFileDescriptor', maxPoolBytes: 64 * MiB })
    const [imported] = await Promise.all([device.importPool(PATH), pool.exportTo(PATH)])
    const block = imported.importBuffer(pool.exportPointer(pool.allocate(1 * MiB)))
    block.fill(2)
    assert.throws(() => pool.close(), { name: 'PoolError', message: /have this pool open/ })
    assert.deepEqual([pool.access(device), imported.access(device)], ['readWrite', 'readWrite'])
    device.close()
    assert.deepEqual([buffer.freed, other.freed, block.freed, driver.usedBytes()], [true, true, true, 0])
    await assert.rejects(device.importBuffer(PATH), { name: 'PoolError', message: /device is closed/ })
    await assert.rejects(device.importPool(PATH), { name: 'PoolError', message: /device is closed/ })
  })

  it('a device that closes during an open has nothing open', async () => {
    const driver = new SimulatedDriver({ capacityBytes: 1 * GiB })
    using owner = openDevice(driver)
    for (const what of ['buffer', 'pool'] as const) {
      const device = openDevice(driver)
      const opening = what === 'buffer' ? device.importBuffer(PATH) : device.importPool(PATH)
      const refused = assert.rejects(opening, { name: 'PoolError', message: /closed/ })
      device.close()
      const pool = owner.createDriverPool({ handleTypes: 'posixFileDescriptor' })
      await (what === 'buffer' ? owner.createInterprocessBuffer(1) : pool).exportTo(PATH)
      await refused
      pool.close()
    }
  })

  it('each call on a lost device throws with the cause, and close does not throw', () => {
    const driver = new SimulatedDriver()
    const device = openDevice(driver)
    const stream = device.createStream()
    const pools = [device.createPool(), ...fixedPools(device), device.createPlainPool()]
    const buffers = pools.map(pool => pool.allocate(4, stream))
    driver.failCall({ call: 'cuMemsetD8Async', code: 700 })
    assert.throws(() => buffers[0].fill(0), { name: 'CudaError', code: 700 })
    assert.throws(() => buffers[0].fill(0), { name: 'DeviceLostError', message: /cuMemsetD8Async failed.*new process/ })
    assert.throws(() => device.synchronize(), { name: 'DeviceLostError' })
    device.close()
    device.close()
    assert.deepEqual([buffers[0].freed, device.context.released], [true, true])
    assert.throws(() => device.createStream(), { name: 'PoolError', message: /device is closed/ })
  })

  it('a fault found by close is thrown there, and the next close does not throw', () => {
    const driver = new SimulatedDriver()
    const device = openDevice(driver)
    const buffer = device.createPool().allocate(4)
    driver.failCall({ call: 'cuCtxSynchronize', code: 700 })
    assert.throws(() => device.close(), { name: 'CudaError', call: 'cuCtxSynchronize' })
    device.close()
    assert.deepEqual([buffer.freed, device.context.released], [true, true])
  })
})

describe('the pool of one stream', () => {
  it('it is the same for the same stream, allocates on it, and shares no memory', () => {
    using device = openDevice('simulated')
    const [a, b] = [device.createStream(), device.createStream()]
    const pool = device.poolFor(a, { maxPoolBytes: 8 * MiB })
    assert.equal(device.poolFor(a), pool)
    assert.notEqual(device.poolFor(b), pool)
    assert.equal(device.poolFor(device.defaultStream), device.poolFor(device.defaultStream))
    assert.equal(pool.allocate(1 * MiB).stream, a)
    assert.deepEqual([pool.stats().limitBytes, device.poolFor(b).stats().limitBytes], [8 * MiB, 4 * GiB])
    assert.deepEqual([pool.stats().liveBuffers, device.poolFor(b).stats().liveBuffers], [1, 0])
  })

  it("the stream's close closes it, and gives its memory back", () => {
    const driver = new SimulatedDriver({ capacityBytes: 1 * GiB })
    using device = openDevice(driver)
    for (const stream of [device.createStream(), device.adoptStream(driver.cuStreamCreate(1))]) {
      const used = driver.usedBytes()
      const pool = device.poolFor(stream)
      const held = pool.allocate(3 * MiB)
      driver.holdOperation(stream.handle)
      held.fill(1)
      stream.close()
      assert.deepEqual([pool.closed, held.freed, driver.usedBytes()], [true, true, used])
      assert.throws(() => pool.allocate(1), { name: 'PoolError', message: /pool is closed/ })
      assert.throws(() => device.poolFor(stream), { name: 'PoolError', message: /stream is closed/ })
      held[Symbol.dispose]()
    }
  })

  it('only the first call takes options, and the pool can be closed before its stream', () => {
    using device = openDevice('simulated')
    const stream = device.createStream()
    const pool = device.poolFor(stream)
    assert.throws(() => device.poolFor(stream, {}), { name: 'PoolError', message: /options at the first call only/ })
    pool.close()
    const next = device.poolFor(stream, { backing: 'segments' })
    assert.equal(next.snapshot().backing, 'segments')
    next.allocate(1).free()
    stream.close()
    assert.equal(next.closed, true)
  })

  it('anything but an open stream of the device is refused, and so are bad options', () => {
    using device = openDevice('simulated')
    using other = openDevice('simulated')
    const closed = device.createStream()
    closed.close()
    for (const bad of [undefined, null, 0, {}]) {
      assert.throws(() => device.poolFor(bad as never), { name: 'TypeError', message: /poolFor: stream must be/ })
    }
    assert.throws(() => device.poolFor(other.createStream()), { name: 'PoolError', message: /another device/ })
    assert.throws(() => device.poolFor(closed), { name: 'PoolError', message: /stream is closed/ })
    const stream = device.createStream()
    assert.throws(() => device.poolFor(stream, { maxPoolBytes: -1 }), { name: 'RangeError', message: /maxPoolBytes/ })
    device.poolFor(stream, { maxPoolBytes: 4 * MiB }).allocate(1)
  })

  it('a second close of the stream finishes a refused close, and leaves nothing behind', () => {
    for (let nth = 1; nth < 12; nth++) {
      const driver = new SimulatedDriver({ capacityBytes: 1 * GiB })
      const device = openDevice(driver)
      const stream = device.createStream()
      device.poolFor(stream).allocate(3 * MiB)
      driver.failCall({ call: '*', nth, code: 999 })
      try {
        stream.close()
      } catch (error) {
        assert.equal((error as Error).name, 'CudaError')
        stream.close()
      }
      driver.clearFaults()
      assert.equal(stream.closed, true)
      assert.throws(() => driver.cuStreamGetId(stream.handle), { name: 'CudaError', code: 400 })
      device.close()
      assert.equal(driver.usedBytes(), 0)
    }
  })
})

describe('a stream with a pool of its own', () => {
  it('its stream stays open while another stream is captured, since the pool cannot be closed then', () => {
    const driver = new SimulatedDriver({ capacityBytes: 1 * GiB })
    const device = openDevice(driver)
    const captured = device.createStream()
    const adopted = driver.cuStreamCreate(1)
    for (const stream of [device.createStream(), device.adoptStream(adopted)]) {
      const used = driver.usedBytes()
      const pool = device.poolFor(stream)
      pool.allocate(1 * MiB).free()
      captured.beginCapture()
      assert.throws(() => stream.close(), { name: 'PoolError', message: /close: a stream is being captured/ })
      assert.deepEqual([stream.closed, pool.closed, device.poolFor(stream)], [false, false, pool])
      captured.abortCapture()
      stream.close()
      assert.deepEqual([stream.closed, pool.closed, driver.usedBytes()], [true, true, used])
    }
    assert.equal(device.adoptStream(adopted).closed, false)
    device.close()
  })
})

describe('host pools of a device', () => {
  it('a shared block pool that is refused its first memory leaves no pool server behind', () => {
    const driver = new SimulatedDriver()
    const device = openDevice(driver)
    driver.failCall({ call: 'cuMemAlloc', code: 999 })
    assert.throws(() => device.createBlockPool({ blockBytes: 64 * KiB, count: 4, shared: true }), { name: 'CudaError' })
    device.close() // throws while a pool server has the device attached
    assert.equal(driver.usedBytes(), 0)
  })

  it('host pools are closed with the device, and their arrays stay readable', () => {
    const device = openDevice('simulated')
    const pool = device.createHostPool({ maxPoolBytes: 32 * MiB, shared: true })
    const held = pool.allocateArray(Float64Array, 1000)
    const { elements } = held
    const target = device.createPool().allocateArray(Float64Array, 1000)
    elements.fill(1.5)
    held.copyTo(target)
    device.close()
    assert.deepEqual([pool.closed, held.freed, elements[999]], [true, true, 1.5])
    assert.throws(() => pool.allocate(1), { name: 'PoolError', message: /pool is closed/ })
    const { calls } = device.driver
    assert.equal(calls.get('cuMemHostUnregister'), calls.get('cuMemHostRegister'))
  })
})

/** Pools with memory allocated in advance. */
function fixedPools(device: Device) {
  return [
    device.createArenaPool({ bytes: 4 * MiB }),
    device.createArenaPool({ bytes: 1 * MiB, maxBytes: 4 * MiB }),
    device.createBlockPool({ blockBytes: 3 * MiB, count: 2, maxCount: 4 }),
  ]
}

function assertRefusesAll(device: Device): void {
  const uses: readonly (() => unknown)[] = [
    () => device.createStream(),
    () => device.adoptStream(0),
    () => device.createEvent(),
    () => device.createPool(),
    () => device.createArenaPool({ bytes: 1 }),
    () => device.createBlockPool({ blockBytes: 1, count: 1 }),
    () => device.createPlainPool(),
    () => device.createHostPool(),
    () => device.poolFor(device.defaultStream),
    () => device.createGrowableBuffer({ bytes: 1 }),
    () => device.loadModule(PTX),
    () => device.synchronize(),
    () => device.memoryInfo(),
  ]
  for (const use of uses) assert.throws(use, { name: 'PoolError', message: /device is closed/ }, `${use}`)
}

describe('captures on a device', () => {
  const setUp = () => {
    const device = openDevice(new SimulatedDriver({ progress: 'eager' }))
    return { device, pool: device.createPool(), stream: device.createStream() }
  }

  it('a capture makes a graph of the submitted work, which can be launched again and again', () => {
    const { device, pool, stream } = setUp()
    const input = pool.allocate(1024, stream)
    let output = input
    using graph = device.capture(stream, () => {
      using scratch = pool.allocate(1024, stream)
      scratch.copyFrom(input)
      output = pool.allocate(1024, stream)
      output.copyFrom(scratch)
    })
    for (const value of [3, 4]) {
      input.fill(value)
      graph.launch(stream)
      assert.equal(output.readSync(1000, 1)[0], value)
    }
    device.close()
    graph.close()
    assert.throws(() => graph.launch(stream), PoolError)
  })

  it('a capture leaves nothing behind if the function throws or is asynchronous', () => {
    const { device, pool, stream } = setUp()
    const fails = () => {
      pool.allocate(1024, stream).free()
      throw new RangeError('mine')
    }
    assert.throws(() => device.capture(stream, fails), /mine/)
    assert.throws(() => device.capture(stream, async () => {}), /capture: work must not be asynchronous/)
    assert.throws(() => device.capture(stream, () => stream.abortCapture()), /not being captured/)
    assert.equal(stream.capture, null)
    stream.synchronize()
    pool.trimTo(0)
    assert.equal(device.memoryInfo().freeBytes, device.totalBytes)
    device.close()
  })

  it("the function's error is thrown, and a capture that the driver refuses to end can be aborted", () => {
    const driver = new SimulatedDriver({ progress: 'eager' })
    const device = openDevice(driver)
    const stream = device.createStream()
    driver.failCall({ call: 'cuStreamEndCapture', code: 999 })
    assert.throws(
      () =>
        device.capture(stream, () => {
          throw new Error('of the function')
        }),
      /of the function/,
    )
    assert.deepEqual([stream.capture !== null, driver.cuStreamIsCapturing(stream.handle)], [true, true])
    stream.abortCapture()
    assert.deepEqual([stream.capture, driver.cuStreamIsCapturing(stream.handle)], [null, false])
    device.close()
  })

  it('a bad stream, function or mode is refused', () => {
    const { device, stream } = setUp()
    const work = () => assert.fail('it should not run')
    assert.throws(() => device.capture({} as Stream, work), TypeError)
    using graph = device.capture(stream, () => {})
    const none = { name: 'PoolError', message: /^launch: .*is no stream/ }
    for (const other of [null, {}, device]) assert.throws(() => graph.launch(other as unknown as Stream), none)
    assert.throws(() => device.capture(stream, 5 as never), TypeError)
    assert.throws(() => device.capture(stream, work, 'none' as never), TypeError)
    assert.throws(() => device.capture(setUp().stream, work), PoolError)
    assert.throws(() => device.capture(device.defaultStream, work), PoolError)
    device.close()
    assert.throws(() => device.capture(stream, work), PoolError)
  })

  it("the device's close ends begun captures and launched graphs", () => {
    const { device, pool, stream } = setUp()
    const other = device.createStream()
    const graph = device.capture(other, () => pool.allocate(1024, other).fill(1))
    graph.launch(stream)
    stream.beginCapture()
    pool.allocate(4096, stream).fill(1)
    assert.throws(() => device.synchronize(), PoolError)
    device.close()
    assert.equal(device.context.released, true)
  })
})

function callsOf(driver: SimulatedDriver): number {
  return [...driver.calls.values()].reduce((sum, count) => sum + count, 0)
}
