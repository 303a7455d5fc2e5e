// The contract of virtual memory management, and of its export to other processes.

import assert from 'node:assert/strict'
import { closeSync } from 'node:fs'
import { beforeEach, describe, it, type TestContext } from 'node:test'
import { GiB, KiB, MiB, TiB } from '../../base/bytes.js'
import { CudaError } from '../../base/errors.js'
import {
  CU_MEM_ACCESS_FLAGS_PROT_READ,
  CU_MEM_ALLOC_GRANULARITY_MINIMUM,
  CU_MEM_ALLOC_GRANULARITY_RECOMMENDED,
  CU_MEM_HANDLE_TYPE_FABRIC,
  CU_MEM_HANDLE_TYPE_NONE,
  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
  DEVICE_ATTRIBUTE,
  RESULT,
} from '../constants.js'
import type { Driver } from '../driver.js'
import { type DriverFixture, sequence } from './contract.fixture.js'
import { refuses } from './refuses.fixture.js'

const {
  CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED,
  CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED,
  CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
  CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
} = DEVICE_ATTRIBUTE

export function virtualMemorySuite(fixture: DriverFixture): void {
  const { allocate, exported, later, missing, read } = fixture
  let driver: Driver
  let device: number
  beforeEach(() => {
    driver = fixture.driver
    device = fixture.device
  })

  describe('virtual memory', () => {
    const attribute = CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
    let granule = 0
    const lacks = (test: TestContext) => {
      if (missing(test, attribute, 'virtual memory management')) return true
      granule = driver.cuMemGetAllocationGranularity(device)
      return false
    }

    function reserve(bytes: number): number {
      const base = driver.cuMemAddressReserve(bytes, 0)
      later(() => driver.cuMemAddressFree(base, bytes))
      return base
    }

    /** A handle mapped with access, unmapped and released after the test. */
    function map(ptr: number, bytes: number): number {
      const handle = driver.cuMemCreate(bytes, device, CU_MEM_HANDLE_TYPE_NONE)
      later(() => driver.cuMemRelease(handle))
      driver.cuMemMap(ptr, bytes, handle)
      later(() => driver.cuMemUnmap(ptr, bytes))
      driver.cuMemSetAccess(ptr, bytes, [device])
      return handle
    }

    it('the granularity is a power of two, and reservations may exceed the device memory', test => {
      if (lacks(test)) return
      assert.ok(granule >= 64 * KiB && Number.isInteger(Math.log2(granule)))
      const base = reserve(4 * TiB)
      assert.equal(base % granule, 0)
      const { freeBytes } = driver.cuMemGetInfo()
      reserve(TiB)
      assert.ok(freeBytes - driver.cuMemGetInfo().freeBytes < GiB)
    })

    it('the recommended granularity is a multiple of the least', test => {
      if (lacks(test)) return
      assert.equal(driver.cuMemGetAllocationGranularity(device, CU_MEM_ALLOC_GRANULARITY_MINIMUM), granule)
      const recommended = driver.cuMemGetAllocationGranularity(device, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED)
      assert.ok(recommended >= granule && Number.isInteger(Math.log2(recommended)), `${recommended}`)
      refuses(() => driver.cuMemGetAllocationGranularity(device, 7), 'cuMemGetAllocationGranularity')
    })

    it('memory for network cards is used as any other', test => {
      if (lacks(test) || missing(test, CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED, 'RDMA')) return
      const base = reserve(granule)
      const handle = driver.cuMemCreate(granule, device, CU_MEM_HANDLE_TYPE_NONE, true)
      later(() => driver.cuMemUnmap(base, granule))
      driver.cuMemMap(base, granule, handle)
      driver.cuMemRelease(handle)
      driver.cuMemSetAccess(base, granule, [device])
      driver.cuMemcpyHtoD(base, sequence(granule))
      assert.deepEqual(read(base, granule), sequence(granule))
    })

    it('neighbouring mappings are used as one range', test => {
      if (lacks(test)) return
      const base = reserve(8 * granule)
      const handles = [0, 1, 2].map(i => {
        const handle = driver.cuMemCreate(granule, device, CU_MEM_HANDLE_TYPE_NONE)
        driver.cuMemMap(base + i * granule, granule, handle)
        return handle
      })
      driver.cuMemSetAccess(base, 3 * granule, [device])
      later(() => {
        driver.cuMemUnmap(base, 3 * granule)
        for (const handle of handles) driver.cuMemRelease(handle)
      })
      const data = sequence(3 * granule)
      driver.cuMemcpyHtoD(base, data)
      assert.deepEqual(read(base, data.length), data)
    })

    it('contents move with a handle that is mapped elsewhere', test => {
      if (lacks(test)) return
      const base = reserve(8 * granule)
      const handle = driver.cuMemCreate(granule, device, CU_MEM_HANDLE_TYPE_NONE)
      later(() => driver.cuMemRelease(handle))
      for (const [round, place] of [base, base + 5 * granule, base + granule].entries()) {
        driver.cuMemMap(place, granule, handle)
        driver.cuMemSetAccess(place, granule, [device])
        if (round === 0) driver.cuMemcpyHtoD(place, sequence(granule))
        assert.deepEqual(read(place, granule), sequence(granule))
        driver.cuMemUnmap(place, granule)
      }
    })

    it('memory of a released handle lives until it is unmapped', test => {
      if (lacks(test)) return
      const bytes = Math.ceil((256 * MiB) / granule) * granule
      const base = reserve(bytes)
      const { freeBytes } = driver.cuMemGetInfo()
      const handle = driver.cuMemCreate(bytes, device, CU_MEM_HANDLE_TYPE_NONE)
      driver.cuMemMap(base, bytes, handle)
      driver.cuMemSetAccess(base, bytes, [device])
      driver.cuMemRelease(handle)
      assert.ok(freeBytes - driver.cuMemGetInfo().freeBytes >= bytes)
      driver.cuMemsetD8Async(base, 4, bytes, 0)
      assert.equal(read(base + bytes - 1, 1)[0], 4)
      driver.cuMemUnmap(base, bytes)
      assert.ok(driver.cuMemGetInfo().freeBytes + bytes / 2 > freeBytes)
    })

    it('sizes and addresses must be multiples of the granularity', test => {
      if (lacks(test)) return
      const base = reserve(4 * granule)
      const handle = driver.cuMemCreate(granule, device, CU_MEM_HANDLE_TYPE_NONE)
      later(() => driver.cuMemRelease(handle))
      const { CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED } = RESULT
      refuses(() => driver.cuMemAddressReserve(1000, 0), 'cuMemAddressReserve', CUDA_ERROR_INVALID_VALUE)
      refuses(() => driver.cuMemAddressReserve(0, 0), 'cuMemAddressReserve', CUDA_ERROR_INVALID_VALUE)
      refuses(
        () => driver.cuMemCreate(granule + 4096, device, CU_MEM_HANDLE_TYPE_NONE),
        'cuMemCreate',
        CUDA_ERROR_INVALID_VALUE,
      )
      refuses(() => driver.cuMemMap(base, granule / 2, handle), 'cuMemMap', CUDA_ERROR_NOT_SUPPORTED)
      refuses(() => driver.cuMemMap(base + 4096, granule, handle), 'cuMemMap', CUDA_ERROR_INVALID_VALUE)
    })

    it('mapping over a mapping, and unmapping half a mapping, are refused', test => {
      if (lacks(test)) return
      const base = reserve(4 * granule)
      map(base, 2 * granule)
      const handle = driver.cuMemCreate(granule, device, CU_MEM_HANDLE_TYPE_NONE)
      later(() => driver.cuMemRelease(handle))
      refuses(() => driver.cuMemMap(base + granule, granule, handle), 'cuMemMap')
      refuses(() => driver.cuMemUnmap(base, granule), 'cuMemUnmap')
      driver.cuMemsetD8Async(base, 1, 2 * granule, 0)
      assert.equal(read(base + granule, 1)[0], 1)
    })

    it('memory mapped for reading is read and copied from, and never written', test => {
      if (lacks(test)) return
      const base = reserve(4 * granule)
      const handle = map(base, granule)
      driver.cuMemMap(base + 2 * granule, granule, handle)
      later(() => driver.cuMemUnmap(base + 2 * granule, granule))
      const view = base + 2 * granule
      const [data, other] = [sequence(granule), allocate(granule)]
      driver.cuMemcpyHtoD(base, data)
      driver.cuMemsetD8Async(other, 5, granule, 0)
      driver.cuCtxSynchronize()
      driver.cuMemSetAccess(view, granule, [device], CU_MEM_ACCESS_FLAGS_PROT_READ)
      const { CUDA_ERROR_INVALID_VALUE } = RESULT
      refuses(() => driver.cuMemcpyHtoD(view, Uint8Array.of(1)), 'cuMemcpyHtoD', CUDA_ERROR_INVALID_VALUE)
      refuses(() => driver.cuMemsetD32Async(view, 1, 4, 0), 'cuMemsetD32Async', CUDA_ERROR_INVALID_VALUE)
      refuses(() => driver.cuMemcpyDtoD(view, other, granule), 'cuMemcpyDtoD', CUDA_ERROR_INVALID_VALUE)
      assert.deepEqual(read(view, granule), data)
      driver.cuMemcpyDtoD(other, view, granule)
      assert.deepEqual(read(other, granule), data)
      driver.cuMemsetD8Async(base, 9, 1, 0)
      assert.equal(read(view, 1)[0], 9)
      driver.cuMemSetAccess(view, granule, [device])
      driver.cuMemsetD8Async(view, 8, 1, 0)
      assert.equal(read(base, 1)[0], 8)
    })

    it('access to unmapped addresses, and more memory than the device has, are refused', test => {
      if (lacks(test)) return
      const base = reserve(2 * granule)
      refuses(() => driver.cuMemSetAccess(base, granule, [device]), 'cuMemSetAccess')
      refuses(
        () => driver.cuMemCreate(64 * TiB, device, CU_MEM_HANDLE_TYPE_NONE),
        'cuMemCreate',
        RESULT.CUDA_ERROR_OUT_OF_MEMORY,
      )
    })
  })

  describe('memory for other processes', () => {
    const attribute = CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED
    const POSIX = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR

    function create(handleTypes: number): number {
      const handle = driver.cuMemCreate(driver.cuMemGetAllocationGranularity(device), device, handleTypes)
      later(() => driver.cuMemRelease(handle))
      return handle
    }

    it('each export returns a new descriptor', test => {
      if (missing(test, attribute, 'memory shared as file descriptors')) return
      const handle = create(POSIX)
      const descriptors = [1, 2].map(() => exported(driver.cuMemExportToShareableHandle(handle, POSIX)))
      for (const descriptor of descriptors) assert.ok(Number.isInteger(descriptor) && descriptor > 2)
      assert.notEqual(descriptors[0], descriptors[1])
    })

    it('a descriptor alone keeps memory and its contents', test => {
      if (missing(test, attribute, 'memory shared as file descriptors')) return
      const granule = driver.cuMemGetAllocationGranularity(device)
      const bytes = Math.ceil((256 * MiB) / granule) * granule
      const base = driver.cuMemAddressReserve(bytes, 0)
      later(() => driver.cuMemAddressFree(base, bytes))
      /** Maps a handle, uses the mapping, and gives both back. */
      const using = (handle: number, use: () => void) => {
        driver.cuMemMap(base, bytes, handle)
        driver.cuMemSetAccess(base, bytes, [device])
        use()
        driver.cuMemUnmap(base, bytes)
        driver.cuMemRelease(handle)
      }
      const { freeBytes } = driver.cuMemGetInfo()
      const made = driver.cuMemCreate(bytes, device, POSIX)
      const descriptor = driver.cuMemExportToShareableHandle(made, POSIX)
      using(made, () => driver.cuMemcpyHtoD(base + bytes - granule, sequence(granule)))
      assert.ok(freeBytes - driver.cuMemGetInfo().freeBytes >= bytes)
      for (let round = 0; round < 2; round++) {
        using(driver.cuMemImportFromShareableHandle(descriptor, POSIX), () => {
          assert.deepEqual(read(base + bytes - granule, granule), sequence(granule))
        })
      }
      closeSync(descriptor)
      assert.ok(driver.cuMemGetInfo().freeBytes + bytes / 2 > freeBytes)
      const closed = () => driver.cuMemImportFromShareableHandle(descriptor, POSIX)
      refuses(closed, 'cuMemImportFromShareableHandle')
    })

    it('memory that was imported is not exported again', test => {
      if (missing(test, attribute, 'memory shared as file descriptors')) return
      const descriptor = exported(driver.cuMemExportToShareableHandle(create(POSIX), POSIX))
      const handle = driver.cuMemImportFromShareableHandle(descriptor, POSIX)
      later(() => driver.cuMemRelease(handle))
      refuses(() => driver.cuMemExportToShareableHandle(handle, POSIX), 'cuMemExportToShareableHandle')
    })

    it('memory for fabric handles is made, or refused where the process has no IMEX channel', test => {
      if (missing(test, attribute, 'memory shared as file descriptors')) return
      if (missing(test, CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED, 'memory shared as fabric handles')) return
      const types = POSIX | CU_MEM_HANDLE_TYPE_FABRIC
      const bytes = driver.cuMemGetAllocationGranularity(device, CU_MEM_ALLOC_GRANULARITY_RECOMMENDED, types)
      try {
        driver.cuMemRelease(driver.cuMemCreate(bytes, device, types))
      } catch (error) {
        assert.ok(error instanceof CudaError && [800, 801].includes(error.result), `${error}`)
      }
    })

    it('memory made without handle types is not exported', test => {
      if (missing(test, attribute, 'memory shared as file descriptors')) return
      const handle = create(CU_MEM_HANDLE_TYPE_NONE)
      refuses(() => driver.cuMemExportToShareableHandle(handle, POSIX), 'cuMemExportToShareableHandle')
    })
  })
}
