// The contract of devices and contexts, and of two devices.

import assert from 'node:assert/strict'
import { beforeEach, describe, it, type TestContext } from 'node:test'
import { MiB } from '../../base/bytes.js'
import {
  CU_MEM_ACCESS_FLAGS_PROT_NONE,
  CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
  CU_MEM_HANDLE_TYPE_NONE,
  CU_MEM_LOCATION_TYPE_DEVICE,
  DEVICE_ATTRIBUTE,
  RESULT,
} from '../constants.js'
import type { Driver } from '../driver.js'
import { type DriverFixture, sequence } from './contract.fixture.js'
import { refuses } from './refuses.fixture.js'

const {
  CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
  CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
  CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY,
  CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS,
  CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
  CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
  CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED,
  CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES,
  CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID,
  CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED,
} = DEVICE_ATTRIBUTE

export function deviceSuite(fixture: DriverFixture): void {
  const { allocate, allocateFrom, createPool, createStream, later, missing, read } = fixture
  let driver: Driver
  let device: number
  let context: number
  beforeEach(() => {
    driver = fixture.driver
    device = fixture.device
    context = fixture.context
  })

  describe('devices and contexts', () => {
    it('the version and the devices can be queried', () => {
      assert.ok(driver.cuDriverGetVersion() >= 10_020)
      const count = driver.cuDeviceGetCount()
      assert.ok(count >= 1)
      assert.notEqual(driver.cuDeviceGetName(device), '')
      assert.ok(driver.cuDeviceTotalMem(device) > 0)
      const uuids = Array.from({ length: count }, (_, ordinal) => driver.cuDeviceGetUuid(driver.cuDeviceGet(ordinal)))
      for (const uuid of uuids) assert.equal(uuid.length, 16)
      assert.equal(new Set(uuids.map(String)).size, count, 'no two devices have the same')
      refuses(() => driver.cuDeviceGet(count), 'cuDeviceGet', RESULT.CUDA_ERROR_INVALID_DEVICE)
      refuses(() => driver.cuDeviceCanAccessPeer(device, 999), 'cuDeviceCanAccessPeer')
    })

    it('attributes can be queried, and an unknown attribute is refused', () => {
      assert.equal(driver.cuDeviceGetAttribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, device), 1024)
      assert.ok(driver.cuDeviceGetAttribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device) >= 1)
      assert.ok(driver.cuDeviceGetAttribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device) >= 5)
      const features = [
        CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY,
        CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS,
        CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
        CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
        CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED,
        CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED,
      ]
      for (const feature of features) assert.ok([0, 1].includes(driver.cuDeviceGetAttribute(feature, device)))
      assert.ok(driver.cuDeviceGetAttribute(CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES, device) >= 0)
      assert.ok(driver.cuDeviceGetAttribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, device) >= -1)
      refuses(
        () => driver.cuDeviceGetAttribute(99_999, device),
        'cuDeviceGetAttribute',
        RESULT.CUDA_ERROR_INVALID_VALUE,
      )
    })

    it('each retain returns the same primary context', () => {
      assert.equal(driver.cuDevicePrimaryCtxRetain(device), context)
      driver.cuDevicePrimaryCtxRelease(device)
      driver.cuCtxSynchronize()
    })
  })

  describe('two devices', () => {
    let peer = 0
    let peerContext = 0
    const lacks = (test: TestContext) => {
      if (driver.cuDeviceGetCount() < 2) {
        test.skip('there is one device')
        return true
      }
      peer = driver.cuDeviceGet(1)
      peerContext = driver.cuDevicePrimaryCtxRetain(peer)
      later(() => driver.cuDevicePrimaryCtxRelease(peer))
      return false
    }
    const lacksAccess = (test: TestContext) => {
      if (lacks(test)) return true
      if (driver.cuDeviceCanAccessPeer(device, peer) && driver.cuDeviceCanAccessPeer(peer, device)) return false
      test.skip('the devices have no access to each other')
      return true
    }

    /** Runs `act` with the peer's context current, and waits for the work. */
    function onPeer<T>(act: () => T): T {
      driver.cuCtxSetCurrent(peerContext)
      try {
        const result = act()
        driver.cuCtxSynchronize()
        return result
      } finally {
        driver.cuCtxSetCurrent(context)
      }
    }

    function allocateOnPeer(bytes: number): number {
      const ptr = onPeer(() => driver.cuMemAlloc(bytes))
      later(() => driver.cuMemFree(ptr))
      return ptr
    }

    it('copies between two devices need no peer access', test => {
      if (lacks(test)) return
      const stream = createStream()
      const [here, there, back] = [allocate(MiB), allocateOnPeer(MiB), allocate(MiB)]
      driver.cuMemcpyHtoDAsync(here, sequence(MiB), stream)
      driver.cuMemcpyPeerAsync(there, peerContext, here, context, MiB, stream)
      driver.cuMemcpyPeerAsync(back, context, there, peerContext, MiB, stream)
      driver.cuStreamSynchronize(stream)
      assert.deepEqual(read(back, MiB), sequence(MiB))
    })

    it('a context gets access to memory of its peer once; a second call is refused', test => {
      if (lacksAccess(test)) return
      const stream = createStream()
      const there = allocateOnPeer(MiB)
      const here = allocate(MiB)
      driver.cuCtxEnablePeerAccess(peerContext)
      const again = () => driver.cuCtxEnablePeerAccess(peerContext)
      refuses(again, 'cuCtxEnablePeerAccess', RESULT.CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED)
      refuses(() => driver.cuCtxEnablePeerAccess(context), 'cuCtxEnablePeerAccess')
      driver.cuMemsetD8Async(there, 6, MiB, stream)
      driver.cuMemcpyDtoDAsync(here, there, MiB, stream)
      assert.deepEqual(read(here, MiB), new Uint8Array(MiB).fill(6))
    })

    it('two devices get access to a mapping, and one of them loses it', test => {
      if (lacksAccess(test)) return
      if (missing(test, CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED, 'virtual memory management')) return
      const granule = driver.cuMemGetAllocationGranularity(device)
      const base = driver.cuMemAddressReserve(granule, 0)
      later(() => driver.cuMemAddressFree(base, granule))
      const handle = driver.cuMemCreate(granule, device, CU_MEM_HANDLE_TYPE_NONE)
      driver.cuMemMap(base, granule, handle)
      driver.cuMemRelease(handle)
      later(() => driver.cuMemUnmap(base, granule))
      driver.cuMemSetAccess(base, granule, [device, peer])
      driver.cuMemcpyHtoD(base, sequence(granule))
      driver.cuCtxSynchronize()
      const there = new Uint8Array(granule)
      onPeer(() => driver.cuMemcpyDtoH(there, base))
      assert.deepEqual(there, sequence(granule))
      onPeer(() => driver.cuMemsetD8Async(base, 4, granule, 0))
      assert.deepEqual(read(base, granule), new Uint8Array(granule).fill(4))
      driver.cuMemSetAccess(base, granule, [peer], CU_MEM_ACCESS_FLAGS_PROT_NONE)
      driver.cuMemsetD8Async(base, 5, granule, 0)
      assert.deepEqual(read(base, granule), new Uint8Array(granule).fill(5))
    })

    it('a peer gets access to a pool, and loses it', test => {
      if (lacksAccess(test)) return
      if (missing(test, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 'memory pools')) return
      const pool = createPool()
      const access = () => driver.cuMemPoolGetAccess(pool, CU_MEM_LOCATION_TYPE_DEVICE, peer)
      const set = (flags: number) => driver.cuMemPoolSetAccess(pool, CU_MEM_LOCATION_TYPE_DEVICE, peer, flags)
      set(CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
      assert.equal(access(), CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
      const ptr = allocateFrom(pool, MiB, createStream())
      driver.cuCtxSynchronize()
      onPeer(() => driver.cuMemsetD8Async(ptr, 8, MiB, 0))
      assert.deepEqual(read(ptr, MiB), new Uint8Array(MiB).fill(8))
      set(CU_MEM_ACCESS_FLAGS_PROT_NONE)
      assert.equal(access(), CU_MEM_ACCESS_FLAGS_PROT_NONE)
    })
  })
}
