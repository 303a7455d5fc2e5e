import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { NoDeviceError } from '../../core/base/errors.js'
import { SimulatedDriver } from '../../core/driver/simulated/simulated-driver.js'
import { refused } from '../command-line.fixture.js'
import { UsageError } from '../exit.js'
import { inspectDevice, usableGpu } from './info.js'

describe('inspectDevice', () => {
  test('the least driver of each feature follows from the table of functions', () => {
    const { features } = inspectDevice('simulated', '1.2.3')
    assert.deepEqual(
      features.map(({ name, leastDriver, supported }) => [name, leastDriver, supported]),
      [
        ['devices and streams', '11.0', true],
        ['memory and copies', '11.0', true],
        ['kernels from PTX', '11.0', true],
        ['cooperative launches', '11.0', true],
        ['memory for kernels', '11.0', true],
        ['virtual memory', '11.0', true],
        ['pinned memory', '11.0', true],
        ['managed memory', '11.0', true],
        ["the driver's pools", '11.2', true],
        ['host NUMA pools', '11.2', true],
        ['sharing', '11.0', true],
        ['peer access', '11.0', false],
        ['graphs', '11.4', true],
        ['adopted streams', '12.0', true],
      ],
    )
  })

  test('a feature that does not work has its reason', () => {
    const driver = new SimulatedDriver({
      virtualMemory: false,
      memoryPools: false,
      managedMemory: false,
      hostPools: false,
      posixDescriptors: false,
      peerAccess: false,
      devices: 2,
    })
    driver.failCall({ call: 'cuStreamGetId', code: 500 })
    const { features, devices, device, version } = inspectDevice(driver, '1.2.3')
    assert.deepEqual([version, devices.length, device.granularityBytes], ['1.2.3', 2, null])
    const missing = features.filter(feature => !feature.supported)
    assert.deepEqual(
      missing.map(({ name }) => name),
      [
        'virtual memory',
        'managed memory',
        "the driver's pools",
        'host NUMA pools',
        'sharing',
        'peer access',
        'adopted streams',
      ],
    )
    const obstacles = Object.fromEntries(missing.map(({ name, obstacle }) => [name, obstacle!]))
    assert.match(obstacles['virtual memory'], /does not offer it/)
    assert.match(obstacles['managed memory'], /does not offer it/)
    for (const name of ["the driver's pools", 'host NUMA pools', 'sharing']) {
      assert.match(obstacles[name], /CUDA_ERROR_NOT_SUPPORTED/)
    }
    assert.match(obstacles['peer access'], /no other device can be reached/)
    assert.match(obstacles['adopted streams'], /CUDA_ERROR_NOT_FOUND/)
  })

  test("an inspection leaves the device's memory as it was", () => {
    const driver = new SimulatedDriver()
    const { device } = inspectDevice(driver, '1.2.3')
    assert.equal(device.freeBytes, device.totalBytes)
  })

  test('tells the other processes and the persistence mode, where they are known', () => {
    const driver = new SimulatedDriver()
    assert.equal(inspectDevice(driver, '1.2.3').device.users, null)
    const other = { pid: 2 ** 22 + 1, bytes: 2 ** 30 } // above the most that a process id can be
    driver.usersOf = () => ({ processes: [{ pid: process.pid, bytes: 512 }, other], persistenceMode: false })
    const users = { processes: [{ ...other, name: null }], persistenceMode: false }
    assert.deepEqual(inspectDevice(driver, '1.2.3').device.users, users)
  })

  test("'auto' gives the reason for no GPU and goes on without, while a number throws", () => {
    const insists = () => inspectDevice(0, '1.2.3')
    try {
      assert.equal(insists().device.simulated, false)
      assert.equal(inspectDevice('auto', '1.2.3').noGpu, null)
    } catch (error) {
      assert.ok(error instanceof NoDeviceError)
      const { device, noGpu } = inspectDevice('auto', '1.2.3')
      assert.deepEqual([device.simulated, noGpu], [true, error.message])
    }
  })
})

describe('info --check', () => {
  test('tells the device, its driver and its free memory, and allocates no memory', () => {
    const driver = new SimulatedDriver({ capacityBytes: 2 ** 30 })
    const gpu = usableGpu(driver)
    assert.deepEqual(gpu.device, { ordinal: 0, name: 'simulated GPU', freeBytes: 2 ** 30, totalBytes: 2 ** 30 })
    assert.match(gpu.driver.version, /^\d+\.\d+$/)
    assert.equal(driver.calls.get('cuMemCreate') ?? 0, 0)
  })

  test('fails where no GPU can be used, and the remedy is not the simulated device', () => {
    const driver = new SimulatedDriver()
    driver.failCall({ call: 'cuInit', code: 100 })
    assert.throws(
      () => usableGpu(driver),
      (error: Error) => {
        assert.ok(error instanceof NoDeviceError)
        assert.match(error.message, /^the driver finds no GPU \(.*\); a container sees GPUs only if .* --gpus all$/)
        return true
      },
    )
    assert.throws(() => usableGpu('simulated'), UsageError)
  })

  test('is one line, and status 2, on the simulated device', () => {
    for (const more of [[], ['--json'], ['--quiet'], ['--device', 'simulated']]) {
      assert.match(
        refused(['info', '--check', ...more]),
        /--check: the simulated device is no GPU; name none by --device/,
      )
    }
  })
})
