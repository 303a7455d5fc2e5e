// What both drivers must do, the simulated one and the real one on a GPU: only behaviour that CUDA documents or that was
// measured on a real driver. What can only be provoked by killing the context, or is undefined on a real driver, is
// tested with the simulated driver alone. One file, long as the contract is, since all tests share one set-up.

import assert from 'node:assert/strict'
import { closeSync } from 'node:fs'
import { after, afterEach, before, beforeEach, describe, it, type TestContext } from 'node:test'
import { GiB, KiB, MiB, TiB } from '../base/bytes.js'
import { CudaError } from '../base/errors.js'
import {
  CU_EVENT_DISABLE_TIMING,
  CU_MEM_ACCESS_FLAGS_PROT_NONE,
  CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
  CU_MEM_ALLOCATION_TYPE_MANAGED,
  CU_MEM_ALLOCATION_TYPE_PINNED,
  CU_MEM_ATTACH_GLOBAL,
  CU_MEM_HANDLE_TYPE_NONE,
  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
  CU_MEM_LOCATION_TYPE_DEVICE,
  CU_MEM_LOCATION_TYPE_HOST,
  CU_MEM_LOCATION_TYPE_HOST_NUMA,
  CU_MEMHOSTREGISTER_DEVICEMAP,
  CU_MEMHOSTREGISTER_PORTABLE,
  CU_STREAM_CAPTURE_MODE_GLOBAL,
  CU_STREAM_CAPTURE_MODE_RELAXED,
  CU_STREAM_LEGACY_DEFAULT,
  CU_STREAM_NON_BLOCKING,
  DEVICE_ATTRIBUTE,
  FUNCTION_ATTRIBUTE,
  POOL_ATTRIBUTE,
  RESULT,
} from './constants.js'
import type { Driver, KernelArguments, LaunchShape, MemPoolProperties } from './driver.js'
import { STORE_PTX } from './store-kernel.fixture.js'

