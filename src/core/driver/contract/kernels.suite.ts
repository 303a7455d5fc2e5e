// The contract of modules, launches and occupancy.

import assert from 'node:assert/strict'
import { beforeEach, describe, it } from 'node:test'
import { KiB } from '../../base/bytes.js'
import { DEVICE_ATTRIBUTE, FUNCTION_ATTRIBUTE, RESULT } from '../constants.js'
import type { Driver, KernelArguments, LaunchShape } from '../driver.js'
import { CUBIN_75, CUBIN_90, FATBIN } from '../images.fixture.js'
import { STORE_PTX } from '../store-kernel.fixture.js'
import type { DriverFixture } from './contract.fixture.js'
import { refuses } from './refuses.fixture.js'

const {
  CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z,
  CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y,
  CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK,
  CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
  CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH,
  CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
} = DEVICE_ATTRIBUTE

export function kernelSuite(fixture: DriverFixture): void {
  const { allocate, createStream, later, read } = fixture
  let driver: Driver
  let device: number
  beforeEach(() => {
    driver = fixture.driver
    device = fixture.device
  })

  describe('kernels', () => {
    let kernel: number
    const { CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES } =
      FUNCTION_ATTRIBUTE

    beforeEach(() => {
      const module = driver.cuModuleLoadData(STORE_PTX)
      later(() => driver.cuModuleUnload(module))
      kernel = driver.cuModuleGetFunction(module, 'driver_suite_store')
    })

    function shaped(grid: number, block: number, sharedBytes = 0): LaunchShape {
      return { grid: [grid, 1, 1], block: [block, 1, 1], sharedBytes }
    }

    function storing(target: number, value: number): KernelArguments {
      return { bytes: new Uint8Array(new BigUint64Array([BigInt(target), BigInt(value)]).buffer), offsets: [0, 8] }
    }

    it('both launches run with the arguments and the shape at the call', () => {
      const [stream, ptr] = [createStream(), allocate(KiB)]
      const shape = { grid: [1, 1, 1] as [number, number, number], block: [1, 1, 1] as const, sharedBytes: 0 }
      driver.cuLaunchKernel(kernel, shape, stream, storing(ptr, 7))
      driver.cuLaunchCooperativeKernel(kernel, shape, stream, storing(ptr + 4, 8))
      shape.grid[0] = 0
      assert.deepEqual(new Uint32Array(read(ptr, 8).buffer), new Uint32Array([7, 8]))
    })

    it('machine code is loaded by a GPU of its architecture only', () => {
      const major = driver.cuDeviceGetAttribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device)
      const foreign = major === 7 ? CUBIN_90 : CUBIN_75
      refuses(() => driver.cuModuleLoadData(foreign), 'cuModuleLoadData', RESULT.CUDA_ERROR_NO_BINARY_FOR_GPU)
      const [stream, ptr] = [createStream(), allocate(KiB)]
      for (const [index, image] of (major === 9 ? [CUBIN_90, FATBIN] : []).entries()) {
        const module = driver.cuModuleLoadData(image)
        later(() => driver.cuModuleUnload(module))
        const args = { bytes: new Uint8Array(16), offsets: [0, 8, 12] }
        new DataView(args.bytes.buffer).setBigUint64(0, BigInt(ptr + 4 * index), true)
        args.bytes.set([1, 0, 0, 0, 40 + index], 8)
        driver.cuLaunchKernel(driver.cuModuleGetFunction(module, 'image_fill'), shaped(1, 1), stream, args)
        assert.deepEqual([...read(ptr + 4 * index, 4)], [40 + index, 0, 0, 0])
      }
    })

    it('a cooperative launch is refused if its blocks do not fit', () => {
      const [stream, ptr] = [createStream(), allocate(KiB)]
      assert.equal(driver.cuDeviceGetAttribute(CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH, device), 1)
      const multiprocessors = driver.cuDeviceGetAttribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device)
      const each = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(kernel, 256, 0)
      assert.ok(each >= 1 && each <= 32)
      const launch = (blocks: number) =>
        driver.cuLaunchCooperativeKernel(kernel, shaped(blocks, 256), stream, storing(ptr, 1))
      launch(each * multiprocessors)
      const tooLarge = RESULT.CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE
      refuses(() => launch(each * multiprocessors + 1), 'cuLaunchCooperativeKernel', tooLarge)
      assert.ok(driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(kernel, 256, 40 * KiB) < each)
      const { blocks, blockThreads } = driver.cuOccupancyMaxPotentialBlockSize(kernel, 0)
      const filled = driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(kernel, blockThreads, 0)
      assert.equal(blocks, filled * multiprocessors)
    })

    it('launches beyond the limits in the attributes are refused', () => {
      const [stream, ptr] = [createStream(), allocate(KiB)]
      const limit = (attribute: number) => driver.cuDeviceGetAttribute(attribute, device)
      const invalid = RESULT.CUDA_ERROR_INVALID_VALUE
      const most = {
        grid: [1, limit(CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y), 1],
        block: [1, 1, limit(CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z)],
        sharedBytes: limit(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK),
      } as const
      const launch = (shape: LaunchShape) => driver.cuLaunchKernel(kernel, shape, stream, storing(ptr, 1))
      launch(most)
      refuses(() => launch({ ...most, grid: [1, most.grid[1] + 1, 1] }), 'cuLaunchKernel', invalid)
      refuses(() => launch({ ...most, block: [1, 1, most.block[2] + 1] }), 'cuLaunchKernel', invalid)
      refuses(() => launch({ ...most, sharedBytes: most.sharedBytes + 4 }), 'cuLaunchKernel', invalid)
      assert.equal(driver.cuFuncGetAttribute(CU_FUNC_ATTRIBUTE_MAX_THREADS_PER_BLOCK, kernel), 1024)
      refuses(() => driver.cuFuncGetAttribute(999, kernel), 'cuFuncGetAttribute', invalid)
    })

    it('a kernel may use more shared memory after cuFuncSetAttribute', () => {
      const [stream, ptr] = [createStream(), allocate(KiB)]
      const optin = driver.cuDeviceGetAttribute(CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN, device)
      const attribute = CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
      driver.cuFuncSetAttribute(kernel, attribute, optin)
      assert.equal(driver.cuFuncGetAttribute(attribute, kernel), optin)
      driver.cuLaunchKernel(kernel, shaped(1, 32, optin), stream, storing(ptr, 3))
      assert.equal(read(ptr, 4)[0], 3)
      const more = () => driver.cuFuncSetAttribute(kernel, attribute, optin + 1)
      refuses(more, 'cuFuncSetAttribute', RESULT.CUDA_ERROR_INVALID_VALUE)
    })
  })
}
