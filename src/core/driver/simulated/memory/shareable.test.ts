import assert from 'node:assert/strict'
import { closeSync, openSync } from 'node:fs'
import { test } from 'node:test'
import { MiB } from '../../../base/bytes.js'
import { duplicateDescriptor } from '../../../libraries/system-calls.js'
import {
  CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
  CU_MEM_HANDLE_TYPE_FABRIC,
  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
  CU_MEM_LOCATION_TYPE_DEVICE,
  CU_STREAM_NON_BLOCKING,
  DEVICE_ATTRIBUTE,
  POOL_ATTRIBUTE,
  RESULT,
} from '../../constants.js'
import { refuses } from '../../contract/refuses.fixture.js'
import { openSimulated } from '../opened.fixture.js'
import type { SimulatedOptions } from '../options.js'

const GRANULE = 2 * MiB
const POSIX = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
const { CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_PERMITTED, CUDA_ERROR_NOT_SUPPORTED, CUDA_ERROR_ILLEGAL_ADDRESS } =
  RESULT

/** A pool, and a pool that imports it. */
function openPools(options: SimulatedOptions = {}) {
  const driver = openSimulated({ progress: 'eager', ...options })
  const stream = driver.cuStreamCreate(CU_STREAM_NON_BLOCKING)
  const locationType = CU_MEM_LOCATION_TYPE_DEVICE
  const pool = driver.cuMemPoolCreate({
    allocationType: 1,
    handleTypes: POSIX,
    locationType,
    locationId: 0,
    maxBytes: 0,
  })
  const descriptor = driver.cuMemPoolExportToShareableHandle(pool, POSIX)
  const imported = driver.cuMemPoolImportFromShareableHandle(descriptor, POSIX)
  const allocate = () => driver.cuMemAllocFromPoolAsync(MiB, pool, stream)
  const importOf = (ptr: number) => driver.cuMemPoolImportPointer(imported, driver.cuMemPoolExportPointer(ptr))
  const first = (ptr: number) => {
    const host = new Uint8Array(1)
    driver.cuMemcpyDtoHAsync(host, ptr, stream)
    return host[0]
  }
  const used = (which: number) => driver.cuMemPoolGetAttribute(which, POOL_ATTRIBUTE.CU_MEMPOOL_ATTR_USED_MEM_CURRENT)
  return { driver, stream, pool, descriptor, imported, allocate, importOf, first, used }
}

test('an imported handle is the same memory, which lives until its last handle, mapping and descriptor are gone', () => {
  const driver = openSimulated({ progress: 'eager' })
  const handle = driver.cuMemCreate(GRANULE, 0, POSIX)
  const descriptors = [1, 2].map(() => driver.cuMemExportToShareableHandle(handle, POSIX))
  assert.notEqual(descriptors[0], descriptors[1])
  const imports = descriptors.map(descriptor => driver.cuMemImportFromShareableHandle(descriptor, POSIX))
  assert.equal(driver.usedBytes(), GRANULE)
  const base = driver.cuMemAddressReserve(2 * GRANULE, 0)
  driver.cuMemMap(base, GRANULE, handle)
  driver.cuMemMap(base + GRANULE, GRANULE, imports[0])
  driver.cuMemSetAccess(base, 2 * GRANULE, [0])
  driver.cuMemsetD8Async(base, 9, GRANULE, 0)
  const host = new Uint8Array(1)
  driver.cuMemcpyDtoH(host, base + GRANULE)
  assert.equal(host[0], 9)
  for (const each of [handle, ...imports]) driver.cuMemRelease(each)
  driver.cuMemUnmap(base, GRANULE)
  assert.equal(driver.usedBytes(), GRANULE)
  driver.cuMemcpyDtoH(host, base + GRANULE)
  driver.cuMemUnmap(base + GRANULE, GRANULE)
  closeSync(descriptors[0])
  assert.equal(driver.usedBytes(), GRANULE)
  const late = driver.cuMemImportFromShareableHandle(descriptors[1], POSIX)
  const copy = duplicateDescriptor(descriptors[1])
  closeSync(descriptors[1])
  driver.cuMemMap(base, GRANULE, late)
  driver.cuMemSetAccess(base, GRANULE, [0])
  driver.cuMemcpyDtoH(host.fill(0), base)
  assert.equal(host[0], 9)
  driver.cuMemUnmap(base, GRANULE)
  driver.cuMemRelease(late)
  assert.equal(driver.usedBytes(), GRANULE)
  closeSync(copy)
  assert.equal(driver.usedBytes(), 0)
  const closed = () => driver.cuMemImportFromShareableHandle(copy, POSIX)
  refuses(closed, 'cuMemImportFromShareableHandle', CUDA_ERROR_INVALID_VALUE)
})

