// The native driver on a real GPU: the contract tests, and behaviour of GPUs alone. Fails without a GPU.

import assert from 'node:assert/strict'
import { spawnSync } from 'node:child_process'
import { after, before, describe, test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { CudaError, DeviceLostError } from '../../base/errors.js'
import { RESULT } from '../constants.js'
import { driverSuite } from '../driver.suite.js'
import { STORE_PTX } from '../store-kernel.fixture.js'
import { openFirst } from './gpu.fixture.js'
import { NativeDriver } from './native-driver.js'

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
      return [(error as Error).name, first.call, first.result, first.resultName]
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

    test('names a kernel that is missing in a module', () => {
      const module = driver.cuModuleLoadData(new TextEncoder().encode(STORE_PTX))
      assert.throws(
        () => driver.cuModuleGetFunction(module, 'none'),
        (error: Error) => error instanceof CudaError && error.resultName === 'CUDA_ERROR_NOT_FOUND',
      )
      driver.cuModuleUnload(module)
    })

    test('loses the device after a fault, and each later call says so', () => {
      const child = spawnSync(process.execPath, [fileURLToPath(import.meta.url), 'lose-device'], { encoding: 'utf8' })
      assert.equal(child.status, 0, child.stderr)
      const first = ['cuCtxSynchronize', RESULT.CUDA_ERROR_ILLEGAL_ADDRESS, 'CUDA_ERROR_ILLEGAL_ADDRESS']
      const lost = ['DeviceLostError', ...first]
      assert.deepEqual(JSON.parse(child.stdout), [['CudaError', ...first], lost, lost, lost])
    })
  })
}
