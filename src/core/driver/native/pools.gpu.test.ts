// The driver's own memory pools on a real GPU: allocation, attributes, access, and pools in host memory. Fails
// without a GPU.

import assert from 'node:assert/strict'
import { after, before, describe, test } from 'node:test'
import type { CudaError } from '../../base/errors.js'
import {
  CU_MEM_ACCESS_FLAGS_PROT_NONE,
  CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
  CU_MEM_LOCATION_TYPE_DEVICE,
  CU_MEM_LOCATION_TYPE_HOST_NUMA,
  CU_STREAM_NON_BLOCKING,
  DEVICE_ATTRIBUTE,
  POOL_ATTRIBUTE,
  RESULT,
} from '../constants.js'
import { isFilled, MiB, openFirst, PINNED, refused } from './gpu.fixture.js'
import type { NativeDriver } from './native-driver.js'

/** Results for a pool in host memory if the system forbids processes to place memory. */
const NOT_HERE: readonly number[] = [RESULT.CUDA_ERROR_NOT_PERMITTED, RESULT.CUDA_ERROR_NOT_SUPPORTED]

describe("the driver's pools on a GPU", () => {
  let driver: NativeDriver
  before(() => {
    driver = openFirst()
  })
  after(() => driver?.cuDevicePrimaryCtxRelease(0))

  test('allocates from a created pool, and from it as the current pool', () => {
    const { CU_MEMPOOL_ATTR_USED_MEM_CURRENT: used } = POOL_ATTRIBUTE
    const stream = driver.cuStreamCreate(CU_STREAM_NON_BLOCKING)
    const pool = driver.cuMemPoolCreate(PINNED)
    const ptr = driver.cuMemAllocFromPoolAsync(MiB, pool, stream)
    driver.cuMemsetD8Async(ptr, 0x5a, MiB, stream)
    driver.cuStreamSynchronize(stream)
    assert.ok(isFilled(driver, ptr, MiB, 0x5a))
    assert.equal(driver.cuMemPoolGetAttribute(pool, used), MiB)

    const standard = driver.cuDeviceGetDefaultMemPool(0)
    assert.equal(driver.cuDeviceGetMemPool(0), standard)
    driver.cuDeviceSetMemPool(0, pool)
    assert.equal(driver.cuDeviceGetMemPool(0), pool)
    const second = driver.cuMemAllocAsync(MiB, stream)
    assert.equal(driver.cuMemPoolGetAttribute(pool, used), 2 * MiB)
    for (const each of [ptr, second]) driver.cuMemFreeAsync(each, stream)
    driver.cuStreamSynchronize(stream)
    assert.equal(driver.cuMemPoolGetAttribute(pool, used), 0)

    driver.cuMemPoolDestroy(pool)
    assert.equal(driver.cuDeviceGetMemPool(0), standard, 'the default pool takes the place of one that is gone')
    assert.throws(() => driver.cuMemPoolDestroy(standard), refused('cuMemPoolDestroy'))
    driver.cuStreamDestroy(stream)
  })

  test('keeps the limit of a pool', () => {
    const pool = driver.cuMemPoolCreate({ ...PINNED, maxBytes: 64 * MiB })
    const allocate = () => driver.cuMemAllocFromPoolAsync(1024 * MiB, pool, 0)
    assert.throws(allocate, refused('cuMemAllocFromPoolAsync', RESULT.CUDA_ERROR_OUT_OF_MEMORY))
    driver.cuMemPoolDestroy(pool)
  })

  test('reads all attributes of a pool, and sets the settable ones', () => {
    const pool = driver.cuMemPoolCreate(PINNED)
    const get = (name: keyof typeof POOL_ATTRIBUTE) => driver.cuMemPoolGetAttribute(pool, POOL_ATTRIBUTE[name])
    const set = (name: keyof typeof POOL_ATTRIBUTE, value: number) =>
      driver.cuMemPoolSetAttribute(pool, POOL_ATTRIBUTE[name], value)
    for (const policy of [
      'CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES',
      'CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC',
      'CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES',
    ] as const) {
      assert.equal(get(policy), 1, policy)
      set(policy, 0)
      assert.equal(get(policy), 0, policy)
      set(policy, 1)
      assert.equal(get(policy), 1, policy)
    }
    assert.equal(get('CU_MEMPOOL_ATTR_RELEASE_THRESHOLD'), 0)
    set('CU_MEMPOOL_ATTR_RELEASE_THRESHOLD', 5 * 2 ** 32 + 7)
    assert.equal(get('CU_MEMPOOL_ATTR_RELEASE_THRESHOLD'), 5 * 2 ** 32 + 7)

    const ptr = driver.cuMemAllocFromPoolAsync(MiB, pool, 0)
    driver.cuMemFreeAsync(ptr, 0)
    driver.cuStreamSynchronize(0)
    const reserved = get('CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT')
    assert.ok(reserved >= MiB && get('CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH') >= reserved)
    assert.equal(get('CU_MEMPOOL_ATTR_USED_MEM_CURRENT'), 0)
    assert.equal(get('CU_MEMPOOL_ATTR_USED_MEM_HIGH'), MiB)
    for (const mark of ['CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH', 'CU_MEMPOOL_ATTR_USED_MEM_HIGH'] as const) {
      assert.throws(() => set(mark, MiB), refused('cuMemPoolSetAttribute'), mark)
      set(mark, 0)
    }
    assert.equal(get('CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH'), reserved)
    assert.equal(get('CU_MEMPOOL_ATTR_USED_MEM_HIGH'), 0)
    for (const figure of ['CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT', 'CU_MEMPOOL_ATTR_USED_MEM_CURRENT'] as const) {
      assert.throws(() => set(figure, MiB), refused('cuMemPoolSetAttribute'), figure)
    }
    driver.cuMemPoolDestroy(pool)
  })

  test('says if a device has access to a pool', () => {
    const pool = driver.cuMemPoolCreate(PINNED)
    const access = () => driver.cuMemPoolGetAccess(pool, CU_MEM_LOCATION_TYPE_DEVICE, 0)
    assert.equal(access(), CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
    driver.cuMemPoolSetAccess(pool, CU_MEM_LOCATION_TYPE_DEVICE, 0, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
    assert.equal(access(), CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
    const grantAbsent = () =>
      driver.cuMemPoolSetAccess(pool, CU_MEM_LOCATION_TYPE_DEVICE, 999, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
    assert.throws(grantAbsent, refused('cuMemPoolSetAccess'))
    driver.cuMemPoolDestroy(pool)
  })

  test('gives the device access to a pool in host memory', t => {
    const { CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID: node, CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED: offered } =
      DEVICE_ATTRIBUTE
    if (driver.cuDeviceGetAttribute(offered, 0) !== 1) return t.skip('this driver has no pools on a NUMA node')
    const locationId = Math.max(0, driver.cuDeviceGetAttribute(node, 0))
    let pool: number
    try {
      pool = driver.cuMemPoolCreate({ ...PINNED, locationType: CU_MEM_LOCATION_TYPE_HOST_NUMA, locationId })
    } catch (error) {
      if (NOT_HERE.includes((error as CudaError).code)) return t.skip((error as CudaError).message)
      throw error
    }
    const access = () => driver.cuMemPoolGetAccess(pool, CU_MEM_LOCATION_TYPE_DEVICE, 0)
    for (const flags of [CU_MEM_ACCESS_FLAGS_PROT_NONE, CU_MEM_ACCESS_FLAGS_PROT_READWRITE]) {
      driver.cuMemPoolSetAccess(pool, CU_MEM_LOCATION_TYPE_DEVICE, 0, flags)
      assert.equal(access(), flags)
    }
    const ptr = driver.cuMemAllocFromPoolAsync(MiB, pool, 0)
    driver.cuMemsetD8Async(ptr, 0x3c, MiB, 0)
    driver.cuStreamSynchronize(0)
    assert.ok(isFilled(driver, ptr, MiB, 0x3c))
    driver.cuMemFreeAsync(ptr, 0)
    driver.cuStreamSynchronize(0)
    driver.cuMemPoolDestroy(pool)
  })
})