test('memory is exported only as a type it was made for, and imported only as memory', () => {
  const { driver, pool, descriptor } = openPools()
  const [plain, shared] = [driver.cuMemCreate(GRANULE, 0, 0), driver.cuMemCreate(GRANULE, 0, POSIX)]
  const exportMemory = (handle: number, type: number) => () => driver.cuMemExportToShareableHandle(handle, type)
  const importMemory = (from: number, type: number) => () => driver.cuMemImportFromShareableHandle(from, type)
  const importPool = (from: number) => () => driver.cuMemPoolImportFromShareableHandle(from, POSIX)
  refuses(exportMemory(plain, POSIX), 'cuMemExportToShareableHandle', CUDA_ERROR_INVALID_VALUE)
  refuses(exportMemory(shared, CU_MEM_HANDLE_TYPE_FABRIC), 'cuMemExportToShareableHandle', CUDA_ERROR_INVALID_VALUE)
  refuses(exportMemory(1, POSIX), 'cuMemExportToShareableHandle', CUDA_ERROR_INVALID_VALUE)
  const mine = driver.cuMemExportToShareableHandle(shared, POSIX)
  refuses(importMemory(descriptor, POSIX), 'cuMemImportFromShareableHandle', CUDA_ERROR_INVALID_VALUE)
  refuses(importMemory(mine, 2), 'cuMemImportFromShareableHandle', CUDA_ERROR_INVALID_VALUE)
  refuses(importMemory(2 ** 30, POSIX), 'cuMemImportFromShareableHandle', CUDA_ERROR_INVALID_VALUE)
  refuses(importPool(mine), 'cuMemPoolImportFromShareableHandle', CUDA_ERROR_INVALID_VALUE)
  const other = openSimulated()
  const files = [
    openSync('/dev/null', 'r'),
    other.cuMemExportToShareableHandle(other.cuMemCreate(GRANULE, 0, POSIX), POSIX),
  ]
  for (const file of files) {
    refuses(importMemory(file, POSIX), 'cuMemImportFromShareableHandle', CUDA_ERROR_INVALID_VALUE)
    closeSync(file)
  }
  driver.cuMemPoolDestroy(pool)
  refuses(importPool(descriptor), 'cuMemPoolImportFromShareableHandle', CUDA_ERROR_INVALID_VALUE)
})

test('export as descriptors can be switched off', () => {
  const driver = openSimulated({ posixDescriptors: false })
  refuses(() => driver.cuMemCreate(GRANULE, 0, POSIX), 'cuMemCreate', CUDA_ERROR_NOT_SUPPORTED)
  refuses(() => driver.cuMemCreate(GRANULE, 0, CU_MEM_HANDLE_TYPE_FABRIC), 'cuMemCreate', CUDA_ERROR_NOT_SUPPORTED)
  refuses(() => driver.cuMemCreate(GRANULE, 0, 2), 'cuMemCreate', CUDA_ERROR_INVALID_VALUE)
  assert.equal(driver.usedBytes(), 0)
  const attribute = DEVICE_ATTRIBUTE.CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED
  const answers = [{}, { posixDescriptors: false }, { virtualMemory: false }].map(options =>
    openSimulated(options).cuDeviceGetAttribute(attribute, 0),
  )
  assert.deepEqual(answers, [1, 0, 0])
})

test('imports are not counted: a second import is the same address, and one free ends it', () => {
  const { driver, stream, allocate, importOf } = openPools()
  const ptr = allocate()
  const view = importOf(ptr)
  assert.equal(importOf(ptr), view)
  driver.cuMemFreeAsync(view, stream)
  refuses(() => driver.cuMemFreeAsync(view, stream), 'cuMemFreeAsync', CUDA_ERROR_INVALID_VALUE)
})

test('pending work of the importer keeps its memory until the free of the importer runs', () => {
  const { driver, stream, allocate, importOf, first } = openPools()
  const ptr = allocate()
  const view = importOf(ptr)
  const other = driver.cuStreamCreate(CU_STREAM_NON_BLOCKING)
  const ticket = driver.holdOperation(other)
  driver.cuMemsetD8Async(view, 4, MiB, other)
  driver.cuMemFreeAsync(view, other)
  driver.releaseThrough(other, ticket)
  assert.equal(first(ptr), 4)
  driver.cuMemFreeAsync(ptr, stream)
  driver.cuCtxSynchronize()
})

test('after the free of the exporter, accesses of the importer are illegal', () => {
  const { driver, stream, allocate, importOf, first } = openPools()
  const ptr = allocate()
  const exported = driver.cuMemPoolExportPointer(ptr)
  const view = importOf(ptr)
  const ticket = driver.holdOperation(stream)
  driver.cuMemFreeAsync(ptr, stream)
  const other = driver.cuStreamCreate(CU_STREAM_NON_BLOCKING)
  driver.cuMemsetD8Async(view, 1, MiB, other) // before the free runs
  driver.releaseThrough(stream, ticket)
  assert.equal(allocate(), ptr)
  const stale = driver.cuMemPoolExportPointer(ptr)
  assert.notDeepEqual(stale, exported)
  refuses(() => first(view), 'cuMemcpyDtoHAsync', CUDA_ERROR_ILLEGAL_ADDRESS)
})

