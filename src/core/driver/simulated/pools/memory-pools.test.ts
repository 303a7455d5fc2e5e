import assert from 'node:assert/strict'
import { test } from 'node:test'
import { GiB, MiB } from '../../../base/bytes.js'
import {
  CU_EVENT_DISABLE_TIMING,
  CU_MEM_ACCESS_FLAGS_PROT_NONE,
  CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
  CU_MEM_ALLOCATION_TYPE_MANAGED,
  CU_MEM_HANDLE_TYPE_FABRIC,
  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
  CU_MEM_LOCATION_TYPE_DEVICE,
  CU_MEM_LOCATION_TYPE_HOST,
  CU_MEM_LOCATION_TYPE_HOST_NUMA,
  CU_STREAM_NON_BLOCKING,
  DEVICE_ATTRIBUTE,
  POOL_ATTRIBUTE,
  RESULT,
} from '../../constants.js'
import { refuses } from '../../contract/refuses.fixture.js'
import type { MemPoolProperties } from '../../driver.js'
import { openSimulated } from '../opened.fixture.js'
import type { SimulatedOptions } from '../options.js'

const { CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_OUT_OF_MEMORY } = RESULT
const PINNED_ON_DEVICE_0: MemPoolProperties = {
  allocationType: 1,
  handleTypes: 0,
  locationType: CU_MEM_LOCATION_TYPE_DEVICE,
  locationId: 0,
  maxBytes: 0,
}

function open(options: SimulatedOptions = {}) {
  const driver = openSimulated({ progress: 'eager', ...options })
  const create = (different: Partial<MemPoolProperties> = {}) =>
    driver.cuMemPoolCreate({ ...PINNED_ON_DEVICE_0, ...different })
  const get = (pool: number, which: keyof typeof POOL_ATTRIBUTE) =>
    driver.cuMemPoolGetAttribute(pool, POOL_ATTRIBUTE[which])
  const set = (pool: number, which: keyof typeof POOL_ATTRIBUTE, value: number) =>
    driver.cuMemPoolSetAttribute(pool, POOL_ATTRIBUTE[which], value)
  const stream = () => driver.cuStreamCreate(CU_STREAM_NON_BLOCKING)
  return { driver, create, get, set, stream }
}

test('a destroyed pool refuses calls, keeps live memory, and is gone after the last free', () => {
  const { driver, create, stream } = open({ capacityBytes: GiB })
  const [a, pool] = [stream(), create()]
  const kept = driver.cuMemAllocFromPoolAsync(MiB, pool, a)
  const other = driver.cuMemAllocFromPoolAsync(64 * MiB, pool, a)
  assert.equal(driver.usedBytes(), 96 * MiB)
  driver.cuMemFreeAsync(other, a)
  driver.cuMemPoolDestroy(pool)
  assert.equal(driver.usedBytes(), 32 * MiB) // the free has completed
  const used = { call: 'cuMemAllocFromPoolAsync', act: () => driver.cuMemAllocFromPoolAsync(1, pool, a) }
  refuses(used.act, used.call, CUDA_ERROR_INVALID_VALUE)
  refuses(() => driver.cuMemPoolTrimTo(pool, 0), 'cuMemPoolTrimTo', CUDA_ERROR_INVALID_VALUE)
  refuses(() => driver.cuMemPoolDestroy(pool), 'cuMemPoolDestroy', CUDA_ERROR_INVALID_VALUE)
  driver.cuMemsetD8Async(kept, 1, MiB, 0)
  driver.cuMemFreeAsync(kept, a)
  driver.cuStreamSynchronize(a)
  assert.equal(driver.usedBytes(), 0)
  refuses(() => driver.cuMemFreeAsync(kept, a), 'cuMemFreeAsync', CUDA_ERROR_INVALID_VALUE)
})

test('a destroyed pool waits for a pending free', () => {
  const { driver, create, stream } = open()
  const [a, pool] = [stream(), create()]
  const ptr = driver.cuMemAllocFromPoolAsync(MiB, pool, a)
  driver.holdOperation(a)
  driver.cuMemFreeAsync(ptr, a)
  driver.cuMemPoolDestroy(pool)
  assert.equal(driver.usedBytes(), 32 * MiB)
  driver.cuStreamSynchronize(a)
  assert.equal(driver.usedBytes(), 0)
})

test('the default pool stays, and is current after the current pool is destroyed', () => {
  const { driver, create } = open({ devices: 2 })
  const [first, second] = [0, 1].map(device => driver.cuDeviceGetDefaultMemPool(device))
  refuses(() => driver.cuMemPoolDestroy(first), 'cuMemPoolDestroy', CUDA_ERROR_INVALID_VALUE)
  const pool = create()
  driver.cuDeviceSetMemPool(0, pool)
  assert.deepEqual([driver.cuDeviceGetMemPool(0), driver.cuDeviceGetMemPool(1)], [pool, second])
  driver.cuMemPoolDestroy(pool)
  assert.equal(driver.cuDeviceGetMemPool(0), first)
  assert.equal(create(), pool) // the handle is used again, and is not the current pool
  assert.equal(driver.cuDeviceGetMemPool(0), first)
})

