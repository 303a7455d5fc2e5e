import assert from 'node:assert/strict'
import { after, test } from 'node:test'
import { CudaError, DeviceLostError } from '../../../base/errors.js'
import { RESULT } from '../../constants.js'
import { refuses } from '../../contract/refuses.fixture.js'
import { driverSuite } from '../../driver.suite.js'
import { OwnerThread } from '../../driver-threads.worker.js'
import { connectDriver } from '../../shared-driver.js'
import type { SimulatedOptions } from '../options.js'
import type { RemoteDriver } from './remote-driver.js'

const thread = new OwnerThread()
after(() => thread.worker.terminate())

const newShared = (bytes: number) => new Uint8Array(new SharedArrayBuffer(bytes))
const open = (options: SimulatedOptions = {}) => connectDriver(thread.open(options)) as RemoteDriver

driverSuite('simulated, of another thread, two devices', () => open({ devices: 2 }), newShared)

function openReady(): RemoteDriver {
  const driver = open({ progress: 'eager' })
  driver.cuInit()
  driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(0))
  return driver
}

test('properties are read from the owning thread', () => {
  const driver = openReady()
  assert.equal(driver.simulated, true)
  assert.equal(driver.usersOf!(0), null)
  assert.match(driver.origin, /simulated in memory, seed 1/)
  assert.equal(driver.calls.get('cuInit'), 1)
  assert.ok(driver.modelledSeconds! < 1)
  driver.cuMemAlloc(512)
  assert.equal(driver.usedBytes(), 512)
})

test('errors arrive with their class and fields', () => {
  const driver = openReady()
  assert.throws(
    () => driver.cuMemAlloc(0),
    (error: unknown) => {
      assert.ok(error instanceof CudaError)
      const { call, result, resultName, message } = error
      assert.deepEqual([call, result, resultName], ['cuMemAlloc', 1, 'CUDA_ERROR_INVALID_VALUE'])
      assert.equal(
        message,
        'cuMemAlloc failed: CUDA_ERROR_INVALID_VALUE (1): a size must be a whole number from 1, not 0',
      )
      return true
    },
  )
  assert.throws(() => driver.passTime(-1), { name: 'RangeError', message: /passTime: seconds must not be negative/ })
  assert.throws(() => driver.failCall({ call: 'cuMemAlloc', onwards: 1 } as never), {
    name: 'TypeError',
    message: /onwards/,
  })
  driver.failCall({ call: 'cuCtxSynchronize', code: RESULT.CUDA_ERROR_LAUNCH_FAILED })
  refuses(() => driver.cuCtxSynchronize(), 'cuCtxSynchronize', RESULT.CUDA_ERROR_LAUNCH_FAILED)
  assert.throws(
    () => driver.cuMemAlloc(512),
    (error: unknown) => {
      assert.ok(error instanceof DeviceLostError && error.first instanceof CudaError)
      assert.deepEqual([error.first.call, error.first.result], ['cuCtxSynchronize', RESULT.CUDA_ERROR_LAUNCH_FAILED])
      assert.match(error.message, /the device is lost since cuCtxSynchronize failed: .*a fault rule/)
      return true
    },
  )
})

test('unshared memory is copied from and to, but cannot be registered', () => {
  const driver = openReady()
  const refused = { name: 'TypeError', message: /cuMemHostRegister: host must lie in a SharedArrayBuffer/ }
  assert.throws(() => driver.cuMemHostRegister(new Uint8Array(4096), 0), refused)
  assert.throws(() => driver.cuMemHostRegister(newShared(3), 0), refused)
  const whole = new Uint8Array(1024).fill(1)
  const ptr = driver.cuMemAlloc(512)
  driver.cuMemcpyHtoD(ptr, whole.fill(7, 100, 612).subarray(100, 612))
  const back = new Uint32Array(256)
  driver.cuMemcpyDtoHAsync(back.subarray(64, 192), ptr, 0)
  assert.deepEqual([back[63], back[64], back[191], back[192]], [0, 0x07070707, 0x07070707, 0])
})

test('each host buffer has one address of its own', () => {
  const driver = openReady()
  const [shared, other, plain] = [newShared(8192), newShared(8192), new Uint8Array(8192)]
  const places = [shared, other, plain].map(host => driver.hostAddress(host))
  assert.equal(driver.hostAddress(shared.subarray(100)), places[0] + 100)
  places.sort((a, b) => a - b)
  assert.ok(places[1] - places[0] >= 8192 && places[2] - places[1] >= 8192)
})
