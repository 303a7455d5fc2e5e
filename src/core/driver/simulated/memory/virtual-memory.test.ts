import assert from 'node:assert/strict'
import { test } from 'node:test'
import { GiB, KiB, MiB } from '../../../base/bytes.js'
import { CudaError, DeviceLostError } from '../../../base/errors.js'
import { Random } from '../../../base/random.js'
import { CU_MEM_ACCESS_FLAGS_PROT_READ, CU_STREAM_NON_BLOCKING, DEVICE_ATTRIBUTE, RESULT } from '../../constants.js'
import { refuses } from '../../contract/refuses.fixture.js'
import { STORE_PTX } from '../../store-kernel.fixture.js'
import { openSimulated } from '../opened.fixture.js'
import type { SimulatedDriver } from '../simulated-driver.js'

const GRANULE = 2 * MiB

function mapNew(driver: SimulatedDriver, ptr: number, bytes = GRANULE): number {
  const handle = driver.cuMemCreate(bytes, 0, 0)
  driver.cuMemMap(ptr, bytes, handle)
  driver.cuMemSetAccess(ptr, bytes, [0])
  return handle
}

test('an illegal access ends the context when the work runs, and the next call says why', () => {
  const cases: [string, RegExp, (driver: SimulatedDriver, base: number) => void][] = [
    ['unmapped', /nothing is mapped/, () => {}],
    ['without access', /without access/, (d, base) => d.cuMemMap(base, GRANULE, d.cuMemCreate(GRANULE, 0, 0))],
    ['the end unmapped', /nothing is mapped/, (d, base) => mapNew(d, base)],
  ]
  for (const [name, reason, prepare] of cases) {
    for (const use of ['copy in', 'copy out', 'copy within', 'fill']) {
      const driver = openSimulated({ progress: 'eager' })
      const plain = driver.cuMemAlloc(2 * GRANULE)
      const base = driver.cuMemAddressReserve(4 * GRANULE, 0)
      prepare(driver, base)
      const ptr = base + GRANULE - 16
      const host = new Uint8Array(32)
      driver.cuMemHostRegister(host, 0)
      driver.holdOperation(0)
      if (use === 'copy in') driver.cuMemcpyHtoDAsync(ptr, host, 0)
      if (use === 'copy out') driver.cuMemcpyDtoHAsync(host, ptr, 0)
      if (use === 'copy within') driver.cuMemcpyDtoDAsync(plain, ptr, 32, 0)
      if (use === 'fill') driver.cuMemsetD8Async(ptr, 1, 32, 0)
      const lost = () => driver.cuStreamSynchronize(0)
      assert.throws(lost, (error: unknown) => {
        assert.ok(error instanceof CudaError && reason.test(error.message), `${name}, ${use}: ${error}`)
        return error.result === RESULT.CUDA_ERROR_ILLEGAL_ADDRESS
      })
      assert.throws(lost, DeviceLostError)
      assert.throws(() => driver.cuMemGetInfo(), DeviceLostError)
    }
  }
})

test('unmapping is not ordered with streams: pending work finds no memory', () => {
  const driver = openSimulated({ progress: 'eager' })
  const base = driver.cuMemAddressReserve(GRANULE, 0)
  mapNew(driver, base)
  const ticket = driver.holdOperation(0)
  driver.cuMemsetD8Async(base, 1, GRANULE, 0)
  driver.cuMemUnmap(base, GRANULE)
  driver.releaseThrough(0, ticket)
  refuses(() => driver.cuMemGetInfo(), 'cuMemGetInfo', RESULT.CUDA_ERROR_ILLEGAL_ADDRESS)
  assert.throws(() => driver.cuMemGetInfo(), DeviceLostError)
})

test('access belongs to a device and to one mapping', () => {
  const driver = openSimulated({ devices: 2, progress: 'eager' })
  const base = driver.cuMemAddressReserve(2 * GRANULE, 0)
  const handle = mapNew(driver, base)
  driver.cuMemsetD8Async(base, 1, GRANULE, 0)
  driver.cuMemMap(base + GRANULE, GRANULE, handle)
  driver.cuMemSetAccess(base + GRANULE, GRANULE, [1])
  driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(1))
  const host = new Uint8Array(1)
  driver.cuMemcpyDtoH(host, base + GRANULE)
  assert.equal(host[0], 1)
  refuses(() => driver.cuMemcpyDtoH(host, base), 'cuMemcpyDtoH', RESULT.CUDA_ERROR_ILLEGAL_ADDRESS)
})