test('only a pool in memory of the device can become its current pool', () => {
  const { driver, create } = open({ devices: 2 })
  const others = [
    driver.cuDeviceGetDefaultMemPool(1),
    create({ locationType: CU_MEM_LOCATION_TYPE_HOST }),
    create({ allocationType: CU_MEM_ALLOCATION_TYPE_MANAGED }),
    12345,
  ]
  for (const pool of others) {
    refuses(() => driver.cuDeviceSetMemPool(0, pool), 'cuDeviceSetMemPool', CUDA_ERROR_INVALID_VALUE)
  }
  assert.equal(driver.cuDeviceGetMemPool(0), driver.cuDeviceGetDefaultMemPool(0))
})

test('each kind of reuse can be forbidden', () => {
  const kinds = ['FOLLOW_EVENT_DEPENDENCIES', 'ALLOW_OPPORTUNISTIC', 'ALLOW_INTERNAL_DEPENDENCIES'] as const
  for (const kind of kinds) {
    for (const allowed of [1, 0]) {
      const { driver, create, set, stream } = open()
      const [a, b, pool] = [stream(), stream(), create({ maxBytes: 32 * MiB })]
      for (const other of kinds) set(pool, `CU_MEMPOOL_ATTR_REUSE_${other}`, other === kind ? allowed : 0)
      const ptr = driver.cuMemAllocFromPoolAsync(32 * MiB, pool, a)
      if (kind !== 'ALLOW_OPPORTUNISTIC') driver.holdOperation(a)
      driver.cuMemFreeAsync(ptr, a)
      if (kind === 'FOLLOW_EVENT_DEPENDENCIES') {
        const event = driver.cuEventCreate(CU_EVENT_DISABLE_TIMING)
        driver.cuEventRecord(event, a)
        driver.cuStreamWaitEvent(b, event)
      }
      const reuse = () => driver.cuMemAllocFromPoolAsync(32 * MiB, pool, b)
      if (allowed === 1) assert.equal(reuse(), ptr)
      else refuses(reuse, 'cuMemAllocFromPoolAsync', CUDA_ERROR_OUT_OF_MEMORY)
      if (allowed === 1) continue
      driver.cuStreamSynchronize(a) // a free that the host has seen serves all streams
      assert.equal(reuse(), ptr)
    }
  }
})

test('counters are read-only, high-water marks accept only 0, and unknown attributes are refused', () => {
  const { driver, create, get, set } = open()
  const pool = create()
  const wrong: [keyof typeof POOL_ATTRIBUTE, number][] = [
    ['CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT', 0],
    ['CU_MEMPOOL_ATTR_USED_MEM_CURRENT', 0],
    ['CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH', MiB],
    ['CU_MEMPOOL_ATTR_USED_MEM_HIGH', 1],
    ['CU_MEMPOOL_ATTR_RELEASE_THRESHOLD', -1],
    ['CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC', 2],
  ]
  for (const [which, value] of wrong) {
    const before = get(pool, which)
    refuses(() => set(pool, which, value), 'cuMemPoolSetAttribute', CUDA_ERROR_INVALID_VALUE)
    assert.equal(get(pool, which), before)
  }
  const none = () => driver.cuMemPoolGetAttribute(pool, 99)
  refuses(none, 'cuMemPoolGetAttribute', CUDA_ERROR_INVALID_VALUE)
})

test('wrong properties are refused', () => {
  const { create } = open()
  const POSIX = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
  const wrong: [Partial<MemPoolProperties>, number][] = [
    [{ allocationType: 0 }, CUDA_ERROR_INVALID_VALUE],
    [{ allocationType: 3 }, CUDA_ERROR_INVALID_VALUE],
    [{ locationType: 0 }, CUDA_ERROR_INVALID_VALUE],
    [{ locationType: 4 }, CUDA_ERROR_INVALID_VALUE],
    [{ locationId: 1 }, CUDA_ERROR_INVALID_VALUE],
    [{ locationType: CU_MEM_LOCATION_TYPE_HOST_NUMA, locationId: 7 }, CUDA_ERROR_INVALID_VALUE],
    [{ maxBytes: -1 }, CUDA_ERROR_INVALID_VALUE],
    [{ handleTypes: 2 }, CUDA_ERROR_INVALID_VALUE],
    [{ handleTypes: CU_MEM_HANDLE_TYPE_FABRIC }, CUDA_ERROR_NOT_SUPPORTED],
    [{ handleTypes: POSIX, locationType: CU_MEM_LOCATION_TYPE_HOST }, CUDA_ERROR_INVALID_VALUE],
    [{ handleTypes: POSIX, allocationType: CU_MEM_ALLOCATION_TYPE_MANAGED }, CUDA_ERROR_INVALID_VALUE],
  ]
  for (const [properties, code] of wrong) refuses(() => create(properties), 'cuMemPoolCreate', code)
})

