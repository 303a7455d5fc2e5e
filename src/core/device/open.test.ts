// The device that each choice opens.

import assert from 'node:assert/strict'
import { mkdtempSync, rmSync } from 'node:fs'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { describe, it } from 'node:test'
import { GiB, MiB } from '../base/bytes.js'
import { NoDeviceError } from '../base/errors.js'
import { DryLibrary } from '../driver/native/dry-library.js'
import type { DriverFunction } from '../driver/native/library.js'
import { NativeDriver } from '../driver/native/native-driver.js'
import { SimulatedDriver } from '../driver/simulated/simulated-driver.js'
import type { FunctionName } from '../driver/table.js'
import type { Device } from './device.js'
import { type DeviceChoice, openDevice, openDevices } from './open.js'

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

/** A library that calls functions in other threads when the test lets it. */
class ThreadedLibrary extends DryLibrary {
  /** names of calls, those of other threads with a star */
  readonly calls: string[] = []
  readonly refused = new Set<string>()
  private readonly ends: (() => void)[] = []
  private isOther = false

  override bind(name: FunctionName): DriverFunction {
    const call = super.bind(name)
    return (...args) => {
      this.calls.push(this.isOther ? `${name}*` : name)
      return this.refused.has(this.calls.at(-1)!) ? 999 : call(...args)
    }
  }

  override start(name: FunctionName, args: readonly number[], done: (code: number) => void): void {
    this.isOther = true
    const code = this.bind(name)(...args)
    this.isOther = false
    this.ends.push(() => done(code))
  }

  endThreads(): void {
    for (const end of this.ends.splice(0)) end()
  }

  count(name: string): number {
    return this.calls.filter(call => call === name).length
  }
}

describe('opening a device', () => {
  it("'simulated' opens without a GPU", () => {
    using device = openDevice('simulated')
    assert.deepEqual([device.simulated, device.ordinal, device.totalBytes], [true, 0, 140 * GiB])
    assert.match(device.name, /simulated/)
    assert.deepEqual(device.memoryInfo(), { freeBytes: 140 * GiB, totalBytes: 140 * GiB })
  })

  it('CUDA_MEMPOOL_SIMULATED names the machine of simulated devices', t => {
    if (process.platform !== 'linux') return t.skip(`machines work on Linux, not on ${process.platform}`)
    const folder = mkdtempSync(join(tmpdir(), 'open-'))
    t.after(() => {
      delete process.env['CUDA_MEMPOOL_SIMULATED']
      rmSync(folder, { recursive: true })
    })
    process.env['CUDA_MEMPOOL_SIMULATED'] = folder
    using one = openDevice('simulated')
    using other = openDevice('simulated')
    const pair = openDevices('simulated')
    using plain = openDevice(new SimulatedDriver())
    one.driver.cuMemCreate(2 * MiB, 0, 0)
    const free = [one, other, pair[0], pair[1], plain].map(device => device.memoryInfo().freeBytes - 140 * GiB)
    assert.deepEqual(free, [-2 * MiB, -2 * MiB, -2 * MiB, 0, 0])
    assert.equal(one.properties.uuid, pair[0].properties.uuid)
    for (const device of pair) device.close()
    process.env['CUDA_MEMPOOL_SIMULATED'] = join(folder, 'none')
    const message = /CUDA_MEMPOOL_SIMULATED.* does not exist; make it by mkdir -m 700/
    for (const open of [openDevice, openDevices]) {
      assert.throws(() => open('simulated'), { name: 'NoDeviceError', message })
    }
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

  it("openDevices('simulated') is a pair to TypeScript", () => {
    const pair: [Device, Device] = openDevices('simulated')
    assert.deepEqual(
      pair.map(device => device.ordinal),
      [0, 1],
    )
    for (const device of pair) device.close()
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

  it('a GPU initialises itself in another thread, and its context has one reference', () => {
    const library = new ThreadedLibrary(GiB)
    const device = openDevice(new NativeDriver(library))
    assert.deepEqual([library.count('cuInit*'), library.count('cuInit')], [1, 1])
    const references = () =>
      library.count('cuDevicePrimaryCtxRetain*') +
      library.count('cuDevicePrimaryCtxRetain') -
      library.count('cuDevicePrimaryCtxRelease')
    assert.equal(references(), 1)
    library.endThreads()
    assert.equal(references(), 1)
    device.close()
    assert.equal(references(), 0)
  })

  it('a GPU that cannot be opened keeps no reference on its context', () => {
    const library = new ThreadedLibrary(GiB)
    library.refused.add('cuCtxSetCurrent')
    assert.throws(() => openDevice(new NativeDriver(library)), { name: 'CudaError', call: 'cuCtxSetCurrent' })
    library.endThreads()
    assert.equal(library.count('cuDevicePrimaryCtxRelease'), 2)
  })

  it('a context that only the other thread cannot make is made all the same', () => {
    const library = new ThreadedLibrary(GiB)
    library.refused.add('cuInit*').add('cuDevicePrimaryCtxRetain*')
    const device = openDevice(new NativeDriver(library))
    library.endThreads()
    assert.equal(library.count('cuDevicePrimaryCtxRelease'), 0)
    device.close()
    assert.equal(library.count('cuDevicePrimaryCtxRelease'), 1)
  })
})