test('wrong ranges and handles are refused without an effect', () => {
  const driver = openSimulated()
  const base = driver.cuMemAddressReserve(8 * GRANULE, 0)
  const handle = mapNew(driver, base, 2 * GRANULE)
  const { CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_NOT_SUPPORTED } = RESULT
  refuses(() => driver.cuMemMap(base + 2 * GRANULE, 3 * GRANULE, handle), 'cuMemMap', CUDA_ERROR_NOT_SUPPORTED)
  refuses(() => driver.cuMemMap(base + 7 * GRANULE, 2 * GRANULE, handle), 'cuMemMap', CUDA_ERROR_INVALID_VALUE)
  refuses(() => driver.cuMemMap(base + GRANULE, 2 * GRANULE, handle), 'cuMemMap', CUDA_ERROR_INVALID_VALUE)
  refuses(() => driver.cuMemUnmap(base + GRANULE, GRANULE), 'cuMemUnmap', CUDA_ERROR_INVALID_VALUE)
  refuses(() => driver.cuMemUnmap(base, 3 * GRANULE), 'cuMemUnmap', CUDA_ERROR_INVALID_VALUE)
  refuses(() => driver.cuMemUnmap(base + GRANULE, 2 * GRANULE), 'cuMemUnmap', CUDA_ERROR_INVALID_VALUE)
  refuses(() => driver.cuMemSetAccess(base, GRANULE, [0]), 'cuMemSetAccess', CUDA_ERROR_INVALID_VALUE)
  refuses(() => driver.cuMemAddressFree(base, 8 * GRANULE), 'cuMemAddressFree', CUDA_ERROR_INVALID_VALUE)
  refuses(() => driver.cuMemAddressReserve(GRANULE, 3), 'cuMemAddressReserve', CUDA_ERROR_INVALID_VALUE)
  refuses(() => driver.cuMemFree(base), 'cuMemFree', CUDA_ERROR_INVALID_VALUE)
  driver.cuMemUnmap(base, 2 * GRANULE)
  refuses(() => driver.cuMemUnmap(base, 2 * GRANULE), 'cuMemUnmap', CUDA_ERROR_INVALID_VALUE)
  assert.equal(driver.usedBytes(), 2 * GRANULE)
  driver.cuMemRelease(handle)
  assert.equal(driver.usedBytes(), 0)
  refuses(() => driver.cuMemRelease(handle), 'cuMemRelease', CUDA_ERROR_INVALID_VALUE)
  refuses(() => driver.cuMemAddressFree(base, GRANULE), 'cuMemAddressFree', CUDA_ERROR_INVALID_VALUE)
  driver.cuMemAddressFree(base, 8 * GRANULE)
  refuses(() => driver.cuMemAddressFree(base, 8 * GRANULE), 'cuMemAddressFree', CUDA_ERROR_INVALID_VALUE)
})

test('reservations have the requested alignment, and take no memory', () => {
  const driver = openSimulated({ capacityBytes: GiB })
  assert.equal(driver.cuMemAddressReserve(64 * GiB, 512 * MiB) % (512 * MiB), 0)
  assert.equal(driver.cuMemGetInfo().freeBytes, GiB)
})

