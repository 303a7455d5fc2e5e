import assert from 'node:assert/strict'
import { test } from 'node:test'
import { GiB, MiB } from '../../base/bytes.js'
import { DeviceLostError } from '../../base/errors.js'
import { RESULT } from '../constants.js'
import { refuses } from '../contract/refuses.fixture.js'
import { CALL_NAMES } from '../table.js'
import type { FaultRule } from './faults.js'
import { openSimulated } from './opened.fixture.js'
import type { SimulatedOptions } from './options.js'
import { SimulatedDriver } from './simulated-driver.js'

const { CUDA_ERROR_OUT_OF_MEMORY, CUDA_ERROR_NOT_PERMITTED } = RESULT

test('the n-th call of a function fails once, without an effect, and is counted', () => {
  const driver = openSimulated()
  driver.failCall({ call: 'cuMemAlloc', nth: 2 })
  const first = driver.cuMemAlloc(MiB)
  refuses(() => driver.cuMemAlloc(MiB), 'cuMemAlloc', CUDA_ERROR_OUT_OF_MEMORY)
  assert.equal(driver.usedBytes(), MiB)
  driver.cuMemFree(first)
  driver.cuMemAlloc(MiB)
  assert.equal(driver.calls.get('cuMemAlloc'), 3)
})

test('each call can fail, before it checks its arguments', () => {
  for (const call of CALL_NAMES) {
    const driver = openSimulated()
    driver.failCall({ call, code: CUDA_ERROR_NOT_PERMITTED })
    refuses(() => (driver[call] as () => unknown)(), call, CUDA_ERROR_NOT_PERMITTED)
  }
})

test('a rule can hold from the n-th call on, and for any call; clearFaults ends all rules', () => {
  const driver = openSimulated()
  driver.failCall({ call: '*', nth: 3, code: CUDA_ERROR_NOT_PERMITTED, onwards: true })
  driver.cuMemGetInfo()
  const ptr = driver.cuMemAlloc(1)
  refuses(() => driver.cuMemFree(ptr), 'cuMemFree', CUDA_ERROR_NOT_PERMITTED)
  refuses(() => driver.cuMemGetInfo(), 'cuMemGetInfo', CUDA_ERROR_NOT_PERMITTED)
  driver.clearFaults()
  driver.cuMemFree(ptr)
  assert.equal(driver.usedBytes(), 0)
})

test('rules can be given as an option and add up', () => {
  const driver = new SimulatedDriver({ faults: [{ call: 'cuInit' }, { call: '*', nth: 2 }] })
  refuses(() => driver.cuInit(), 'cuInit', CUDA_ERROR_OUT_OF_MEMORY)
  refuses(() => driver.cuInit(), 'cuInit', CUDA_ERROR_OUT_OF_MEMORY)
  driver.cuInit()
})

test('a fault has its code by name, too', () => {
  const driver = openSimulated()
  driver.failCall({ call: 'cuMemAlloc', code: 'CUDA_ERROR_NOT_PERMITTED' })
  refuses(() => driver.cuMemAlloc(1), 'cuMemAlloc', RESULT.CUDA_ERROR_NOT_PERMITTED)
})

test('an injected sticky error ends the context', () => {
  const driver = openSimulated()
  driver.failCall({ call: 'cuStreamSynchronize', code: RESULT.CUDA_ERROR_LAUNCH_FAILED })
  refuses(() => driver.cuStreamSynchronize(0), 'cuStreamSynchronize', RESULT.CUDA_ERROR_LAUNCH_FAILED)
  assert.throws(() => driver.cuMemGetInfo(), DeviceLostError)
})

test('wrong rules are refused by name', () => {
  const driver = new SimulatedDriver()
  const wrong: [unknown, RegExp][] = [
    [{ call: 'cudaMalloc' }, /call .*cudaMalloc/],
    [{ call: 'cuMemAlloc', nth: 0 }, /nth/],
    [{ call: 'cuMemAlloc', code: 12345 }, /code .*12345; there are .*CUDA_ERROR_OUT_OF_MEMORY, /],
    [{ call: 'cuMemAlloc', code: 'CUDA_SUCCESS' }, /code .*CUDA_SUCCESS/],
    ['cuMemAlloc', /^failCall: write failCall\(\{ call: 'cuMemAlloc', code: 'CUDA_ERROR_…' \}\)$/],
    [{ call: 'cuMemAlloc', code: 0 }, /code/],
    [{ call: 'cuMemAlloc', onwards: 1 }, /onwards/],
    [{ call: 'cuMemAlloc', times: 1 }, /times/],
    [undefined, /fault rule/],
  ]
  for (const [rule, message] of wrong) assert.throws(() => driver.failCall(rule as FaultRule), { message })
})

test('wrong options are refused by name', () => {
  const wrong: [unknown, string, RegExp][] = [
    [{ device: 1 }, 'TypeError', /'device'/],
    [{ devices: 0 }, 'RangeError', /devices/],
    [{ devices: 1.5 }, 'RangeError', /devices/],
    [{ capacityBytes: -1 }, 'RangeError', /capacityBytes/],
    [{ capacityBytes: 'much' }, 'RangeError', /capacityBytes/],
    [{ granularityBytes: 3 * MiB }, 'RangeError', /granularityBytes/],
    [{ granularityBytes: 512 }, 'RangeError', /granularityBytes/],
    [{ virtualMemory: 0 }, 'TypeError', /virtualMemory/],
    [{ memoryPools: 'yes' }, 'TypeError', /memoryPools/],
    [{ hostPools: 1 }, 'TypeError', /hostPools/],
    [{ numaNodes: 17 }, 'RangeError', /numaNodes must be a whole number from 0 to 16, not 17/],
    [{ numaNodes: '1' }, 'RangeError', /numaNodes/],
    [{ numaBinding: 1 }, 'TypeError', /numaBinding/],
    [{ managedMemory: null }, 'TypeError', /managedMemory/],
    [{ posixDescriptors: 0 }, 'TypeError', /posixDescriptors/],
    [{ peerAccess: 'none' }, 'TypeError', /peerAccess/],
    [{ seed: NaN }, 'RangeError', /seed/],
    [{ progress: 'lazy' }, 'RangeError', /progress/],
    [{ faults: {} }, 'TypeError', /faults/],
    [null, 'TypeError', /options/],
  ]
  for (const [options, name, message] of wrong) {
    assert.throws(() => new SimulatedDriver(options as SimulatedOptions), { name, message })
  }
  assert.equal(openSimulated({ capacityBytes: 3 * GiB }).cuDeviceTotalMem(0), 3 * GiB)
})