test('features that are switched off are refused as unsupported', () => {
  const { CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED, CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES } =
    DEVICE_ATTRIBUTE
  const cases: [SimulatedOptions, Partial<MemPoolProperties>][] = [
    [{ memoryPools: false }, {}],
    [{ hostPools: false }, { locationType: CU_MEM_LOCATION_TYPE_HOST }],
    [{ hostPools: false }, { locationType: CU_MEM_LOCATION_TYPE_HOST_NUMA }],
    [{ managedMemory: false }, { allocationType: CU_MEM_ALLOCATION_TYPE_MANAGED }],
    [{ posixDescriptors: false }, { handleTypes: CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR }],
  ]
  for (const [options, properties] of cases) {
    refuses(() => open(options).create(properties), 'cuMemPoolCreate', CUDA_ERROR_NOT_SUPPORTED)
    if (options.memoryPools !== false) open().create(properties)
  }
  const answers = (options: SimulatedOptions) => {
    const { driver } = open(options)
    return [
      driver.cuDeviceGetAttribute(CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED, 0),
      driver.cuDeviceGetAttribute(CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES, 0),
    ]
  }
  assert.deepEqual(answers({}), [1, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR])
  assert.deepEqual(answers({ hostPools: false, posixDescriptors: false }), [0, 0])
  assert.deepEqual(answers({ memoryPools: false }), [0, 0])
})

test('pools in host memory take no device memory; pinned ones need cuMemPoolSetAccess, managed ones do not', () => {
  const { driver, create, get } = open({ devices: 2, capacityBytes: MiB, peerAccess: false })
  const access = (pool: number, device: number) => driver.cuMemPoolGetAccess(pool, CU_MEM_LOCATION_TYPE_DEVICE, device)
  const grant = (pool: number, device: number) =>
    driver.cuMemPoolSetAccess(pool, CU_MEM_LOCATION_TYPE_DEVICE, device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
  const managed = create({ allocationType: CU_MEM_ALLOCATION_TYPE_MANAGED, locationType: 0 })
  const pinned = create({ locationType: CU_MEM_LOCATION_TYPE_HOST_NUMA })
  assert.deepEqual([access(managed, 0), access(managed, 1), access(pinned, 0), access(pinned, 1)], [3, 3, 0, 0])
  grant(pinned, 0)
  grant(managed, 0)
  for (const pool of [managed, pinned]) {
    const ptr = driver.cuMemAllocFromPoolAsync(4 * MiB, pool, 0)
    driver.cuMemsetD8Async(ptr, 2, 4 * MiB, 0)
    const host = new Uint8Array(1)
    driver.cuMemcpyDtoH(host, ptr)
    assert.equal(host[0], 2)
    assert.equal(get(pool, 'CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT'), 32 * MiB)
    assert.deepEqual([driver.usedBytes(0), driver.usedHostBytes()], [0, 32 * MiB])
    driver.cuMemFree(ptr)
    driver.cuCtxSynchronize()
    assert.equal(driver.usedHostBytes(), 0)
  }
  const ptr = driver.cuMemAllocFromPoolAsync(MiB, create({ locationType: CU_MEM_LOCATION_TYPE_HOST }), 0)
  driver.cuMemsetD8Async(ptr, 2, MiB, 0)
  refuses(() => driver.cuCtxSynchronize(), 'cuCtxSynchronize', RESULT.CUDA_ERROR_ILLEGAL_ADDRESS)
})

test('access that cannot be given or removed is refused without an effect', () => {
  const { driver, create } = open({ devices: 2 })
  const [DEVICE, HOST, NONE, BOTH] = [
    CU_MEM_LOCATION_TYPE_DEVICE,
    CU_MEM_LOCATION_TYPE_HOST,
    CU_MEM_ACCESS_FLAGS_PROT_NONE,
    CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
  ]
  const local = create()
  const host = create({ locationType: HOST })
  const managed = create({ allocationType: CU_MEM_ALLOCATION_TYPE_MANAGED })
  const wrong: [number, number, number, number][] = [
    [local, DEVICE, 0, NONE],
    [local, HOST, 0, BOTH],
    [local, DEVICE, 1, 1],
    [local, DEVICE, 2, BOTH],
    [local, 77, 0, BOTH],
    [host, HOST, 0, NONE],
    [managed, DEVICE, 1, NONE],
  ]
  const all = () =>
    [local, host, managed].map(pool =>
      [
        [DEVICE, 0],
        [DEVICE, 1],
        [HOST, 0],
      ].map(([type, id]) => driver.cuMemPoolGetAccess(pool, type, id)),
    )
  const before = all()
  assert.deepEqual(before, [
    [BOTH, NONE, NONE],
    [NONE, NONE, BOTH],
    [BOTH, BOTH, BOTH],
  ])
  for (const change of wrong) {
    refuses(() => driver.cuMemPoolSetAccess(...change), 'cuMemPoolSetAccess', CUDA_ERROR_INVALID_VALUE)
  }
  assert.deepEqual(all(), before)
  driver.cuMemPoolSetAccess(local, DEVICE, 1, BOTH)
  driver.cuMemPoolSetAccess(local, DEVICE, 1, NONE)
  assert.deepEqual(all(), before)
})
