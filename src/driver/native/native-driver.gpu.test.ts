// The native driver on a real GPU: the suite of all drivers, and what only a GPU does. Without one it fails.

import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { after, before, describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { CudaError, DeviceLostError } from '../../base/errors.js'
import { CU_STREAM_NON_BLOCKING, POOL_ATTRIBUTE, RESULT } from '../constants.js'
import { driverSuite } from '../driver.suite.js'
import { NativeDriver } from './native-driver.js'

const SCALE_PTX = `
.version 6.3
.target sm_75
.address_size 64
.visible .entry scale(.param .u64 target, .param .u32 count, .param .f32 factor)
{
  .reg .pred %past;
  .reg .b32 %i, %width, %block, %count;
  .reg .f32 %value, %factor;
  .reg .b64 %address, %target;
  ld.param.u64 %target, [target];
  ld.param.u32 %count, [count];
  ld.param.f32 %factor, [factor];
  mov.u32 %i, %tid.x;
  mov.u32 %width, %ntid.x;
  mov.u32 %block, %ctaid.x;
  mad.lo.u32 %i, %block, %width, %i;
  setp.ge.u32 %past, %i, %count;
  @%past ret;
  cvt.rn.f32.u32 %value, %i;
  mul.f32 %value, %value, %factor;
  cvta.to.global.u64 %target, %target;
  mad.wide.u32 %address, %i, 4, %target;
  st.global.f32 [%address], %value;
  ret;
}
`

const FAULT_PTX = `
.version 6.3
.target sm_75
.address_size 64
.visible .entry fault()
{
  .reg .b64 %address;
  mov.u64 %address, 16;
  st.global.u32 [%address], 1;
  ret;
}
`

/** A driver with the primary context of the first device current. */
function openFirst(): NativeDriver {
  const driver = NativeDriver.open()
  driver.cuInit()
  driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(driver.cuDeviceGet(0)))
  return driver
}

/** Run in a process of its own: only that is lost. Prints what each call after the fault throws. */
function loseDevice(): void {
  const driver = openFirst()
  const ptr = driver.cuMemAlloc(256)
  const kernel = driver.cuModuleGetFunction(driver.cuModuleLoadData(FAULT_PTX), 'fault')
  const shape = { grid: [1, 1, 1], block: [1, 1, 1], sharedBytes: 0 } as const
  driver.cuLaunchKernel(kernel, shape, 0, { bytes: new Uint8Array(0), offsets: [] })
  const calls = [
    () => driver.cuCtxSynchronize(),
    () => driver.cuMemAlloc(256),
    () => driver.cuMemFree(ptr),
    () => driver.cuStreamQuery(0),
  ]
  const thrown = calls.map(call => {
    try {
      call()
      return null
    } catch (error) {
      const first = error instanceof DeviceLostError ? error.first : (error as CudaError)
      return [(error as Error).name, first.call, first.code, first.codeName]
    }
  })
  console.log(JSON.stringify(thrown))
}

