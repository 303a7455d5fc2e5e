// The contract of linear, managed and registered host memory, copies and fills.

import assert from 'node:assert/strict'
import { beforeEach, describe, it } from 'node:test'
import { MiB, TiB } from '../../base/bytes.js'
import {
  CU_DEVICE_CPU,
  CU_MEM_ADVISE_SET_PREFERRED_LOCATION,
  CU_MEM_ADVISE_SET_READ_MOSTLY,
  CU_MEM_ADVISE_UNSET_ACCESSED_BY,
  CU_MEM_ATTACH_GLOBAL,
  CU_MEMHOSTREGISTER_DEVICEMAP,
  CU_MEMHOSTREGISTER_PORTABLE,
  DEVICE_ATTRIBUTE,
  RESULT,
} from '../constants.js'
import type { Driver } from '../driver.js'
import { type DriverFixture, sequence } from './contract.fixture.js'
import { refuses } from './refuses.fixture.js'

const { CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS } = DEVICE_ATTRIBUTE

export function memorySuite(fixture: DriverFixture): void {
  const { allocate, createEvent, createStream, later, missing, newHost, read, register } = fixture
  let driver: Driver
  beforeEach(() => {
    driver = fixture.driver
  })

  describe('linear memory', () => {
    it('addresses are aligned, and allocations do not overlap', () => {
      const sizes = [1, 255, 512, 4097, MiB, 3 * MiB]
      const blocks = sizes.map(bytes => ({ ptr: allocate(bytes), bytes })).sort((a, b) => a.ptr - b.ptr)
      for (const [i, { ptr, bytes }] of blocks.entries()) {
        assert.ok(Number.isSafeInteger(ptr) && ptr > 0)
        assert.equal(ptr % 256, 0)
        if (i + 1 < blocks.length) assert.ok(ptr + bytes <= blocks[i + 1].ptr)
      }
    })

    it('cuMemGetInfo shows allocations and frees', () => {
      const before = driver.cuMemGetInfo()
      assert.ok(before.freeBytes > 0 && before.freeBytes <= before.totalBytes)
      const ptr = driver.cuMemAlloc(256 * MiB)
      const during = driver.cuMemGetInfo()
      assert.ok(before.freeBytes - during.freeBytes >= 256 * MiB)
      driver.cuMemFree(ptr)
      assert.ok(driver.cuMemGetInfo().freeBytes - during.freeBytes >= 256 * MiB)
    })

    it('0 bytes and too many bytes are refused, and later calls work', () => {
      refuses(() => driver.cuMemAlloc(0), 'cuMemAlloc', RESULT.CUDA_ERROR_INVALID_VALUE)
      refuses(() => driver.cuMemAlloc(1024 * TiB), 'cuMemAlloc', RESULT.CUDA_ERROR_OUT_OF_MEMORY)
      allocate(MiB)
    })

    it('a second free is refused, and a free of null does nothing', () => {
      const ptr = driver.cuMemAlloc(MiB)
      driver.cuMemFree(ptr)
      refuses(() => driver.cuMemFree(ptr), 'cuMemFree', RESULT.CUDA_ERROR_INVALID_VALUE)
      driver.cuMemFree(0)
    })

    it('a free waits for earlier work', () => {
      const stream = createStream()
      const source = driver.cuMemAlloc(64 * MiB)
      const target = allocate(64 * MiB)
      const event = createEvent()
      driver.cuMemsetD8Async(source, 3, 64 * MiB, stream)
      driver.cuMemcpyDtoDAsync(target, source, 64 * MiB, stream)
      driver.cuEventRecord(event, stream)
      driver.cuMemFree(source)
      assert.equal(driver.cuEventQuery(event), true)
      assert.deepEqual(read(target + 64 * MiB - 16, 16), new Uint8Array(16).fill(3))
    })
  })

  describe('copies and fills', () => {
    it('a copy to the device and back keeps the bytes', () => {
      const data = sequence(100_003)
      const ptr = allocate(data.length)
      driver.cuMemcpyHtoD(ptr, data)
      const back = new Uint8Array(data.length)
      driver.cuMemcpyDtoH(back, ptr)
      assert.deepEqual(back, data)
    })

    it('copies take addresses inside a block, and views of any type', () => {
      const ptr = allocate(4096)
      driver.cuMemcpyHtoD(ptr, new Uint8Array(4096))
      driver.cuMemcpyHtoD(ptr + 1001, sequence(10).subarray(3, 7))
      driver.cuMemcpyHtoD(ptr + 2000, new Float64Array([1.5, -2]).subarray(1))
      const back = new DataView(new ArrayBuffer(4096))
      driver.cuMemcpyDtoH(back, ptr)
      assert.deepEqual(
        [1000, 1001, 1004, 1005].map(i => back.getUint8(i)),
        [0, ...[3, 6].map(i => sequence(10)[i]), 0],
      )
      assert.equal(back.getFloat64(2000, true), -2)
      assert.equal(back.getFloat64(2008, true), 0)
    })

    it('copies take shared memory, and a part of it', () => {
      const ptr = allocate(8)
      const shared = new SharedArrayBuffer(40)
      const [source, target] = [new Uint8Array(shared, 5, 8), new Uint8Array(shared, 21, 8)]
      source.set([1, 2, 3, 4, 5, 6, 7, 8])
      driver.cuMemcpyHtoD(ptr, source)
      driver.cuMemcpyDtoH(target, ptr)
      assert.deepEqual([...new Uint8Array(shared, 20, 10)], [0, 1, 2, 3, 4, 5, 6, 7, 8, 0])
    })

    it('a copy from context to context works within one, too', () => {
      const { context } = fixture
      const [source, target] = [allocate(MiB), allocate(MiB)]
      driver.cuMemcpyHtoD(source, sequence(MiB))
      driver.cuMemcpyPeerAsync(target, context, source, context, MiB, 0)
      assert.deepEqual(read(target, MiB), sequence(MiB))
      refuses(() => driver.cuCtxEnablePeerAccess(context), 'cuCtxEnablePeerAccess')
    })

    it('copies on the device work between odd addresses', () => {
      const data = sequence(200_000)
      const source = allocate(data.length)
      const target = allocate(data.length)
      driver.cuMemcpyHtoD(source, data)
      driver.cuMemcpyDtoD(target, source, data.length)
      driver.cuMemcpyDtoD(target + 70_001, source + 3, 66_000)
      const expected = data.slice()
      expected.set(data.subarray(3, 66_003), 70_001)
      assert.deepEqual(read(target, data.length), expected)
    })

    it('copies from and to pageable memory run in stream order', () => {
      const stream = createStream()
      const data = sequence(300_000)
      const first = allocate(data.length)
      const second = allocate(data.length)
      const upload = data.slice()
      driver.cuMemcpyHtoDAsync(first, upload, stream)
      upload.fill(0) // pageable memory was copied aside at the call
      driver.cuMemcpyDtoDAsync(second, first, data.length, stream)
      const back = new Uint8Array(data.length)
      driver.cuMemcpyDtoHAsync(back, second, stream) // returns after the copy
      assert.deepEqual(back, data)
    })

    it('copies from and to registered memory run in stream order', () => {
      const stream = createStream()
      const data = sequence(MiB)
      const ptr = allocate(MiB)
      const up = register(newHost(MiB))
      up.set(data)
      const down = register(newHost(MiB))
      driver.cuMemcpyHtoDAsync(ptr, up, stream)
      driver.cuMemcpyDtoHAsync(down, ptr, stream)
      driver.cuStreamSynchronize(stream)
      assert.deepEqual(down, data)
      up.fill(9)
      driver.cuMemcpyHtoD(ptr, up)
      driver.cuMemcpyDtoH(down, ptr)
      assert.deepEqual(down, up)
    })

    it('fills repeat 1, 2 and 4 bytes', () => {
      const stream = createStream()
      const ptr = allocate(MiB)
      driver.cuMemsetD8Async(ptr, 0x11, MiB, 0)
      driver.cuCtxSynchronize()
      driver.cuMemsetD8Async(ptr + 3, 0xfe, 70_000, stream)
      driver.cuMemsetD16Async(ptr + 100_002, 0xf00d, 30_000, stream)
      driver.cuMemsetD32Async(ptr + 200_000, 0x80c0ffee, 50_000, stream)
      const bytes = read(ptr, MiB)
      assert.deepEqual(
        [2, 3, 70_002, 70_003, MiB - 1].map(i => bytes[i]),
        [0x11, 0xfe, 0xfe, 0x11, 0x11],
      )
      assert.deepEqual(
        [100_001, 100_002, 100_003, 160_001, 160_002].map(i => bytes[i]),
        [0x11, 0x0d, 0xf0, 0xf0, 0x11],
      )
      const words = new Uint32Array(bytes.buffer)
      assert.deepEqual(
        [49_999, 50_000, 99_999, 100_000].map(i => words[i]),
        [0x11111111, 0x80c0ffee, 0x80c0ffee, 0x11111111],
      )
    })

    it('copies refuse an address that was never allocated', () => {
      const { CUDA_ERROR_INVALID_VALUE } = RESULT
      refuses(() => driver.cuMemcpyHtoD(4096, new Uint8Array(16)), 'cuMemcpyHtoD', CUDA_ERROR_INVALID_VALUE)
      refuses(() => driver.cuMemcpyDtoH(new Uint8Array(16), 4096), 'cuMemcpyDtoH', CUDA_ERROR_INVALID_VALUE)
      driver.cuCtxSynchronize()
    })

    it('registering memory twice, or unregistering other memory, is refused', () => {
      const host = register(newHost(MiB))
      const { CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED } = RESULT
      refuses(() => driver.cuMemHostRegister(host, 0), 'cuMemHostRegister', CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED)
      const other = new Uint8Array(MiB)
      refuses(() => driver.cuMemHostUnregister(other), 'cuMemHostUnregister', CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED)
    })
  })

  describe('host memory that the device reaches', () => {
    it('registered memory is read and written at its device address, in stream order', () => {
      const stream = createStream()
      const host = newHost(MiB)
      driver.cuMemHostRegister(host, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP)
      later(() => driver.cuMemHostUnregister(host))
      const mapped = driver.cuMemHostGetDevicePointer(host)
      assert.equal(driver.cuMemHostGetDevicePointer(host), mapped)
      assert.equal(driver.cuMemHostGetDevicePointer(host.subarray(4096)), mapped + 4096)
      const ptr = allocate(MiB)
      host.set(sequence(MiB))
      driver.cuMemcpyDtoDAsync(ptr, mapped, MiB, stream)
      driver.cuMemsetD8Async(mapped + 1000, 7, 500_000, stream)
      driver.cuStreamSynchronize(stream)
      assert.deepEqual(read(ptr, MiB), sequence(MiB))
      assert.deepEqual(
        [999, 1000, 500_999, 501_000].map(i => host[i]),
        [sequence(MiB)[999], 7, 7, sequence(MiB)[501_000]],
      )
    })
  })

  describe('host memory that will be registered', () => {
    it('lies on a node of the host, or on any, and keeps its contents', () => {
      const host = newHost(4 * MiB).fill(7)
      const nodes = driver.hostNodes()
      assert.deepEqual(
        [...nodes].sort((a, b) => a - b),
        [...new Set(nodes)],
      )
      assert.equal(driver.placeHost(host, -1), true)
      if (nodes.length === 1) assert.equal(driver.placeHost(host, nodes[0]), true)
      assert.equal(driver.placeHost(host, 1000), false)
      register(host)
      driver.unplaceHost(host)
      assert.ok(host.every(byte => byte === 7))
    })

    it('is filled with zeros while this thread goes on, and can be registered then', async () => {
      const host = newHost(4 * MiB).fill(7)
      await driver.fillHost(host)
      assert.ok(host.every(byte => byte === 0))
      register(host)
      const ptr = allocate(MiB)
      driver.cuMemcpyHtoD(ptr, sequence(MiB))
      driver.cuMemcpyDtoH(host.subarray(0, MiB), ptr)
      assert.deepEqual(host.slice(0, MiB), sequence(MiB))
    })
  })

  describe('managed memory', () => {
    it('managed memory is copied, filled and freed like device memory', test => {
      if (missing(test, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 'managed memory')) return
      const stream = createStream()
      const ptr = driver.cuMemAllocManaged(3 * MiB, CU_MEM_ATTACH_GLOBAL)
      driver.cuMemcpyHtoD(ptr, sequence(3 * MiB))
      driver.cuMemsetD8Async(ptr + MiB, 9, MiB, stream)
      const expected = sequence(3 * MiB).fill(9, MiB, 2 * MiB)
      assert.deepEqual(read(ptr, 3 * MiB), expected)
      const plain = allocate(3 * MiB)
      driver.cuMemcpyDtoDAsync(plain, ptr, 3 * MiB, stream)
      assert.deepEqual(read(plain, 3 * MiB), expected)
      driver.cuMemFree(ptr)
      refuses(() => driver.cuMemFree(ptr), 'cuMemFree', RESULT.CUDA_ERROR_INVALID_VALUE)
    })

    it('managed memory takes advice and moves on request, and keeps its contents', test => {
      if (missing(test, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 'concurrent managed access')) return
      const [stream, ptr] = [createStream(), driver.cuMemAllocManaged(2 * MiB, CU_MEM_ATTACH_GLOBAL)]
      later(() => driver.cuMemFree(ptr))
      driver.cuMemcpyHtoD(ptr, sequence(2 * MiB))
      for (const place of [fixture.device, CU_DEVICE_CPU]) {
        for (let advice = CU_MEM_ADVISE_SET_READ_MOSTLY; advice <= CU_MEM_ADVISE_UNSET_ACCESSED_BY; advice++) {
          driver.cuMemAdvise(ptr, MiB, advice, place)
        }
        driver.cuMemPrefetchAsync(ptr + MiB, MiB, place, stream)
        assert.deepEqual(read(ptr, 2 * MiB), sequence(2 * MiB))
      }
    })

    it('advice and moves of other memory, or to no device, are refused', test => {
      if (missing(test, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 'concurrent managed access')) return
      const { CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_INVALID_DEVICE } = RESULT
      const [stream, plain] = [createStream(), allocate(MiB)]
      const managed = driver.cuMemAllocManaged(MiB, CU_MEM_ATTACH_GLOBAL)
      later(() => driver.cuMemFree(managed))
      const advise = (ptr: number, device: number) => () =>
        driver.cuMemAdvise(ptr, MiB, CU_MEM_ADVISE_SET_PREFERRED_LOCATION, device)
      const move = (ptr: number, device: number) => () => driver.cuMemPrefetchAsync(ptr, MiB, device, stream)
      refuses(advise(plain, fixture.device), 'cuMemAdvise', CUDA_ERROR_INVALID_VALUE)
      refuses(move(plain, fixture.device), 'cuMemPrefetchAsync', CUDA_ERROR_INVALID_VALUE)
      refuses(advise(managed, 99), 'cuMemAdvise', CUDA_ERROR_INVALID_DEVICE)
      refuses(move(managed, 99), 'cuMemPrefetchAsync', CUDA_ERROR_INVALID_DEVICE)
    })

    it('discarded memory is written again in stream order', test => {
      if (missing(test, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, 'concurrent managed access')) return
      if (driver.cuDriverGetVersion() < 13_000) return test.skip('discards came with driver 13.0')
      const [stream, ptr] = [createStream(), driver.cuMemAllocManaged(4 * MiB, CU_MEM_ATTACH_GLOBAL)]
      later(() => driver.cuMemFree(ptr))
      driver.cuMemsetD8Async(ptr, 5, 4 * MiB, stream)
      driver.cuMemDiscardBatchAsync(ptr + 2 * MiB, 2 * MiB, stream)
      driver.cuMemsetD8Async(ptr + 2 * MiB, 6, 2 * MiB, stream)
      const expected = new Uint8Array(4 * MiB).fill(5).fill(6, 2 * MiB)
      assert.deepEqual(read(ptr, 4 * MiB), expected)
    })

    it('managed allocations of 0 bytes, or without flags, are refused', test => {
      if (missing(test, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 'managed memory')) return
      const { CUDA_ERROR_INVALID_VALUE } = RESULT
      refuses(() => driver.cuMemAllocManaged(0, CU_MEM_ATTACH_GLOBAL), 'cuMemAllocManaged', CUDA_ERROR_INVALID_VALUE)
      refuses(() => driver.cuMemAllocManaged(MiB, 0), 'cuMemAllocManaged', CUDA_ERROR_INVALID_VALUE)
    })
  })
}