test('random mappings keep contents and count memory', () => {
  const granularityBytes = 64 * KiB
  const random = new Random(3)
  const driver = openSimulated({ granularityBytes, progress: 'eager', capacityBytes: 200 * granularityBytes })
  const places = 3000 // more than one block of the table
  const base = driver.cuMemAddressReserve(places * granularityBytes, 0)
  const handles = Array.from({ length: 50 }, () => {
    const granules = 1 + random.below(4)
    return {
      handle: driver.cuMemCreate(granules * granularityBytes, 0, 0),
      bytes: granules * granularityBytes,
      stamp: -1,
      at: -1,
    }
  })
  const taken = new Set<number>()
  const granulesOf = (at: number, bytes: number) => Array.from({ length: bytes / granularityBytes }, (_, i) => at + i)
  let moved = 0
  for (let step = 0; step < 3000; step++) {
    const each = handles[random.below(handles.length)]
    if (each.at >= 0) {
      const ptr = base + each.at * granularityBytes
      const word = new Uint32Array(1)
      driver.cuMemcpyDtoH(word, ptr + each.bytes - 4)
      if (each.stamp >= 0) assert.equal(word[0], each.stamp)
      each.stamp = step
      driver.cuMemsetD32Async(ptr, step, each.bytes / 4, 0)
      driver.cuMemUnmap(ptr, each.bytes)
      for (const granule of granulesOf(each.at, each.bytes)) taken.delete(granule)
      each.at = -1
      moved++
    } else {
      const at = random.below(places - 4)
      const map = () => driver.cuMemMap(base + at * granularityBytes, each.bytes, each.handle)
      if (granulesOf(at, each.bytes).some(granule => taken.has(granule))) {
        refuses(map, 'cuMemMap', RESULT.CUDA_ERROR_INVALID_VALUE)
        continue
      }
      map()
      driver.cuMemSetAccess(base + at * granularityBytes, each.bytes, [0])
      for (const granule of granulesOf(at, each.bytes)) taken.add(granule)
      each.at = at
    }
  }
  assert.ok(moved > 500)
  for (const each of handles) {
    driver.cuMemRelease(each.handle)
    if (each.at >= 0) driver.cuMemUnmap(base + each.at * granularityBytes, each.bytes)
  }
  assert.equal(driver.usedBytes(), 0)
  driver.cuMemAddressFree(base, places * granularityBytes)
})

/** Makes the mapping at `view` read-only for device 0, and runs a kernel that stores there. */
function storeThere(driver: SimulatedDriver, view: number): void {
  driver.cuMemSetAccess(view, GRANULE, [0], CU_MEM_ACCESS_FLAGS_PROT_READ)
  const kernel = driver.cuModuleGetFunction(driver.cuModuleLoadData(STORE_PTX), 'driver_suite_store')
  const args = { bytes: new Uint8Array(new BigUint64Array([BigInt(view), 9n]).buffer), offsets: [0, 8] }
  driver.cuLaunchKernel(kernel, { grid: [1, 1, 1], block: [1, 1, 1], sharedBytes: 0 }, 0, args)
}

/** Captures a fill at `view`, then makes the mapping read-only for device 0, and launches the graph. */
function fillByGraph(driver: SimulatedDriver, view: number): void {
  const stream = driver.cuStreamCreate(CU_STREAM_NON_BLOCKING)
  driver.cuStreamBeginCapture(stream, 0)
  driver.cuMemsetD32Async(view, 9, 1, stream)
  const graph = driver.cuGraphInstantiate(driver.cuStreamEndCapture(stream))
  driver.cuMemSetAccess(view, GRANULE, [0], CU_MEM_ACCESS_FLAGS_PROT_READ)
  driver.cuGraphLaunch(graph, 0)
}

test('work that writes to memory mapped for reading ends its context, and the contents stay', () => {
  for (const write of [storeThere, fillByGraph]) {
    const driver = openSimulated({ progress: 'eager', devices: 2 })
    const base = driver.cuMemAddressReserve(2 * GRANULE, 0)
    driver.cuMemMap(base + GRANULE, GRANULE, mapNew(driver, base))
    driver.cuMemSetAccess(base + GRANULE, GRANULE, [0, 1])
    driver.cuMemsetD32Async(base, 7, 1, 0)
    write(driver, base + GRANULE)
    const lost = () => driver.cuCtxSynchronize()
    const { CUDA_ERROR_ILLEGAL_ADDRESS } = RESULT
    assert.throws(lost, { result: CUDA_ERROR_ILLEGAL_ADDRESS, message: /which this device may only read/ })
    assert.throws(lost, DeviceLostError)
    driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(1))
    const host = new Uint32Array(1)
    driver.cuMemcpyDtoH(host, base + GRANULE)
    assert.equal(host[0], 7)
    driver.cuMemsetD32Async(base + GRANULE, 8, 1, 0) // device 1 may still write
    driver.cuMemcpyDtoH(host, base + GRANULE)
    assert.equal(host[0], 8)
  }
})

test('virtual memory can be switched off', () => {
  const driver = openSimulated({ virtualMemory: false })
  const attribute = DEVICE_ATTRIBUTE.CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED
  assert.equal(driver.cuDeviceGetAttribute(attribute, 0), 0)
  refuses(() => driver.cuMemAddressReserve(GRANULE, 0), 'cuMemAddressReserve', RESULT.CUDA_ERROR_NOT_SUPPORTED)
  refuses(() => driver.cuMemCreate(GRANULE, 0, 0), 'cuMemCreate', RESULT.CUDA_ERROR_NOT_SUPPORTED)
})
