// The native driver on a real GPU: the contract tests, and behaviour of GPUs alone. Fails without a GPU.

import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { after, before, describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { CudaError, DeviceLostError } from '../../base/errors.js'
import {
  CU_MEM_ACCESS_FLAGS_PROT_NONE,
  CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
  CU_MEM_ATTACH_GLOBAL,
  CU_MEM_HANDLE_TYPE_NONE,
  CU_MEM_LOCATION_TYPE_DEVICE,
  CU_MEMHOSTREGISTER_DEVICEMAP,
  CU_MEMHOSTREGISTER_PORTABLE,
  CU_STREAM_NON_BLOCKING,
  DEVICE_ATTRIBUTE,
  POOL_ATTRIBUTE,
  RESULT,
} from '../constants.js'
import { driverSuite } from '../driver.suite.js'
import { contents, isFilled, KiB, MiB, openFirst, PINNED, refused } from './gpu.fixture.js'
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

/** Runs in a process of its own, which loses the device. Prints the error of each call after the fault. */
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

    test('shows the log of the PTX compiler', () => {
      assert.throws(
        () => driver.cuModuleLoadData(SCALE_PTX.replace('mul.f32', 'mull.f32')),
        (error: Error) =>
          error instanceof CudaError &&
          error.code === RESULT.CUDA_ERROR_INVALID_PTX &&
          error.codeName === 'CUDA_ERROR_INVALID_PTX' &&
          /line \d+.*mull/s.test(error.message),
      )
    })

    test('names a kernel that is missing in a module', () => {
      const module = driver.cuModuleLoadData(new TextEncoder().encode(SCALE_PTX))
      assert.throws(
        () => driver.cuModuleGetFunction(module, 'scales'),
        (error: Error) => error instanceof CudaError && error.codeName === 'CUDA_ERROR_NOT_FOUND',
      )
      driver.cuModuleUnload(module)
    })

    test('reads a threshold without limit as Infinity', () => {
      const pool = driver.cuDeviceGetDefaultMemPool(0)
      const { CU_MEMPOOL_ATTR_RELEASE_THRESHOLD: threshold } = POOL_ATTRIBUTE
      const before = driver.cuMemPoolGetAttribute(pool, threshold)
      driver.cuMemPoolSetAttribute(pool, threshold, Number.POSITIVE_INFINITY)
      assert.equal(driver.cuMemPoolGetAttribute(pool, threshold), Number.POSITIVE_INFINITY)
      driver.cuMemPoolSetAttribute(pool, threshold, before)
    })

    test('copies to and from views at any offset, and shared memory', () => {
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

    test('loses the device after a fault, and each later call says so', () => {
      const child = spawnSync(process.execPath, [fileURLToPath(import.meta.url), 'lose-device'], { encoding: 'utf8' })
      assert.equal(child.status, 0, child.stderr)
      const first = ['cuCtxSynchronize', RESULT.CUDA_ERROR_ILLEGAL_ADDRESS, 'CUDA_ERROR_ILLEGAL_ADDRESS']
      const lost = ['DeviceLostError', ...first]
      assert.deepEqual(JSON.parse(child.stdout), [['CudaError', ...first], lost, lost, lost])
    })

    test('copies to, within and from managed memory', t => {
      const { CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY: offered } = DEVICE_ATTRIBUTE
      if (driver.cuDeviceGetAttribute(offered, 0) !== 1) return t.skip('this device has no managed memory')
      const managed = driver.cuMemAllocManaged(128 * KiB, CU_MEM_ATTACH_GLOBAL)
      const plain = driver.cuMemAlloc(64 * KiB)
      const source = new Uint8Array(64 * KiB).map((_, i) => i % 251)
      driver.cuMemsetD8(managed, 7, 128 * KiB)
      driver.cuMemcpyHtoD(managed, source)
      driver.cuMemcpyDtoD(plain, managed, 64 * KiB)
      assert.deepEqual(contents(driver, plain, 64 * KiB), source)
      assert.deepEqual(contents(driver, managed, 64 * KiB), source)
      assert.ok(isFilled(driver, managed + 64 * KiB, 64 * KiB, 7))
      for (const ptr of [managed, plain]) driver.cuMemFree(ptr)
    })

    test('uses registered host memory by its device address', () => {
      for (const buffer of [new ArrayBuffer(64 * KiB), new SharedArrayBuffer(64 * KiB)]) {
        const host = new Uint8Array(buffer).map((_, i) => i % 253)
        const registered = new Uint8Array(buffer)
        registered.set(host)
        driver.cuMemHostRegister(registered, CU_MEMHOSTREGISTER_DEVICEMAP | CU_MEMHOSTREGISTER_PORTABLE)
        const mapped = driver.cuMemHostGetDevicePointer(registered)
        assert.equal(driver.cuMemHostGetDevicePointer(registered.subarray(4 * KiB)), mapped + 4 * KiB)
        const ptr = driver.cuMemAlloc(64 * KiB)
        driver.cuMemcpyDtoDAsync(ptr, mapped, 64 * KiB, 0)
        driver.cuMemsetD8Async(mapped, 0x77, KiB, 0)
        driver.cuStreamSynchronize(0)
        assert.deepEqual(contents(driver, ptr, 64 * KiB), host)
        assert.ok(registered.subarray(0, KiB).every(byte => byte === 0x77))
        assert.deepEqual(Uint8Array.from(registered.subarray(KiB)), host.slice(KiB))
        driver.cuMemFree(ptr)
        driver.cuMemHostUnregister(registered)
      }
    })

    test('cuMemcpyPeerAsync copies within one context too', () => {
      const context = driver.cuDevicePrimaryCtxRetain(0)
      const [source, target] = [driver.cuMemAlloc(MiB), driver.cuMemAlloc(MiB)]
      driver.cuMemsetD8Async(source, 0x21, MiB, 0)
      driver.cuMemcpyPeerAsync(target, context, source, context, MiB, 0)
      driver.cuStreamSynchronize(0)
      assert.ok(isFilled(driver, target, MiB, 0x21))
      const enable = () => driver.cuCtxEnablePeerAccess(context)
      assert.throws(enable, refused('cuCtxEnablePeerAccess'), 'a context is no peer of its own')
      for (const ptr of [source, target]) driver.cuMemFree(ptr)
      driver.cuDevicePrimaryCtxRelease(0)
    })

    test('says if a device can access another device', () => {
      assert.equal(typeof driver.cuDeviceCanAccessPeer(0, 0), 'boolean')
      assert.throws(() => driver.cuDeviceCanAccessPeer(0, 999), refused('cuDeviceCanAccessPeer'))
    })

    test('gives two devices access to memory of one of them', t => {
      if (driver.cuDeviceGetCount() < 2) return t.skip('there is one GPU, and this needs two')
      if (!driver.cuDeviceCanAccessPeer(0, 1)) return t.skip('GPU 0 cannot reach GPU 1')
      const [first, second] = [0, 1].map(device => driver.cuDevicePrimaryCtxRetain(device))
      driver.cuCtxSetCurrent(second)
      const far = driver.cuMemAlloc(MiB)
      driver.cuMemsetD8(far, 0x42, MiB)
      driver.cuCtxSynchronize()
      driver.cuCtxSetCurrent(first)
      driver.cuCtxEnablePeerAccess(second)
      const enable = () => driver.cuCtxEnablePeerAccess(second)
      assert.throws(enable, refused('cuCtxEnablePeerAccess', RESULT.CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED))
      const near = driver.cuMemAlloc(MiB)
      driver.cuMemcpyPeerAsync(near, first, far, second, MiB, 0)
      driver.cuStreamSynchronize(0)
      assert.ok(isFilled(driver, near, MiB, 0x42))

      const granule = driver.cuMemGetAllocationGranularity(0)
      const mapped = driver.cuMemAddressReserve(granule, 0)
      const handle = driver.cuMemCreate(granule, 0, CU_MEM_HANDLE_TYPE_NONE)
      driver.cuMemMap(mapped, granule, handle)
      driver.cuMemSetAccess(mapped, granule, [0, 1])
      const pool = driver.cuMemPoolCreate(PINNED)
      const access = () => driver.cuMemPoolGetAccess(pool, CU_MEM_LOCATION_TYPE_DEVICE, 1)
      for (const flags of [CU_MEM_ACCESS_FLAGS_PROT_NONE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE]) {
        driver.cuMemPoolSetAccess(pool, CU_MEM_LOCATION_TYPE_DEVICE, 1, flags)
        assert.equal(access(), flags)
      }
      const pooled = driver.cuMemAllocFromPoolAsync(MiB, pool, 0)
      driver.cuCtxSynchronize()

      driver.cuCtxSetCurrent(second)
      driver.cuMemsetD8(mapped, 0x43, granule)
      driver.cuMemsetD8(pooled, 0x44, MiB)
      driver.cuCtxSynchronize()
      driver.cuMemFree(far)
      driver.cuCtxSetCurrent(first)
      assert.ok(isFilled(driver, mapped, granule, 0x43))
      assert.ok(isFilled(driver, pooled, MiB, 0x44))

      driver.cuMemFreeAsync(pooled, 0)
      driver.cuStreamSynchronize(0)
      driver.cuMemPoolDestroy(pool)
      driver.cuMemUnmap(mapped, granule)
      driver.cuMemRelease(handle)
      driver.cuMemAddressFree(mapped, granule)
      driver.cuMemFree(near)
      for (const device of [0, 1]) driver.cuDevicePrimaryCtxRelease(device)
    })
  })
}
