// The contract of the driver's own pools: cuMemPool and cuMemAllocAsync.

import assert from 'node:assert/strict'
import { beforeEach, describe, it, type TestContext } from 'node:test'
import { GiB, KiB, MiB, TiB } from '../../base/bytes.js'
import {
  CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
  CU_MEM_ALLOCATION_TYPE_MANAGED,
  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
  CU_MEM_LOCATION_TYPE_DEVICE,
  CU_MEM_LOCATION_TYPE_HOST,
  CU_MEM_LOCATION_TYPE_HOST_NUMA,
  DEVICE_ATTRIBUTE,
  POOL_ATTRIBUTE,
  RESULT,
} from '../constants.js'
import type { Driver, MemPoolProperties } from '../driver.js'
import { type DriverFixture, sequence } from './contract.fixture.js'
import { refuses } from './refuses.fixture.js'

const {
  CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED,
  CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES,
  CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID,
  CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED,
} = DEVICE_ATTRIBUTE
const {
  CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES,
  CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC,
  CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES,
  CU_MEMPOOL_ATTR_RELEASE_THRESHOLD,
  CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT,
  CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH,
  CU_MEMPOOL_ATTR_USED_MEM_CURRENT,
  CU_MEMPOOL_ATTR_USED_MEM_HIGH,
} = POOL_ATTRIBUTE

const REUSE_ATTRIBUTES = [
  CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES,
  CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC,
  CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES,
]

