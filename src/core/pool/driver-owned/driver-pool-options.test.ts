import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { MiB } from '../../base/bytes.js'
import type { Context } from '../../driver/context.js'
import type { SimulatedOptions } from '../../driver/simulated/options.js'
import { TestDevice } from '../pool.fixture.js'
import { type DriverPoolOptions, parseDriverPoolOptions } from './driver-pool-options.js'

/** All that the options ask a context for. */
const contextOf = (device: number) => ({ device, totalBytes: 128 * MiB }) as Context
const bad = (options: unknown) => () => parseDriverPoolOptions(options as DriverPoolOptions, contextOf(0))

describe('options of a driver pool', () => {
  it('each option becomes a property of the driver', () => {
    assert.deepEqual(parseDriverPoolOptions({}, contextOf(3)), {
      allocationType: 1,
      handleTypes: 0,
      locationType: 1,
      locationId: 3,
      maxBytes: 0,
    })
    const options = { location: { numaNode: 2 }, handleTypes: 'posixFileDescriptor', maxPoolBytes: 64 * MiB } as const
    assert.deepEqual(parseDriverPoolOptions(options, contextOf(3)), {
      allocationType: 1,
      handleTypes: 1,
      locationType: 3,
      locationId: 2,
      maxBytes: 64 * MiB,
    })
    assert.deepEqual(parseDriverPoolOptions({ allocationType: 'managed', location: 'host' }, contextOf(3)), {
      allocationType: 2,
      handleTypes: 0,
      locationType: 2,
      locationId: 0,
      maxBytes: 0,
    })
    assert.equal(parseDriverPoolOptions({ maxPoolBytes: Infinity }, contextOf(0)).maxBytes, 0)
    assert.equal(parseDriverPoolOptions({ maxPoolBytes: '50%' }, contextOf(0)).maxBytes, 64 * MiB)
  })

  it('bad options are refused by name, with the remedy', () => {
    for (const options of [null, 5, 'pinned', undefined]) {
      assert.throws(bad(options), { name: 'TypeError', message: /createDriverPool: options must be an object/ })
    }
    assert.throws(bad({ releaseThresholdBytes: 1 }), {
      name: 'TypeError',
      message:
        /unknown option 'releaseThresholdBytes'; the options are allocationType, location, handleTypes, maxPoolBytes/,
    })
    for (const allocationType of ['device', 'cudaMemAllocationTypeDevice', 'PINNED', 1, null, 'toString']) {
      assert.throws(bad({ allocationType }), {
        name: 'TypeError',
        message: /allocationType must be 'pinned' or 'managed'.*device memory is 'pinned' at the location 'device'/,
      })
    }
    for (const handleTypes of ['win32', 'posix', 'fabric', 1, null, ['none']]) {
      assert.throws(bad({ handleTypes }), {
        name: 'TypeError',
        message: /handleTypes must be 'none' or 'posixFileDescriptor'/,
      })
    }
    for (const location of ['gpu', 0, null, {}, []]) {
      assert.throws(bad({ location }), {
        name: 'TypeError',
        message: /location must be 'device', 'host' or \{ numaNode: 0 \}.*that device's createDriverPool/,
      })
    }
    for (const numaNode of [-1, 0.5, Number.NaN, 2 ** 31, '0', undefined]) {
      assert.throws(bad({ location: { numaNode } }), { name: 'RangeError', message: /numaNode must be/ })
    }
    for (const maxPoolBytes of [0, -1, 0.5, Number.NaN, 2 ** 53]) {
      assert.throws(bad({ maxPoolBytes }), { name: 'RangeError', message: /maxPoolBytes/ })
    }
    assert.throws(bad({ maxPoolBytes: '180%' }), { name: 'RangeError', message: /maxPoolBytes/ })
  })

  it('options that exclude each other are refused', () => {
    const handleTypes = 'posixFileDescriptor'
    assert.throws(bad({ allocationType: 'managed', handleTypes }), {
      name: 'RangeError',
      message: /handleTypes must be 'none' for managed memory/,
    })
    assert.throws(bad({ location: 'host', handleTypes }), {
      name: 'RangeError',
      message: /handleTypes must be 'none' at the location 'host'.*use 'device', or \{ numaNode \}/,
    })
  })
})

describe('a driver without such a pool', () => {
  const refusals: readonly (readonly [SimulatedOptions, DriverPoolOptions | null, RegExp])[] = [
    [{ memoryPools: false }, null, /defaultDriverPool: .*no memory pools.*driver 11\.2; use createPool\(\)/],
    [{ memoryPools: false }, {}, /createDriverPool: .*no memory pools.*use createPool\(\)/],
    [{ hostPools: false }, { location: 'host' }, /no driver pools of host memory here; use createHostPool\(\)/],
    [{ hostPools: false }, { location: { numaNode: 0 } }, /no pools on NUMA node 0 here; use the location 'host'/],
    [{}, { location: { numaNode: 7 } }, /no pools on NUMA node 7 here/],
    [
      { managedMemory: false },
      { allocationType: 'managed' },
      /driver 13\.0; use createPool\(\{ backing: 'managed' \}\)/,
    ],
    [
      { posixDescriptors: false },
      { handleTypes: 'posixFileDescriptor' },
      /cannot be shared here.*use handleTypes 'none'/,
    ],
    [{ faults: [{ call: 'cuDeviceGetDefaultMemPool', code: 801 }] }, null, /no memory pools.*NOT_SUPPORTED/],
    [{ faults: [{ call: 'cuMemPoolCreate', code: 801 }] }, {}, /no memory pools.*NOT_SUPPORTED/],
    [{ faults: [{ call: 'cuMemPoolCreate', code: 800 }] }, { location: 'host' }, /host memory.*NOT_PERMITTED/],
  ]
  for (const [simulated, options, message] of refusals) {
    it(`options ${JSON.stringify(options)} are refused with the reason, on a driver with ${JSON.stringify(simulated)}`, () => {
      const device = new TestDevice(simulated)
      const make = () => (options === null ? device.defaultDriverPool() : device.createDriverPool(options))
      assert.throws(make, { name: 'PoolError', message })
      const { calls } = device.driver
      assert.equal(calls.get('cuMemPoolDestroy') ?? 0, 0, 'there was nothing to destroy')
    })
  }

  it('other errors of the driver are thrown as they are', () => {
    for (const code of [1, 2, 999]) {
      const device = new TestDevice({ faults: [{ call: 'cuMemPoolCreate', code }] })
      assert.throws(() => device.createDriverPool(), { name: 'CudaError', result: code })
    }
    const device = new TestDevice({ faults: [{ call: 'cuMemPoolSetAccess', code: 999 }] })
    assert.throws(() => device.createDriverPool({ location: 'host' }), {
      name: 'CudaError',
      call: 'cuMemPoolSetAccess',
    })
    assert.equal(device.driver.calls.get('cuMemPoolDestroy'), 1, 'the pool is no use without')
  })

  it('if the system forbids allocation from driver pools, the error names an alternative', () => {
    const device = new TestDevice({ faults: [{ call: 'cuMemAllocFromPoolAsync', code: 801 }] })
    const pool = device.defaultDriverPool()
    assert.throws(() => pool.allocate(1), { name: 'PoolError', message: /allows no allocation.*use createPool\(\)/ })
    pool.allocate(1)
  })
})