test('an imported pool only imports live blocks of its source', () => {
  const { driver, stream, pool, imported, allocate, importOf } = openPools()
  const ptr = allocate()
  const call = {
    cuMemAllocFromPoolAsync: () => driver.cuMemAllocFromPoolAsync(1, imported, stream),
    cuDeviceSetMemPool: () => driver.cuDeviceSetMemPool(0, imported),
    cuMemPoolExportToShareableHandle: () => driver.cuMemPoolExportToShareableHandle(imported, POSIX),
    cuMemPoolExportPointer: () => driver.cuMemPoolExportPointer(importOf(ptr)),
  }
  for (const [name, act] of Object.entries(call)) refuses(act, name, CUDA_ERROR_INVALID_VALUE)
  const exported = driver.cuMemPoolExportPointer(ptr)
  const other = openPools()
  const wrong: [number, Uint8Array][] = [
    [pool, exported],
    [imported, exported.subarray(0, 63)],
    [imported, new Uint8Array(64)],
    [imported, exported.map((byte, i) => (i === 8 ? byte ^ 1 : byte))],
    [imported, other.driver.cuMemPoolExportPointer(other.allocate()).fill(7, 8, 16)],
  ]
  for (const [into, bytes] of wrong) {
    const act = () => driver.cuMemPoolImportPointer(into, bytes)
    refuses(act, 'cuMemPoolImportPointer', CUDA_ERROR_INVALID_VALUE)
  }
  for (const unshared of [ptr + 512, driver.cuMemAllocAsync(MiB, stream), driver.cuMemAlloc(MiB)]) {
    refuses(() => driver.cuMemPoolExportPointer(unshared), 'cuMemPoolExportPointer', CUDA_ERROR_INVALID_VALUE)
  }
  driver.cuMemFree(importOf(ptr))
  driver.cuMemFreeAsync(ptr, stream)
  const late = () => driver.cuMemPoolImportPointer(imported, exported)
  refuses(late, 'cuMemPoolImportPointer', CUDA_ERROR_INVALID_VALUE)
})

test('a destroyed imported pool keeps its views, and has its own access rights', () => {
  const { driver, stream, imported, allocate, importOf, first } = openPools({ devices: 2 })
  const ptr = allocate()
  driver.cuMemsetD8Async(ptr, 6, MiB, stream)
  const view = importOf(ptr)
  const access = CU_MEM_ACCESS_FLAGS_PROT_READWRITE
  driver.cuMemPoolSetAccess(imported, CU_MEM_LOCATION_TYPE_DEVICE, 1, access)
  driver.cuMemPoolDestroy(imported)
  const host = new Uint8Array(1)
  const context = driver.cuStreamGetCtx(stream)
  driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(1))
  driver.cuMemcpyDtoH(host, view)
  assert.equal(host[0], 6)
  refuses(() => driver.cuMemcpyDtoH(host, ptr), 'cuMemcpyDtoH', CUDA_ERROR_ILLEGAL_ADDRESS)
  driver.cuCtxSetCurrent(context)
  assert.equal(first(view), 6)
  driver.cuMemFreeAsync(view, stream)
})

test('fabric handles are as the options say', () => {
  const attribute = DEVICE_ATTRIBUTE.CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED
  const types = POSIX | CU_MEM_HANDLE_TYPE_FABRIC
  for (const [fabricHandles, answer, code] of [
    [false, 0, CUDA_ERROR_NOT_SUPPORTED],
    [true, 1, null],
    ['refused', 1, CUDA_ERROR_NOT_PERMITTED],
  ] as const) {
    const driver = openSimulated({ fabricHandles })
    assert.equal(driver.cuDeviceGetAttribute(attribute, 0), answer)
    const create = () => driver.cuMemCreate(GRANULE, 0, types)
    if (code === null) driver.cuMemRelease(create())
    else refuses(create, 'cuMemCreate', code)
    assert.equal(driver.usedBytes(), 0)
  }
})

test('memory for network cards can be switched off', () => {
  const attribute = DEVICE_ATTRIBUTE.CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED
  const driver = openSimulated({ gpuDirectRdma: false })
  assert.equal(driver.cuDeviceGetAttribute(attribute, 0), 0)
  refuses(() => driver.cuMemCreate(GRANULE, 0, 0, true), 'cuMemCreate', CUDA_ERROR_NOT_SUPPORTED)
  driver.cuMemRelease(driver.cuMemCreate(GRANULE, 0, 0, false))
})