export function poolSuite(fixture: DriverFixture): void {
  const { allocate, allocateFrom, createPool, createStream, exported, later, localPool, missing, read } = fixture
  let driver: Driver
  let device: number
  beforeEach(() => {
    driver = fixture.driver
    device = fixture.device
  })

  describe('the driver pool', () => {
    let pool = 0
    const lacks = (test: TestContext) => {
      if (missing(test, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 'memory pools')) return true
      pool = driver.cuDeviceGetDefaultMemPool(device)
      driver.cuCtxSynchronize()
      driver.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 0)
      driver.cuMemPoolTrimTo(pool, 0)
      later(() => driver.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, 0))
      return false
    }
    const attribute = (which: number) => driver.cuMemPoolGetAttribute(pool, which)
    const reserved = () => attribute(CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT)
    const used = () => attribute(CU_MEMPOOL_ATTR_USED_MEM_CURRENT)

    it('a release threshold is read as it was set', test => {
      if (lacks(test)) return
      for (const bytes of [1000, 3 * GiB, Infinity, 0]) {
        driver.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, bytes)
        assert.equal(attribute(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD), bytes)
      }
    })

    it('all kinds of reuse are on, and each can be switched off', test => {
      if (lacks(test)) return
      for (const which of REUSE_ATTRIBUTES) {
        assert.equal(attribute(which), 1)
        driver.cuMemPoolSetAttribute(pool, which, 0)
        assert.equal(attribute(which), 0)
        driver.cuMemPoolSetAttribute(pool, which, 1)
        assert.equal(attribute(which), 1)
      }
    })

    it('the default pool is current, and cannot be destroyed', test => {
      if (lacks(test)) return
      assert.equal(driver.cuDeviceGetMemPool(device), pool)
      refuses(() => driver.cuMemPoolDestroy(pool), 'cuMemPoolDestroy')
    })

    it('the pool counts used and reserved bytes, and reserves 32 MiB at a time', test => {
      if (lacks(test)) return
      const stream = createStream()
      const before = { used: used(), reserved: reserved() }
      const ptr = driver.cuMemAllocAsync(8192, stream)
      assert.equal(used() - before.used, 8192)
      assert.equal(reserved() - before.reserved, 32 * MiB)
      driver.cuMemFreeAsync(ptr, stream)
      driver.cuStreamSynchronize(stream)
      assert.deepEqual({ used: used(), reserved: reserved() }, before)
    })

    it('a high-water mark accepts only 0, and then shows the current value', test => {
      if (lacks(test)) return
      const stream = createStream()
      const set = (which: number, value: number) => driver.cuMemPoolSetAttribute(pool, which, value)
      driver.cuMemFreeAsync(driver.cuMemAllocAsync(40 * MiB, stream), stream)
      driver.cuStreamSynchronize(stream)
      for (const [high, current] of [
        [CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT],
        [CU_MEMPOOL_ATTR_USED_MEM_HIGH, CU_MEMPOOL_ATTR_USED_MEM_CURRENT],
      ]) {
        assert.ok(attribute(high) - attribute(current) >= 40 * MiB)
        refuses(() => set(high, 1), 'cuMemPoolSetAttribute', RESULT.CUDA_ERROR_INVALID_VALUE)
        set(high, 0)
        assert.equal(attribute(high), attribute(current))
      }
      const readOnly = CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT
      refuses(() => set(readOnly, 0), 'cuMemPoolSetAttribute', RESULT.CUDA_ERROR_INVALID_VALUE)
    })

    it('a trim releases only memory whose free the host has seen complete', test => {
      if (lacks(test)) return
      driver.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, Infinity)
      const stream = createStream()
      const before = reserved()
      const ptr = driver.cuMemAllocAsync(256 * MiB, stream)
      driver.cuMemsetD8Async(ptr, 1, 256 * MiB, stream)
      driver.cuMemFreeAsync(ptr, stream)
      assert.equal(reserved() - before, 256 * MiB)
      driver.cuMemPoolTrimTo(pool, 0)
      assert.equal(reserved() - before, 256 * MiB)
      driver.cuStreamSynchronize(stream)
      assert.equal(reserved() - before, 256 * MiB) // the threshold keeps the memory
      driver.cuMemPoolTrimTo(pool, TiB) // less is reserved than that
      assert.equal(reserved() - before, 256 * MiB)
      driver.cuMemPoolTrimTo(pool, 0)
      assert.equal(reserved(), before)
    })

    it('reuse in stream order does not mix contents', test => {
      if (lacks(test)) return
      const [a, b] = [createStream(), createStream()]
      const out = [1, 2, 3, 4, 5, 6].map(() => allocate(4 * MiB))
      for (const [i, target] of out.entries()) {
        const stream = i % 2 === 0 ? a : b
        const ptr = driver.cuMemAllocAsync(4 * MiB, stream)
        driver.cuMemsetD8Async(ptr, i, 4 * MiB, stream)
        driver.cuMemcpyDtoDAsync(target, ptr, 4 * MiB, stream)
        driver.cuMemFreeAsync(ptr, stream)
      }
      for (const [i, target] of out.entries()) assert.equal(read(target + 4 * MiB - 1, 1)[0], i)
    })

    it('more memory than the device has is refused, and later calls work', test => {
      if (lacks(test)) return
      const stream = createStream()
      refuses(() => driver.cuMemAllocAsync(64 * TiB, stream), 'cuMemAllocAsync', RESULT.CUDA_ERROR_OUT_OF_MEMORY)
      const ptr = driver.cuMemAllocAsync(1, stream)
      driver.cuMemFreeAsync(ptr, stream)
    })
  })

  describe('created pools', () => {
    const lacks = (test: TestContext) => missing(test, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 'memory pools')
    const get = (pool: number, which: number) => driver.cuMemPoolGetAttribute(pool, which)
    const accessOf = (pool: number) => driver.cuMemPoolGetAccess(pool, CU_MEM_LOCATION_TYPE_DEVICE, device)
    const { CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OUT_OF_MEMORY } = RESULT

    it('a created pool has its own attributes, and counts its own allocations', test => {
      if (lacks(test)) return
      const stream = createStream()
      const pool = createPool()
      assert.notEqual(pool, driver.cuDeviceGetDefaultMemPool(device))
      const before = get(driver.cuDeviceGetDefaultMemPool(device), CU_MEMPOOL_ATTR_USED_MEM_CURRENT)
      const ptr = allocateFrom(pool, 8192, stream)
      assert.equal(get(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 8192)
      assert.equal(get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT), 32 * MiB)
      assert.equal(get(driver.cuDeviceGetDefaultMemPool(device), CU_MEMPOOL_ATTR_USED_MEM_CURRENT), before)
      driver.cuMemcpyHtoDAsync(ptr, sequence(8192), stream)
      assert.deepEqual(read(ptr, 8192), sequence(8192))
      for (const which of REUSE_ATTRIBUTES) assert.equal(get(pool, which), 1)
      assert.equal(get(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD), 0)
      assert.equal(accessOf(pool), CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
      const absent = () =>
        driver.cuMemPoolSetAccess(pool, CU_MEM_LOCATION_TYPE_DEVICE, 999, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
      refuses(absent, 'cuMemPoolSetAccess')
    })

    it('a pool keeps its limit, rounded up to a multiple of 32 MiB', test => {
      if (lacks(test)) return
      const stream = createStream()
      const pool = createPool({ maxBytes: MiB })
      const tooMuch = () => driver.cuMemAllocFromPoolAsync(33 * MiB, pool, stream)
      refuses(tooMuch, 'cuMemAllocFromPoolAsync', CUDA_ERROR_OUT_OF_MEMORY)
      allocateFrom(pool, 20 * MiB, stream)
      refuses(
        () => driver.cuMemAllocFromPoolAsync(20 * MiB, pool, stream),
        'cuMemAllocFromPoolAsync',
        CUDA_ERROR_OUT_OF_MEMORY,
      )
    })

    it('cuMemAllocAsync uses the current pool; the default pool is current after a destroy', test => {
      if (lacks(test)) return
      const stream = createStream()
      const pool = driver.cuMemPoolCreate(localPool())
      driver.cuDeviceSetMemPool(device, pool)
      later(() => driver.cuDeviceSetMemPool(device, driver.cuDeviceGetDefaultMemPool(device)))
      assert.equal(driver.cuDeviceGetMemPool(device), pool)
      const ptr = driver.cuMemAllocAsync(MiB, stream)
      assert.equal(get(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), MiB)
      driver.cuMemFreeAsync(ptr, stream)
      driver.cuStreamSynchronize(stream)
      driver.cuMemPoolDestroy(pool)
      assert.equal(driver.cuDeviceGetMemPool(device), driver.cuDeviceGetDefaultMemPool(device))
    })

    it('a destroyed pool lives until its last allocation is freed', test => {
      if (lacks(test)) return
      const stream = createStream()
      const { freeBytes } = driver.cuMemGetInfo()
      const pool = driver.cuMemPoolCreate(localPool())
      const ptr = driver.cuMemAllocFromPoolAsync(256 * MiB, pool, stream)
      driver.cuMemPoolDestroy(pool)
      driver.cuMemsetD8Async(ptr, 5, 256 * MiB, stream)
      assert.equal(read(ptr + 256 * MiB - 1, 1)[0], 5)
      driver.cuMemFreeAsync(ptr, stream)
      driver.cuStreamSynchronize(stream)
      assert.ok(freeBytes - driver.cuMemGetInfo().freeBytes < 128 * MiB)
    })

    it('wrong properties of a pool are refused', test => {
      if (lacks(test)) return
      const wrong: Partial<MemPoolProperties>[] = [
        { allocationType: 0 },
        { locationType: 99 },
        { locationId: driver.cuDeviceGetCount() },
      ]
      for (const properties of wrong) refuses(() => createPool(properties), 'cuMemPoolCreate')
    })

    it('a trim releases free memory, and keeps live memory', test => {
      if (lacks(test)) return
      const stream = createStream()
      const pool = createPool()
      driver.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, Infinity)
      const kept = allocateFrom(pool, 8 * KiB, stream)
      driver.cuMemcpyHtoDAsync(kept, sequence(8 * KiB), stream)
      const large = driver.cuMemAllocFromPoolAsync(256 * MiB, pool, stream)
      driver.cuMemFreeAsync(large, stream)
      driver.cuStreamSynchronize(stream)
      assert.ok(get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= 256 * MiB)
      driver.cuMemPoolTrimTo(pool, 0)
      assert.ok(get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) <= 64 * MiB)
      assert.equal(get(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 8 * KiB)
      assert.deepEqual(read(kept, 8 * KiB), sequence(8 * KiB))
    })

    it('a pool made for export is exported as a descriptor, and its blocks as 64 bytes', test => {
      if (lacks(test)) return
      const types = driver.cuDeviceGetAttribute(CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES, device)
      const POSIX = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
      if ((types & POSIX) === 0) return test.skip('this device shares no pools as file descriptors')
      const pool = createPool({ handleTypes: POSIX })
      const descriptor = exported(driver.cuMemPoolExportToShareableHandle(pool, POSIX))
      assert.ok(Number.isInteger(descriptor) && descriptor > 2)
      const stream = createStream()
      const [a, b] = [1, 2].map(() => driver.cuMemPoolExportPointer(allocateFrom(pool, MiB, stream)))
      assert.deepEqual([a.length, b.length], [64, 64])
      assert.notDeepEqual(a, b)
      const unshared = createPool()
      refuses(() => driver.cuMemPoolExportToShareableHandle(unshared, POSIX), 'cuMemPoolExportToShareableHandle')
      refuses(() => driver.cuMemPoolExportPointer(allocate(MiB)), 'cuMemPoolExportPointer')
    })

    it('a device uses a pool in host memory after it was given access', test => {
      if (lacks(test)) return
      if (missing(test, CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED, 'host memory pools')) return
      const stream = createStream()
      const node = Math.max(0, driver.cuDeviceGetAttribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID, device))
      const pool = createPool({ locationType: CU_MEM_LOCATION_TYPE_HOST_NUMA, locationId: node })
      driver.cuMemPoolSetAccess(pool, CU_MEM_LOCATION_TYPE_DEVICE, device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
      assert.equal(accessOf(pool), CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
      const ptr = allocateFrom(pool, MiB, stream)
      const there = allocate(MiB)
      driver.cuMemsetD8Async(ptr, 3, MiB, stream)
      driver.cuMemcpyDtoDAsync(there, ptr, MiB, stream)
      assert.deepEqual(read(there, MiB), new Uint8Array(MiB).fill(3))
    })

    it('a pool on any NUMA node, or of managed memory, cannot be exported', test => {
      if (lacks(test)) return
      if (missing(test, CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED, 'host memory pools')) return
      const handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
      const locationType = CU_MEM_LOCATION_TYPE_HOST
      const allocationType = CU_MEM_ALLOCATION_TYPE_MANAGED
      refuses(() => createPool({ handleTypes, locationType }), 'cuMemPoolCreate', CUDA_ERROR_INVALID_VALUE)
      refuses(() => createPool({ handleTypes, allocationType }), 'cuMemPoolCreate')
    })
  })
}
