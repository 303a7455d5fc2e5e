import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { GiB, MiB } from '../base/bytes.js'
import { SimulatedDriver } from '../driver/simulated/simulated-driver.js'
import { openDevice } from './open.js'
import { memoryLimitOf, platformLimits } from './platform-limits.js'

const DEVICE = { ordinal: 1, name: 'NVIDIA H200', totalBytes: 140 * GiB, uuid: () => 'aa-bb' }

const limitsIn = (env: NodeJS.ProcessEnv, device = DEVICE) =>
  platformLimits(env, device).map(({ by, variable, bytes }) => [by, variable, bytes])

describe('limits of the platform', () => {
  it('are those of MPS, HAMi, KAI and MIG for this device', () => {
    const mps = 'CUDA_MPS_PINNED_DEVICE_MEM_LIMIT'
    for (const [env, expected] of [
      [{}, []],
      [{ [mps]: '0=2G,1=512M' }, [['MPS', mps, 512 * MiB]]],
      [{ [mps]: ' 1 = 1.5G ' }, [['MPS', mps, 1.5 * GiB]]],
      [{ [mps]: '0=2G' }, []],
      [{ [mps]: 'GPU-aa-bb=3G' }, [['MPS', mps, 3 * GiB]]],
      [{ CUDA_DEVICE_MEMORY_LIMIT: '1g' }, [['HAMi', 'CUDA_DEVICE_MEMORY_LIMIT', GiB]]],
      [
        { CUDA_DEVICE_MEMORY_LIMIT: '1g', CUDA_DEVICE_MEMORY_LIMIT_1: '3000m', CUDA_DEVICE_MEMORY_LIMIT_0: '9m' },
        [['HAMi', 'CUDA_DEVICE_MEMORY_LIMIT_1', 3000 * MiB]],
      ],
      [{ CUDA_DEVICE_MEMORY_LIMIT_1: '0m' }, []],
      [{ GPU_MEMORY_LIMIT: '8589934592' }, [['KAI', 'GPU_MEMORY_LIMIT', 8 * GiB]]],
      [{ CUDA_VISIBLE_DEVICES: 'MIG-1,MIG-2' }, [['MIG', 'CUDA_VISIBLE_DEVICES', 140 * GiB]]],
      [{ CUDA_VISIBLE_DEVICES: 'MIG-1' }, []],
    ] as const) {
      assert.deepEqual(limitsIn(env), expected, JSON.stringify(env))
    }
    assert.deepEqual(limitsIn({}, { ...DEVICE, name: 'NVIDIA A100 MIG 1g.5gb' }), [['MIG', null, 140 * GiB]])
  })

  it('that cannot be read are known, and limit nothing', () => {
    for (const value of ['much', '8192', '-1', '0=2G,x', '1=', '1e400g', 'NaN', '9'.repeat(400)]) {
      for (const variable of ['CUDA_MPS_PINNED_DEVICE_MEM_LIMIT', 'CUDA_DEVICE_MEMORY_LIMIT', 'GPU_MEMORY_LIMIT']) {
        const limits = platformLimits({ [variable]: value }, DEVICE)
        assert.deepEqual([limits.length, limits[0]?.bytes, limits[0]?.value], [1, null, value], `${variable}=${value}`)
        assert.equal(memoryLimitOf(limits, 10), 10)
      }
    }
    assert.deepEqual(platformLimits({ GPU_MEMORY_LIMIT: ' ' }, DEVICE), [])
  })

  it('the least counts, up to the memory of the device', () => {
    const limits = platformLimits({ GPU_MEMORY_LIMIT: '8g', CUDA_DEVICE_MEMORY_LIMIT: '3g' }, DEVICE)
    assert.equal(memoryLimitOf(limits, 140 * GiB), 3 * GiB)
    assert.equal(memoryLimitOf(limits, 1 * GiB), 1 * GiB)
  })

  it('bound the default limits of pools and shelves, and no limit that a program gives', t => {
    process.env['CUDA_DEVICE_MEMORY_LIMIT_0'] = '3000m'
    t.after(() => {
      delete process.env['CUDA_DEVICE_MEMORY_LIMIT_0']
    })
    using device = openDevice(new SimulatedDriver())
    assert.equal(device.memoryLimit, 3000 * MiB)
    assert.equal(device.createPool().maxPoolBytes, 3000 * MiB)
    assert.equal(device.createPool({ debug: true }).maxPoolBytes, 3000 * MiB)
    assert.equal(device.poolFor(device.createStream()).maxPoolBytes, 3000 * MiB)
    assert.equal(device.createShelf().budgetBytes, 3000 * MiB)
    assert.equal(device.createPool({ maxPoolBytes: '5GiB' }).maxPoolBytes, 5 * GiB)
    using shared = device.createSharedPool()
    assert.equal(shared.maxPoolBytes, 3000 * MiB)
  })
})