const {
  CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK,
  CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z,
  CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y,
  CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK,
  CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN,
  CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH,
  CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT,
  CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR,
  CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY,
  CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED,
  CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED,
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

/**
 * Runs the shared tests; `open` is called once for each of them, and `newHost` makes host memory that is to be registered:
 * shared, where the driver belongs to another thread.
 */
export function driverSuite(
  name: string,
  open: () => Driver,
  newHost = (bytes: number): Uint8Array => new Uint8Array(bytes),
): void {
  describe(`driver contract: ${name}`, () => {
    let driver: Driver
    let device: number
    let context: number
    let cleanups: (() => void)[] = []
    let server: Driver

    /** To be done after the test, the latest first. */
    const later = (cleanup: () => void) => cleanups.push(cleanup)

    function allocate(bytes: number): number {
      const ptr = driver.cuMemAlloc(bytes)
      later(() => driver.cuMemFree(ptr))
      return ptr
    }

    function createStream(flags = CU_STREAM_NON_BLOCKING): number {
      const stream = driver.cuStreamCreate(flags)
      later(() => driver.cuStreamDestroy(stream))
      return stream
    }

    function createEvent(): number {
      const event = driver.cuEventCreate(CU_EVENT_DISABLE_TIMING)
      later(() => driver.cuEventDestroy(event))
      return event
    }

    /** What a pool in the memory of the device is made of. */
    function localPool(): MemPoolProperties {
      return {
        allocationType: CU_MEM_ALLOCATION_TYPE_PINNED,
        handleTypes: CU_MEM_HANDLE_TYPE_NONE,
        locationType: CU_MEM_LOCATION_TYPE_DEVICE,
        locationId: device,
        maxBytes: 0,
      }
    }

    /** A pool in the memory of the device, but for what is `different`; destroyed after the test. */
    function createPool(different: Partial<MemPoolProperties> = {}): number {
      const pool = driver.cuMemPoolCreate({ ...localPool(), ...different })
      later(() => driver.cuMemPoolDestroy(pool))
      return pool
    }

    /** Memory of a pool, freed and seen free after the test. */
    function allocateFrom(pool: number, bytes: number, stream: number): number {
      const ptr = driver.cuMemAllocFromPoolAsync(bytes, pool, stream)
      later(() => {
        driver.cuMemFreeAsync(ptr, CU_STREAM_LEGACY_DEFAULT)
        driver.cuCtxSynchronize()
      })
      return ptr
    }

    /** A descriptor, closed after the test where it is one of the system's. */
    function exported(descriptor: number): number {
      if (!driver.simulated) later(() => closeSync(descriptor))
      return descriptor
    }

    function register<T extends ArrayBufferView>(host: T): T {
      driver.cuMemHostRegister(host, 0)
      later(() => driver.cuMemHostUnregister(host))
      return host
    }

    /** All that was submitted anywhere has run; then the bytes. */
    function read(ptr: number, bytes: number): Uint8Array {
      driver.cuCtxSynchronize()
      const host = new Uint8Array(bytes)
      driver.cuMemcpyDtoH(host, ptr)
      return host
    }

    function missing(test: TestContext, attribute: number, feature: string): boolean {
      if (driver.cuDeviceGetAttribute(attribute, device) !== 0) return false
      test.skip(`this device has no ${feature}`)
      return true
    }

    // Keeps the primary context alive between the tests: making it anew takes a real driver a good part of a second.
    before(() => {
      server = open()
      server.cuInit()
      server.cuDevicePrimaryCtxRetain(server.cuDeviceGet(0))
    })
    after(() => server.cuDevicePrimaryCtxRelease(server.cuDeviceGet(0)))

    beforeEach(() => {
      driver = open()
      driver.cuInit()
      device = driver.cuDeviceGet(0)
      context = driver.cuDevicePrimaryCtxRetain(device)
      driver.cuCtxSetCurrent(context)
    })

    afterEach(() => {
      driver.cuCtxSynchronize()
      for (const cleanup of cleanups.reverse()) cleanup()
      cleanups = []
      driver.cuDevicePrimaryCtxRelease(device)
    })

    describe('devices and contexts', () => {
      it('says its version and its devices', () => {
        assert.ok(driver.cuDriverGetVersion() >= 10_020)
        const count = driver.cuDeviceGetCount()
        assert.ok(count >= 1)
        assert.notEqual(driver.cuDeviceGetName(device), '')
        assert.ok(driver.cuDeviceTotalMem(device) > 0)
        refuses(() => driver.cuDeviceGet(count), 'cuDeviceGet', RESULT.CUDA_ERROR_INVALID_DEVICE)
      })

      it('answers attributes, and refuses an unknown one', () => {
        assert.equal(driver.cuDeviceGetAttribute(CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK, device), 1024)
        assert.ok(driver.cuDeviceGetAttribute(CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, device) >= 1)
        assert.ok(driver.cuDeviceGetAttribute(CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device) >= 5)
        const features = [
          CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY,
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

      it('gives one primary context to all who retain it', () => {
        assert.equal(driver.cuDevicePrimaryCtxRetain(device), context)
        driver.cuDevicePrimaryCtxRelease(device)
        driver.cuCtxSynchronize()
      })
    })

    describe('plain memory', () => {
      it('gives aligned addresses that do not overlap', () => {
        const sizes = [1, 255, 512, 4097, MiB, 3 * MiB]
        const blocks = sizes.map(bytes => ({ ptr: allocate(bytes), bytes })).sort((a, b) => a.ptr - b.ptr)
        for (const [i, { ptr, bytes }] of blocks.entries()) {
          assert.ok(Number.isSafeInteger(ptr) && ptr > 0)
          assert.equal(ptr % 256, 0)
          if (i + 1 < blocks.length) assert.ok(ptr + bytes <= blocks[i + 1].ptr)
        }
      })

      it('tells how much is free', () => {
        const before = driver.cuMemGetInfo()
        assert.ok(before.freeBytes > 0 && before.freeBytes <= before.totalBytes)
        const ptr = driver.cuMemAlloc(256 * MiB)
        const during = driver.cuMemGetInfo()
        assert.ok(before.freeBytes - during.freeBytes >= 256 * MiB)
        driver.cuMemFree(ptr)
        assert.ok(driver.cuMemGetInfo().freeBytes - during.freeBytes >= 256 * MiB)
      })

      it('refuses no bytes and too many, and works on', () => {
        refuses(() => driver.cuMemAlloc(0), 'cuMemAlloc', RESULT.CUDA_ERROR_INVALID_VALUE)
        refuses(() => driver.cuMemAlloc(1024 * TiB), 'cuMemAlloc', RESULT.CUDA_ERROR_OUT_OF_MEMORY)
        allocate(MiB)
      })

      it('refuses a second free and frees null', () => {
        const ptr = driver.cuMemAlloc(MiB)
        driver.cuMemFree(ptr)
        refuses(() => driver.cuMemFree(ptr), 'cuMemFree', RESULT.CUDA_ERROR_INVALID_VALUE)
        driver.cuMemFree(0)
      })

      it('completes earlier work before a free', () => {
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
      it('copies to the device and back', () => {
        const data = sequence(100_003)
        const ptr = allocate(data.length)
        driver.cuMemcpyHtoD(ptr, data)
        const back = new Uint8Array(data.length)
        driver.cuMemcpyDtoH(back, ptr)
        assert.deepEqual(back, data)
      })

      it('copies parts, by addresses inside a block and by views of any type', () => {
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

      it('copies on the device, also between odd addresses', () => {
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

      it('copies in stream order, from and to pageable memory', () => {
        const stream = createStream()
        const data = sequence(300_000)
        const first = allocate(data.length)
        const second = allocate(data.length)
        const upload = data.slice()
        driver.cuMemcpyHtoDAsync(first, upload, stream)
        upload.fill(0) // pageable memory was copied aside at the call
        driver.cuMemcpyDtoDAsync(second, first, data.length, stream)
        const back = new Uint8Array(data.length)
        driver.cuMemcpyDtoHAsync(back, second, stream) // returns when the copy is done
        assert.deepEqual(back, data)
      })

      it('copies in stream order, from and to registered memory', () => {
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

      it('fills with bytes and with words', () => {
        const stream = createStream()
        const ptr = allocate(MiB)
        driver.cuMemsetD8(ptr, 0x11, MiB)
        driver.cuCtxSynchronize()
        driver.cuMemsetD8Async(ptr + 3, 0xfe, 70_000, stream)
        driver.cuMemsetD32Async(ptr + 200_000, 0x80c0ffee, 50_000, stream)
        const bytes = read(ptr, MiB)
        assert.deepEqual(
          [2, 3, 70_002, 70_003, MiB - 1].map(i => bytes[i]),
          [0x11, 0xfe, 0xfe, 0x11, 0x11],
        )
        const words = new Uint32Array(bytes.buffer)
        assert.deepEqual(
          [49_999, 50_000, 99_999, 100_000].map(i => words[i]),
          [0x11111111, 0x80c0ffee, 0x80c0ffee, 0x11111111],
        )
      })

      it('refuses an address that was never allocated', () => {
        const { CUDA_ERROR_INVALID_VALUE } = RESULT
        refuses(() => driver.cuMemcpyHtoD(4096, new Uint8Array(16)), 'cuMemcpyHtoD', CUDA_ERROR_INVALID_VALUE)
        refuses(() => driver.cuMemcpyDtoH(new Uint8Array(16), 4096), 'cuMemcpyDtoH', CUDA_ERROR_INVALID_VALUE)
        driver.cuCtxSynchronize()
      })

      it('refuses to register memory twice, or to unregister what is not', () => {
        const host = register(newHost(MiB))
        const { CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED, CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED } = RESULT
        refuses(() => driver.cuMemHostRegister(host, 0), 'cuMemHostRegister', CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED)
        const other = new Uint8Array(MiB)
        refuses(() => driver.cuMemHostUnregister(other), 'cuMemHostUnregister', CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED)
      })
    })

    describe('host memory that the device reaches', () => {
      it('is read and written under its device address, in stream order', () => {
        const stream = createStream()
        const host = newHost(MiB)
        driver.cuMemHostRegister(host, CU_MEMHOSTREGISTER_PORTABLE | CU_MEMHOSTREGISTER_DEVICEMAP)
        later(() => driver.cuMemHostUnregister(host))
        const mapped = driver.cuMemHostGetDevicePointer(host)
        assert.equal(driver.cuMemHostGetDevicePointer(host), mapped)
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

    describe('managed memory', () => {
      it('is copied, filled and freed like any other', test => {
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

      it('refuses no bytes, and flags that say nothing', test => {
        if (missing(test, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, 'managed memory')) return
        const { CUDA_ERROR_INVALID_VALUE } = RESULT
        refuses(() => driver.cuMemAllocManaged(0, CU_MEM_ATTACH_GLOBAL), 'cuMemAllocManaged', CUDA_ERROR_INVALID_VALUE)
        refuses(() => driver.cuMemAllocManaged(MiB, 0), 'cuMemAllocManaged', CUDA_ERROR_INVALID_VALUE)
      })
    })

    describe('streams and events', () => {
      it('is idle after a synchronise', () => {
        const stream = createStream()
        const event = createEvent()
        const ptr = allocate(64 * MiB)
        driver.cuMemsetD8Async(ptr, 1, 64 * MiB, stream)
        driver.cuEventRecord(event, stream)
        driver.cuStreamSynchronize(stream)
        assert.equal(driver.cuStreamQuery(stream), true)
        assert.equal(driver.cuEventQuery(event), true)
      })

      it('completes in the end, when only asked', () => {
        const stream = createStream()
        const event = createEvent()
        driver.cuMemsetD8Async(allocate(MiB), 1, MiB, stream)
        driver.cuEventRecord(event, stream)
        while (!driver.cuEventQuery(event));
        while (!driver.cuStreamQuery(stream));
      })

      it('takes a never recorded event as complete', () => {
        const event = createEvent()
        assert.equal(driver.cuEventQuery(event), true)
        driver.cuEventSynchronize(event)
        driver.cuStreamWaitEvent(createStream(), event)
      })

      it('orders two streams by an event', () => {
        const [a, b] = [createStream(), createStream()]
        const event = createEvent()
        const bytes = 64 * MiB
        const source = allocate(bytes)
        const target = allocate(bytes)
        for (const value of [1, 2, 3, 4]) {
          driver.cuMemsetD8Async(source, value, bytes, a)
          driver.cuEventRecord(event, a)
          driver.cuStreamWaitEvent(b, event)
          driver.cuMemcpyDtoDAsync(target, source, bytes, b)
          driver.cuStreamSynchronize(b)
          assert.equal(read(target + bytes - 1, 1)[0], value)
        }
      })

      it('waits for the event as it was recorded at the time of the wait', () => {
        const [a, b, c] = [createStream(), createStream(), createStream()]
        const event = createEvent()
        const source = allocate(MiB)
        const target = allocate(MiB)
        driver.cuMemsetD8Async(source, 7, MiB, a)
        driver.cuEventRecord(event, a)
        driver.cuStreamWaitEvent(b, event)
        driver.cuEventRecord(event, c)
        driver.cuMemcpyDtoDAsync(target, source, MiB, b)
        driver.cuStreamSynchronize(b)
        assert.equal(read(target, 1)[0], 7)
      })

      it('keeps a wait after its event is destroyed', () => {
        const [a, b] = [createStream(), createStream()]
        const source = allocate(16 * MiB)
        const target = allocate(16 * MiB)
        const event = driver.cuEventCreate(CU_EVENT_DISABLE_TIMING)
        driver.cuMemsetD8Async(source, 5, 16 * MiB, a)
        driver.cuEventRecord(event, a)
        driver.cuStreamWaitEvent(b, event)
        driver.cuEventDestroy(event)
        driver.cuMemcpyDtoDAsync(target, source, 16 * MiB, b)
        driver.cuStreamSynchronize(b)
        assert.equal(read(target + 16 * MiB - 1, 1)[0], 5)
      })

      it('moves an event when it is recorded again', () => {
        const stream = createStream()
        const event = createEvent()
        const ptr = allocate(16 * MiB)
        const last = register(newHost(MiB)).subarray(0, 1)
        driver.cuEventRecord(event, stream)
        driver.cuMemsetD8Async(ptr, 8, 16 * MiB, stream)
        driver.cuMemcpyDtoHAsync(last, ptr + 16 * MiB - 1, stream)
        driver.cuEventRecord(event, stream)
        driver.cuEventSynchronize(event)
        assert.equal(last[0], 8)
      })

      it('orders blocking streams with the default stream, both ways', () => {
        const stream = createStream(0)
        const bytes = 32 * MiB
        const source = allocate(bytes)
        const target = allocate(bytes)
        driver.cuMemsetD8Async(source, 1, bytes, stream)
        driver.cuMemcpyDtoDAsync(target, source, bytes, CU_STREAM_LEGACY_DEFAULT)
        driver.cuMemsetD8Async(source, 2, bytes, stream)
        driver.cuStreamSynchronize(CU_STREAM_LEGACY_DEFAULT)
        driver.cuStreamSynchronize(stream)
        assert.equal(read(target + bytes - 1, 1)[0], 1)
        assert.equal(read(source + bytes - 1, 1)[0], 2)
      })

      it('completes the work of a destroyed stream', () => {
        const stream = driver.cuStreamCreate(CU_STREAM_NON_BLOCKING)
        const ptr = allocate(64 * MiB)
        driver.cuMemsetD8Async(ptr, 6, 64 * MiB, stream)
        driver.cuStreamDestroy(stream)
        assert.equal(read(ptr + 64 * MiB - 1, 1)[0], 6)
      })

      it('knows the context of a stream, and never uses an id again', () => {
        const ids = new Set<number>()
        for (let i = 0; i < 10; i++) {
          const stream = driver.cuStreamCreate(CU_STREAM_NON_BLOCKING)
          assert.equal(driver.cuStreamGetCtx(stream), context)
          ids.add(driver.cuStreamGetId(stream))
          assert.equal(driver.cuStreamGetId(stream), driver.cuStreamGetId(stream))
          driver.cuStreamDestroy(stream)
        }
        assert.equal(ids.size, 10)
      })
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

      it('run in either way, with what was given at the call', () => {
        const [stream, ptr] = [createStream(), allocate(KiB)]
        const shape = { grid: [1, 1, 1] as [number, number, number], block: [1, 1, 1] as const, sharedBytes: 0 }
        driver.cuLaunchKernel(kernel, shape, stream, storing(ptr, 7))
        driver.cuLaunchCooperativeKernel(kernel, shape, stream, storing(ptr + 4, 8))
        shape.grid[0] = 0
        assert.deepEqual(new Uint32Array(read(ptr, 8).buffer), new Uint32Array([7, 8]))
      })

      it('together only as many as there is room for', () => {
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

      it('are refused beyond the limits that the attributes tell', () => {
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

      it('get more shared memory where they ask for it', () => {
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

    describe('captures and graphs', () => {
      /** A graph that can be launched, and is destroyed after the test. */
      function instantiate(graph: number): number {
        const executable = driver.cuGraphInstantiate(graph)
        driver.cuGraphDestroy(graph)
        later(() => driver.cuGraphExecDestroy(executable))
        return executable
      }

      function join(earlier: number, later: number): void {
        const event = createEvent()
        driver.cuEventRecord(event, earlier)
        driver.cuStreamWaitEvent(later, event)
      }

      it('record work instead of running it, and run it at each launch', () => {
        const [stream, ptr] = [createStream(), allocate(KiB)]
        driver.cuMemsetD8Async(ptr, 1, KiB, stream)
        driver.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL)
        assert.equal(driver.cuStreamIsCapturing(stream), true)
        driver.cuMemsetD8Async(ptr, 2, KiB, stream)
        const executable = instantiate(driver.cuStreamEndCapture(stream))
        assert.equal(driver.cuStreamIsCapturing(stream), false)
        assert.deepEqual(read(ptr, KiB), new Uint8Array(KiB).fill(1))
        for (let launch = 0; launch < 2; launch++) {
          driver.cuGraphLaunch(executable, stream)
          assert.deepEqual(read(ptr, KiB), new Uint8Array(KiB).fill(2))
          driver.cuMemsetD8Async(ptr, 3, KiB, stream)
          assert.deepEqual(read(ptr, KiB), new Uint8Array(KiB).fill(3))
        }
      })

      it('keep the order of streams that take part by events', () => {
        const [a, b] = [createStream(), createStream()]
        const [x, y] = [allocate(MiB), allocate(MiB)]
        driver.cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_GLOBAL)
        driver.cuMemsetD8Async(x, 1, MiB, a)
        join(a, b)
        assert.equal(driver.cuStreamIsCapturing(b), true)
        driver.cuMemcpyDtoDAsync(y, x, MiB, b)
        join(b, a)
        driver.cuMemsetD8Async(x, 2, MiB, a)
        const executable = instantiate(driver.cuStreamEndCapture(a))
        for (let launch = 0; launch < 3; launch++) driver.cuGraphLaunch(executable, b)
        assert.deepEqual(read(y, MiB), new Uint8Array(MiB).fill(1))
        assert.deepEqual(read(x, MiB), new Uint8Array(MiB).fill(2))
      })

      it('are refused where a stream was not joined, and its streams work on', () => {
        const [a, b, ptr] = [createStream(), createStream(), allocate(KiB)]
        driver.cuStreamBeginCapture(a, CU_STREAM_CAPTURE_MODE_GLOBAL)
        driver.cuMemsetD8Async(ptr, 1, KiB, a)
        join(a, b)
        driver.cuMemsetD8Async(ptr, 2, KiB, b)
        const unjoined = RESULT.CUDA_ERROR_STREAM_CAPTURE_UNJOINED
        refuses(() => driver.cuStreamEndCapture(a), 'cuStreamEndCapture', unjoined)
        for (const stream of [a, b]) assert.equal(driver.cuStreamIsCapturing(stream), false)
        driver.cuMemsetD8Async(ptr, 3, KiB, b)
        assert.deepEqual(read(ptr, KiB), new Uint8Array(KiB).fill(3))
      })

      it('are broken by waits for what is not in them, and by unsafe calls of a thread that is not relaxed', () => {
        const outside = createEvent()
        const stream = createStream()
        driver.cuEventRecord(outside, stream)
        const { CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED: unsupported, CUDA_ERROR_STREAM_CAPTURE_ISOLATION: isolation } =
          RESULT
        for (const [call, code, act] of [
          ['cuStreamSynchronize', unsupported, () => driver.cuStreamSynchronize(stream)],
          ['cuStreamWaitEvent', isolation, () => driver.cuStreamWaitEvent(stream, outside)],
          ['cuMemAlloc', unsupported, () => driver.cuMemAlloc(KiB)],
        ] as const) {
          driver.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL)
          refuses(act, call, code)
          const invalidated = RESULT.CUDA_ERROR_STREAM_CAPTURE_INVALIDATED
          refuses(() => driver.cuStreamEndCapture(stream), 'cuStreamEndCapture', invalidated)
          assert.equal(driver.cuStreamIsCapturing(stream), false)
        }
        refuses(() => driver.cuStreamEndCapture(stream), 'cuStreamEndCapture')
        refuses(() => driver.cuStreamBeginCapture(CU_STREAM_LEGACY_DEFAULT, 0), 'cuStreamBeginCapture')
      })

      it('are not broken by calls of a relaxed thread', () => {
        const [stream, other, event] = [createStream(), createStream(), createEvent()]
        const ptr = allocate(KiB)
        const before = driver.cuThreadExchangeStreamCaptureMode(CU_STREAM_CAPTURE_MODE_RELAXED)
        later(() => driver.cuThreadExchangeStreamCaptureMode(before))
        assert.equal(before, CU_STREAM_CAPTURE_MODE_GLOBAL)
        driver.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL)
        driver.cuMemsetD8Async(ptr, 9, KiB, stream)
        driver.cuMemFree(driver.cuMemAlloc(KiB))
        driver.cuEventRecord(event, other)
        driver.cuEventSynchronize(event)
        assert.equal(driver.cuEventQuery(event), true)
        const executable = instantiate(driver.cuStreamEndCapture(stream))
        assert.equal(driver.cuThreadExchangeStreamCaptureMode(before), CU_STREAM_CAPTURE_MODE_RELAXED)
        driver.cuGraphLaunch(executable, other)
        assert.deepEqual(read(ptr, KiB), new Uint8Array(KiB).fill(9))
      })

      it('know which streams are ordered with the legacy stream', () => {
        assert.equal(driver.cuStreamGetFlags(createStream()), CU_STREAM_NON_BLOCKING)
        assert.equal(driver.cuStreamGetFlags(createStream(0)), 0)
      })
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

      it('has a granularity of whole pages, and reserves many times the device', test => {
        if (lacks(test)) return
        assert.ok(granule >= 64 * KiB && Number.isInteger(Math.log2(granule)))
        const base = reserve(4 * TiB)
        assert.equal(base % granule, 0)
        const { freeBytes } = driver.cuMemGetInfo()
        reserve(TiB)
        assert.ok(freeBytes - driver.cuMemGetInfo().freeBytes < GiB)
      })

      it('serves memory mapped piece by piece as one range', test => {
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

      it('keeps the contents of a handle that is mapped elsewhere', test => {
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

      it('keeps a released handle while it is mapped, and then gives the memory back', test => {
        if (lacks(test)) return
        const bytes = Math.ceil((256 * MiB) / granule) * granule
        const base = reserve(bytes)
        const { freeBytes } = driver.cuMemGetInfo()
        const handle = driver.cuMemCreate(bytes, device, CU_MEM_HANDLE_TYPE_NONE)
        driver.cuMemMap(base, bytes, handle)
        driver.cuMemSetAccess(base, bytes, [device])
        driver.cuMemRelease(handle)
        assert.ok(freeBytes - driver.cuMemGetInfo().freeBytes >= bytes)
        driver.cuMemsetD8(base, 4, bytes)
        assert.equal(read(base + bytes - 1, 1)[0], 4)
        driver.cuMemUnmap(base, bytes)
        assert.ok(driver.cuMemGetInfo().freeBytes + bytes / 2 > freeBytes)
      })

      it('refuses sizes and addresses that are no multiples of the granularity', test => {
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

      it('refuses to map over a mapping, and to unmap half of one', test => {
        if (lacks(test)) return
        const base = reserve(4 * granule)
        map(base, 2 * granule)
        const handle = driver.cuMemCreate(granule, device, CU_MEM_HANDLE_TYPE_NONE)
        later(() => driver.cuMemRelease(handle))
        refuses(() => driver.cuMemMap(base + granule, granule, handle), 'cuMemMap')
        refuses(() => driver.cuMemUnmap(base, granule), 'cuMemUnmap')
        driver.cuMemsetD8(base, 1, 2 * granule)
        assert.equal(read(base + granule, 1)[0], 1)
      })

      it('refuses access to what is not mapped, and more memory than there is', test => {
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

      it('is exported as a new descriptor each time', test => {
        if (missing(test, attribute, 'memory shared as file descriptors')) return
        const handle = create(POSIX)
        const descriptors = [1, 2].map(() => exported(driver.cuMemExportToShareableHandle(handle, POSIX)))
        for (const descriptor of descriptors) assert.ok(Number.isInteger(descriptor) && descriptor > 2)
        assert.notEqual(descriptors[0], descriptors[1])
      })

      it('is not exported when it was not made for that', test => {
        if (missing(test, attribute, 'memory shared as file descriptors')) return
        const handle = create(CU_MEM_HANDLE_TYPE_NONE)
        refuses(() => driver.cuMemExportToShareableHandle(handle, POSIX), 'cuMemExportToShareableHandle')
      })
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

      it('reads a threshold back', test => {
        if (lacks(test)) return
        for (const bytes of [1000, 3 * GiB, Infinity, 0]) {
          driver.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, bytes)
          assert.equal(attribute(CU_MEMPOOL_ATTR_RELEASE_THRESHOLD), bytes)
        }
      })

      it('allows every kind of reuse, and each can be switched off', test => {
        if (lacks(test)) return
        for (const which of REUSE_ATTRIBUTES) {
          assert.equal(attribute(which), 1)
          driver.cuMemPoolSetAttribute(pool, which, 0)
          assert.equal(attribute(which), 0)
          driver.cuMemPoolSetAttribute(pool, which, 1)
          assert.equal(attribute(which), 1)
        }
      })

      it('is the current one of its device', test => {
        if (lacks(test)) return
        assert.equal(driver.cuDeviceGetMemPool(device), pool)
        refuses(() => driver.cuMemPoolDestroy(pool), 'cuMemPoolDestroy')
      })

      it('counts what is used and reserved, and takes steps of 32 MiB', test => {
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

      it('accepts nothing but 0 for a high-water mark, and then shows the current value', test => {
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

      it('trims only what the host has seen completed', test => {
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
        assert.equal(reserved() - before, 256 * MiB) // the threshold keeps it
        driver.cuMemPoolTrimTo(pool, TiB) // less is reserved than that
        assert.equal(reserved() - before, 256 * MiB)
        driver.cuMemPoolTrimTo(pool, 0)
        assert.equal(reserved(), before)
      })

      it('keeps what is live when trimmed', test => {
        if (lacks(test)) return
        const stream = createStream()
        const kept = driver.cuMemAllocAsync(8 * KiB, stream)
        later(() => driver.cuMemFreeAsync(kept, CU_STREAM_LEGACY_DEFAULT))
        const freed = driver.cuMemAllocAsync(8 * KiB, stream)
        driver.cuMemcpyHtoDAsync(kept, sequence(8 * KiB), stream)
        driver.cuMemFreeAsync(freed, stream)
        driver.cuStreamSynchronize(stream)
        driver.cuMemPoolTrimTo(pool, 1024)
        assert.deepEqual(read(kept, 8 * KiB), sequence(8 * KiB))
      })

      it('reuses memory in stream order without mixing contents', test => {
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

      it('refuses more than there is, and works on', test => {
        if (lacks(test)) return
        const stream = createStream()
        refuses(() => driver.cuMemAllocAsync(64 * TiB, stream), 'cuMemAllocAsync', RESULT.CUDA_ERROR_OUT_OF_MEMORY)
        const ptr = driver.cuMemAllocAsync(1, stream)
        driver.cuMemFreeAsync(ptr, stream)
      })
    })

    describe("driver pools of one's own", () => {
      const lacks = (test: TestContext) => missing(test, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 'memory pools')
      const get = (pool: number, which: number) => driver.cuMemPoolGetAttribute(pool, which)
      const accessOf = (pool: number) => driver.cuMemPoolGetAccess(pool, CU_MEM_LOCATION_TYPE_DEVICE, device)
      const { CUDA_ERROR_INVALID_VALUE, CUDA_ERROR_OUT_OF_MEMORY } = RESULT

      it('has attributes of its own, and counts what is taken from it', test => {
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
      })

      it('keeps to its limit, which is a multiple of 32 MiB', test => {
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

      it('serves cuMemAllocAsync while it is the current one, and hands back to the default one at its end', test => {
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

      it('lives on after its end, until its last allocation is freed', test => {
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

      it('is not made of properties that make no sense', test => {
        if (lacks(test)) return
        const wrong: Partial<MemPoolProperties>[] = [
          { allocationType: 0 },
          { locationType: 99 },
          { locationId: driver.cuDeviceGetCount() },
        ]
        for (const properties of wrong) refuses(() => createPool(properties), 'cuMemPoolCreate')
      })

      it('gives back by a trim what is free, and keeps what is live', test => {
        if (lacks(test)) return
        const stream = createStream()
        const pool = createPool()
        driver.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, Infinity)
        allocateFrom(pool, 8 * KiB, stream)
        const large = driver.cuMemAllocFromPoolAsync(256 * MiB, pool, stream)
        driver.cuMemFreeAsync(large, stream)
        driver.cuStreamSynchronize(stream)
        assert.ok(get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) >= 256 * MiB)
        driver.cuMemPoolTrimTo(pool, 0)
        assert.ok(get(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) <= 64 * MiB)
        assert.equal(get(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT), 8 * KiB)
      })

      it('is exported as a descriptor, and its blocks as 64 bytes, when made for that', test => {
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

      it('lies in host memory, for devices that are given access', test => {
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

      it('cannot be shared when it lies anywhere in the host, or is managed', test => {
        if (lacks(test)) return
        if (missing(test, CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED, 'host memory pools')) return
        const handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
        const locationType = CU_MEM_LOCATION_TYPE_HOST
        const allocationType = CU_MEM_ALLOCATION_TYPE_MANAGED
        refuses(() => createPool({ handleTypes, locationType }), 'cuMemPoolCreate', CUDA_ERROR_INVALID_VALUE)
        refuses(() => createPool({ handleTypes, allocationType }), 'cuMemPoolCreate')
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

      /** Calls that act on the other device, all done before it returns. */
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

      it('copies between them without access', test => {
        if (lacks(test)) return
        const stream = createStream()
        const [here, there, back] = [allocate(MiB), allocateOnPeer(MiB), allocate(MiB)]
        driver.cuMemcpyHtoDAsync(here, sequence(MiB), stream)
        driver.cuMemcpyPeerAsync(there, peerContext, here, context, MiB, stream)
        driver.cuMemcpyPeerAsync(back, context, there, peerContext, MiB, stream)
        driver.cuStreamSynchronize(stream)
        assert.deepEqual(read(back, MiB), sequence(MiB))
      })

      it("gives a context access to another one's memory, once", test => {
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

      it('gives both access to a mapping, and takes it away from one', test => {
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
        onPeer(() => driver.cuMemsetD8(base, 4, granule))
        assert.deepEqual(read(base, granule), new Uint8Array(granule).fill(4))
        driver.cuMemSetAccess(base, granule, [peer], CU_MEM_ACCESS_FLAGS_PROT_NONE)
        driver.cuMemsetD8(base, 5, granule)
        assert.deepEqual(read(base, granule), new Uint8Array(granule).fill(5))
      })

      it('gives the other one access to a pool, and takes it away', test => {
        if (lacksAccess(test)) return
        if (missing(test, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, 'memory pools')) return
        const pool = createPool()
        const access = () => driver.cuMemPoolGetAccess(pool, CU_MEM_LOCATION_TYPE_DEVICE, peer)
        const set = (flags: number) => driver.cuMemPoolSetAccess(pool, CU_MEM_LOCATION_TYPE_DEVICE, peer, flags)
        set(CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
        assert.equal(access(), CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
        const ptr = allocateFrom(pool, MiB, createStream())
        driver.cuCtxSynchronize()
        onPeer(() => driver.cuMemsetD8(ptr, 8, MiB))
        assert.deepEqual(read(ptr, MiB), new Uint8Array(MiB).fill(8))
        set(CU_MEM_ACCESS_FLAGS_PROT_NONE)
        assert.equal(access(), CU_MEM_ACCESS_FLAGS_PROT_NONE)
      })
    })
  })
}

/** Asserts that a driver refuses, under the name of that function and, where given, with that code. */
export function refuses(act: () => unknown, call: string, code?: number): void {
  assert.throws(act, (error: unknown) => {
    assert.ok(error instanceof CudaError, `a CudaError, not ${error}`)
    assert.equal(error.call, call)
    if (code !== undefined) assert.equal(error.code, code)
    return true
  })
}

/** Bytes that repeat only after 251, a prime, so that no shift of a power of two goes unnoticed. */
function sequence(bytes: number): Uint8Array {
  const values = new Uint8Array(bytes)
  for (let i = 0; i < bytes; i++) values[i] = (i * 7) % 251
  return values
}