if (process.argv[2] === 'lose-device') loseDevice()
else {
  driverSuite('the native driver', NativeDriver.open)

  describe('the native driver on a GPU', () => {
    let driver: NativeDriver
    before(() => {
      driver = openFirst()
    })
    after(() => driver?.cuDevicePrimaryCtxRelease(0))

    test('describes the driver and the device', () => {
      assert.match(driver.origin, /^\S*libcuda\.so/)
      assert.ok(driver.cuDriverGetVersion() >= 11000)
      assert.match(driver.cuDeviceGetName(0), /\w/)
      const { freeBytes, totalBytes } = driver.cuMemGetInfo()
      assert.ok(freeBytes > 0 && freeBytes <= totalBytes && totalBytes <= driver.cuDeviceTotalMem(0))
    })

    test('launches a kernel with a pointer, an integer and a float', () => {
      const module = driver.cuModuleLoadData(SCALE_PTX)
      const kernel = driver.cuModuleGetFunction(module, 'scale')
      const stream = driver.cuStreamCreate(CU_STREAM_NON_BLOCKING)
      const ptr = driver.cuMemAlloc(4 * 1000)
      driver.cuMemsetD8Async(ptr, 0xff, 4 * 1000, stream)

      const bytes = new Uint8Array(16)
      const view = new DataView(bytes.buffer)
      view.setBigUint64(0, BigInt(ptr), true)
      view.setUint32(8, 999, true)
      view.setFloat32(12, 2.5, true)
      const shape = { grid: [4, 1, 1], block: [256, 1, 1], sharedBytes: 0 } as const
      driver.cuLaunchKernel(kernel, shape, stream, { bytes, offsets: [0, 8, 12] })

      const result = new Float32Array(1000)
      driver.cuMemcpyDtoHAsync(result, ptr, stream)
      driver.cuStreamSynchronize(stream)
      for (let i = 0; i < 999; i++) assert.equal(result[i], i * 2.5)
      assert.ok(Number.isNaN(result[999]), 'what lies behind the count should be untouched')

      driver.cuMemFree(ptr)
      driver.cuStreamDestroy(stream)
      driver.cuModuleUnload(module)
    })

    test('shows what the PTX compiler has to say', () => {
      assert.throws(
        () => driver.cuModuleLoadData(SCALE_PTX.replace('mul.f32', 'mull.f32')),
        (error: Error) =>
          error instanceof CudaError &&
          error.code === RESULT.CUDA_ERROR_INVALID_PTX &&
          error.codeName === 'CUDA_ERROR_INVALID_PTX' &&
          /line \d+.*mull/s.test(error.message),
      )
    })

    test('names a kernel that a module does not have', () => {
      const module = driver.cuModuleLoadData(new TextEncoder().encode(SCALE_PTX))
      assert.throws(
        () => driver.cuModuleGetFunction(module, 'scales'),
        (error: Error) => error instanceof CudaError && error.codeName === 'CUDA_ERROR_NOT_FOUND',
      )
      driver.cuModuleUnload(module)
    })

    test('says Infinity for a threshold without a limit', () => {
      const pool = driver.cuDeviceGetDefaultMemPool(0)
      const { CU_MEMPOOL_ATTR_RELEASE_THRESHOLD: threshold } = POOL_ATTRIBUTE
      const before = driver.cuMemPoolGetAttribute(pool, threshold)
      driver.cuMemPoolSetAttribute(pool, threshold, Number.POSITIVE_INFINITY)
      assert.equal(driver.cuMemPoolGetAttribute(pool, threshold), Number.POSITIVE_INFINITY)
      driver.cuMemPoolSetAttribute(pool, threshold, before)
    })

    test('copies into and out of views at any offset, and of shared memory', () => {
      const ptr = driver.cuMemAlloc(8)
      for (const buffer of [new ArrayBuffer(40), new SharedArrayBuffer(40)]) {
        const source = new Uint8Array(buffer, 5, 8)
        const target = new Uint8Array(buffer, 21, 8)
        source.set([1, 2, 3, 4, 5, 6, 7, 8])
        driver.cuMemcpyHtoD(ptr, source)
        driver.cuMemcpyDtoH(target, ptr)
        assert.deepEqual([...new Uint8Array(buffer, 20, 10)], [0, 1, 2, 3, 4, 5, 6, 7, 8, 0])
      }
      driver.cuMemFree(ptr)
    })

    test('loses the device to a fault, and every later call says so', () => {
      const child = spawnSync(process.execPath, [fileURLToPath(import.meta.url), 'lose-device'], { encoding: 'utf8' })
      assert.equal(child.status, 0, child.stderr)
      const first = ['cuCtxSynchronize', RESULT.CUDA_ERROR_ILLEGAL_ADDRESS, 'CUDA_ERROR_ILLEGAL_ADDRESS']
      const lost = ['DeviceLostError', ...first]
      assert.deepEqual(JSON.parse(child.stdout), [['CudaError', ...first], lost, lost, lost])
    })
  })
}
