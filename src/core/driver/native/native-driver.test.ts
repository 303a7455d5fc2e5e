// The native driver over a stand-in for libcuda: refused numbers, and the layout of arguments and results.
// native-driver.gpu.test.ts tests libcuda itself.

import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { CudaError, DeviceLostError } from '../../base/errors.js'
import { CU_DEVICE_CPU, POOL_ATTRIBUTE, RESULT } from '../constants.js'
import { FUNCTION_NAMES } from '../table.js'
import { BASE, FakeLibrary } from './fake-library.fixture.js'
import type { DriverFunction } from './library.js'
import { NativeDriver } from './native-driver.js'

/** CU_MEM_HANDLE_TYPE_FABRIC, the only other handle type on Linux: a struct of 64 bytes. */
const FABRIC = 8

const PINNED_ON_3 = { allocationType: 1, handleTypes: 1, locationType: 2, locationId: 3, maxBytes: 2 ** 33 + 4 }

describe('the native driver', () => {
  test('looks a function up once, at its first call', () => {
    const library = new FakeLibrary({})
    const driver = new NativeDriver(library)
    assert.deepEqual(library.binds, [])
    driver.cuMemFree(256)
    driver.cuMemFree(512)
    assert.deepEqual(library.binds, ['cuMemFree'])
  })

  test('can look all functions up at once, and then looks none up in a call', () => {
    const library = new FakeLibrary({})
    const driver = new NativeDriver(library, true)
    assert.deepEqual(library.binds, FUNCTION_NAMES)
    driver.cuMemFree(256)
    assert.equal(library.binds.length, FUNCTION_NAMES.length)
  })

  test('throws for a function that the library does not have only when it is called', () => {
    const library = new FakeLibrary({})
    const bind = library.bind.bind(library)
    library.bind = name => {
      if (name === 'cuMemMap') throw new CudaError(name, RESULT.CUDA_ERROR_NOT_FOUND, 'CUDA_ERROR_NOT_FOUND', 'absent')
      return bind(name)
    }
    const driver = new NativeDriver(library, true)
    driver.cuMemFree(256)
    assert.throws(() => driver.cuMemMap(256, 256, 1), { name: 'CudaError', result: RESULT.CUDA_ERROR_NOT_FOUND })
  })

  test('knows no users of a device that NVML does not find', () => {
    assert.equal(new NativeDriver(new FakeLibrary({})).usersOf(0), null)
  })

  test('refuses numbers that C would change, before any call', () => {
    const library = new FakeLibrary({})
    const driver = new NativeDriver(library)
    const launch = (grid: [number, number, number], offsets: number[]) => () =>
      driver.cuLaunchKernel(1, { grid, block: [1, 1, 1], sharedBytes: 0 }, 0, { bytes: new Uint8Array(8), offsets })
    for (const [argument, call] of [
      ['bytes', () => driver.cuMemAlloc(1.5)],
      ['bytes', () => driver.cuMemAlloc(-1)],
      ['bytes', () => driver.cuMemAlloc(2 ** 53)],
      ['ptr', () => driver.cuMemFree(Number.NaN)],
      ['stream', () => driver.cuStreamQuery(Number.NaN)],
      ['ordinal', () => driver.cuDeviceGet(2 ** 32)],
      ['ordinal', () => driver.cuDeviceGet(0.5)],
      ['value', () => driver.cuMemsetD8Async(256, 256, 1, 0)],
      ['value', () => driver.cuMemsetD16Async(256, 65_536, 1, 0)],
      ['value', () => driver.cuMemsetD32Async(256, 2 ** 32, 1, 0)],
      ['value', () => driver.cuMemPoolSetAttribute(1, 4, Number.NEGATIVE_INFINITY)],
      ['value', () => driver.cuMemPoolSetAttribute(1, 2, Number.POSITIVE_INFINITY)],
      ['value', () => driver.cuMemPoolSetAttribute(1, 2, 2 ** 32)],
      ['peer', () => driver.cuDeviceCanAccessPeer(0, 2 ** 31)],
      ['peerContext', () => driver.cuCtxEnablePeerAccess(-1)],
      ['flags', () => driver.cuMemAllocManaged(256, -1)],
      ['device', () => driver.cuMemAdvise(256, 256, 1, 0.5)],
      ['bytes', () => driver.cuMemPrefetchAsync(256, -1, 0, 0)],
      ['ptr', () => driver.cuMemDiscardBatchAsync(Number.NaN, 256, 0)],
      ['ptr', () => driver.cuMemcpyBatchAsync([{ host: new Uint8Array(4), ptr: 0.5 }], 'toDevice', 8)],
      ['the number of copies', () => driver.cuMemcpyBatchAsync([], 'toHost', 8)],
      ['sourceContext', () => driver.cuMemcpyPeerAsync(256, 1, 512, Number.NaN, 4, 0)],
      ['pool', () => driver.cuDeviceSetMemPool(0, 0.5)],
      ['maxBytes', () => driver.cuMemPoolCreate({ ...PINNED_ON_3, maxBytes: Number.POSITIVE_INFINITY })],
      ['locationId', () => driver.cuMemPoolCreate({ ...PINNED_ON_3, locationId: 2 ** 31 })],
      ['locationId', () => driver.cuMemPoolSetAccess(1, 1, 0.5, 3)],
      ['locationType', () => driver.cuMemPoolGetAccess(1, Number.NaN, 0)],
      ['handleTypes', () => driver.cuMemCreate(256, 0, -1)],
      ['device', () => driver.cuMemSetAccess(256, 256, [0, 1.5])],
      ['flags', () => driver.cuMemSetAccess(256, 256, [0], -1)],
      ['devices', () => driver.cuMemSetAccess(256, 256, new Array(129).fill(0))],
      ['descriptor', () => driver.cuMemImportFromShareableHandle(-1, 1)],
      ['descriptor', () => driver.cuMemPoolImportFromShareableHandle(2 ** 31, 1)],
      ['handleType', () => driver.cuMemExportToShareableHandle(1, FABRIC)],
      ['handleType', () => driver.cuMemImportFromShareableHandle(3, FABRIC)],
      ['handleType', () => driver.cuMemPoolExportToShareableHandle(1, FABRIC)],
      ['handleType', () => driver.cuMemPoolImportFromShareableHandle(3, FABRIC)],
      ['exported', () => driver.cuMemPoolImportPointer(1, new Uint8Array(63))],
      ['grid y', launch([1, -1, 1], [0])],
      ['kernel argument 1', launch([1, 1, 1], [0, 8])],
    ] as const) {
      assert.throws(call, (error: Error) => error instanceof RangeError && error.message.includes(argument), argument)
    }
    for (const [argument, call] of [
      ['bytes', () => driver.cuMemAlloc('5' as never)],
      ['source', () => driver.cuMemcpyHtoD(256, [1, 2] as never)],
      ['target', () => driver.cuMemcpyDtoH(new ArrayBuffer(8) as never, 256)],
      ['image', () => driver.cuModuleLoadData(7 as never)],
      ['name', () => driver.cuModuleGetFunction(1, 7 as never)],
      ['host', () => driver.cuMemHostGetDevicePointer(256 as never)],
      ['allocationType', () => driver.cuMemPoolCreate({} as never)],
      ['handleTypes', () => driver.cuMemCreate(256, 0, undefined as never)],
      ['devices', () => driver.cuMemSetAccess(256, 256, 0 as never)],
      ['exported', () => driver.cuMemPoolImportPointer(1, 'exported' as never)],
    ] as const) {
      assert.throws(call, (error: Error) => error instanceof TypeError && error.message.includes(argument), argument)
    }
    assert.deepEqual(library.binds, [])
  })

  test('returns results above 2^32, and Infinity for no limit', () => {
    let threshold = 2n ** 64n - 1n
    const library: FakeLibrary = new FakeLibrary({
      cuMemAlloc: out => library.write(out, 0x7fab_cdef_0100n),
      cuMemGetInfo: (free, total) => library.write(free, 139_000_000_001n) + library.write(total, 150_000_000_000n),
      cuMemCreate: out => library.write(out, 2n ** 53n),
      cuMemPoolGetAttribute: (_pool, _attribute, out) => library.write(out, threshold),
      cuMemPoolSetAttribute: (_pool, _attribute, value) => {
        threshold = library.read(value)
        return RESULT.CUDA_SUCCESS
      },
    })
    const driver = new NativeDriver(library)
    const { CU_MEMPOOL_ATTR_RELEASE_THRESHOLD: attribute } = POOL_ATTRIBUTE
    assert.equal(driver.cuMemAlloc(256), 0x7fab_cdef_0100)
    assert.deepEqual(driver.cuMemGetInfo(), { freeBytes: 139_000_000_001, totalBytes: 150_000_000_000 })
    assert.throws(() => driver.cuMemCreate(256, 0, 0), /broken promise.*2\^53/)
    assert.equal(driver.cuMemPoolGetAttribute(1, attribute), Number.POSITIVE_INFINITY)
    driver.cuMemPoolSetAttribute(1, attribute, 2 ** 40 + 5)
    assert.equal(threshold, 2n ** 40n + 5n)
    assert.equal(driver.cuMemPoolGetAttribute(1, attribute), 2 ** 40 + 5)
    driver.cuMemPoolSetAttribute(1, attribute, Number.POSITIVE_INFINITY)
    assert.equal(threshold, 2n ** 64n - 1n)
  })

  test('lays out structs as C does', () => {
    let seen: number[] = []
    let asked = -1
    const library: FakeLibrary = new FakeLibrary({
      cuMemPoolCreate: (out, properties) => {
        seen = library.ints(properties, 22)
        return library.write(out, 0x7000_0000_0100n)
      },
      cuMemCreate: (out, _bytes, properties) => {
        seen = library.ints(properties, 8)
        return library.write(out, 5n)
      },
      cuMemGetAllocationGranularity: (out, properties, option) => {
        seen = library.ints(properties, 8)
        asked = option as number
        return library.write(out, 4096n)
      },
      cuMemSetAccess: (_ptr, _bytes, access, count) => {
        seen = library.ints(access, 3 * (count as number))
        return RESULT.CUDA_SUCCESS
      },
      cuMemPoolSetAccess: (_pool, access, count) => {
        seen = library.ints(access, 3 * (count as number))
        return RESULT.CUDA_SUCCESS
      },
      cuMemPoolGetAccess: (out, _pool, location) => {
        seen = library.ints(location, 2)
        return library.writeInt(out, 3)
      },
    })
    const driver = new NativeDriver(library)
    assert.equal(driver.cuMemPoolCreate(PINNED_ON_3), 0x7000_0000_0100)
    assert.deepEqual(seen, [1, 1, 2, 3, 0, 0, 4, 2, ...new Array(14).fill(0)])
    assert.equal(driver.cuMemCreate(256, 7, 1), 5)
    assert.deepEqual(seen, [1, 1, 1, 7, 0, 0, 0, 0])
    assert.equal(driver.cuMemCreate(256, 7, 9, true), 5)
    assert.deepEqual(seen, [1, 9, 1, 7, 0, 0, 256, 0], 'byte 25 is gpuDirectRDMACapable')
    assert.equal(driver.cuMemCreate(256, 7, 1), 5)
    assert.deepEqual(seen, [1, 1, 1, 7, 0, 0, 0, 0])
    assert.equal(driver.cuMemGetAllocationGranularity(6), 4096)
    assert.deepEqual(seen, [1, 0, 1, 6, 0, 0, 0, 0], 'a query of the granularity asks for no export')
    assert.equal(asked, 0)
    assert.equal(driver.cuMemGetAllocationGranularity(6, 1, 9), 4096)
    assert.deepEqual([...seen, asked], [1, 9, 1, 6, 0, 0, 0, 0, 1])
    driver.cuMemPoolSetAccess(1, 3, -1, 1)
    assert.deepEqual(seen, [3, -1, 1])
    driver.cuMemSetAccess(256, 256, [4, 0, 9])
    assert.deepEqual(seen, [1, 4, 3, 1, 0, 3, 1, 9, 3])
    driver.cuMemSetAccess(256, 256, [4, 0], 0)
    assert.deepEqual(seen, [1, 4, 0, 1, 0, 0])
    driver.cuMemSetAccess(
      256,
      256,
      Array.from({ length: 128 }, (_, i) => i),
    )
    assert.deepEqual(seen.slice(-3), [1, 127, 3])
    assert.equal(driver.cuMemPoolGetAccess(1, 2, 8), 3)
    assert.deepEqual(seen, [2, 8])
    assert.equal(driver.cuMemPoolCreate({ ...PINNED_ON_3, maxBytes: 0 }), 0x7000_0000_0100)
    assert.deepEqual(seen, [1, 1, 2, 3, ...new Array(18).fill(0)])
  })

  test('passes managed memory and its places', () => {
    const seen: unknown[] = []
    const library: FakeLibrary = new FakeLibrary({
      cuMemAdvise: (...args) => {
        seen.push(args)
        return RESULT.CUDA_SUCCESS
      },
      cuMemPrefetchAsync: (...args) => {
        seen.push(args)
        return RESULT.CUDA_SUCCESS
      },
      cuMemDiscardBatchAsync: (addresses, sizes, ...rest) => {
        seen.push([library.read(addresses), library.read(sizes), ...rest])
        return RESULT.CUDA_SUCCESS
      },
    })
    const driver = new NativeDriver(library)
    driver.cuMemAdvise(2 ** 45, 4096, 3, CU_DEVICE_CPU)
    driver.cuMemPrefetchAsync(2 ** 45, 4096, 2, 77)
    driver.cuMemDiscardBatchAsync(2 ** 45 + 4096, 2 ** 33, 77)
    assert.deepEqual(seen, [
      [2 ** 45, 4096, 3, -1],
      [2 ** 45, 4096, 2, 77],
      [2n ** 45n + 4096n, 2n ** 33n, 1, 0, 77],
    ])
  })

  test('passes the targets, sources, sizes and order of a batch of copies', () => {
    const seen: unknown[] = []
    const library: FakeLibrary = new FakeLibrary({
      cuMemcpyBatchAsync: (targets, sources, sizes, count, attributes, first, sets, _failed, stream) => {
        const lists = [targets, sources, sizes].map(list =>
          Array.from({ length: count as number }, (_, i) => library.read((list as number) + 8 * i)),
        )
        seen.push([...lists, library.ints(attributes, 6), library.read(first), sets, stream])
        return RESULT.CUDA_SUCCESS
      },
    })
    const driver = new NativeDriver(library)
    const copies = [
      { host: new Uint8Array(4096), ptr: 2 ** 45 },
      { host: new Uint16Array(8), ptr: 2 ** 40 + 512 },
    ]
    driver.cuMemcpyBatchAsync(copies, 'toDevice', 77)
    driver.cuMemcpyBatchAsync(copies, 'toHost', 77)
    const [devices, hosts, sizes] = [
      [2n ** 45n, 2n ** 40n + 512n],
      [BigInt(BASE), BigInt(BASE)],
      [4096n, 16n],
    ]
    assert.deepEqual(seen, [
      [devices, hosts, sizes, [1, 0, 0, 0, 0, 0], 0n, 1, 77],
      [hosts, devices, sizes, [1, 0, 0, 0, 0, 0], 0n, 1, 77],
    ])
  })

  test('reads a float, a uuid, and two C ints with their signs', () => {
    const library: FakeLibrary = new FakeLibrary({
      cuEventElapsedTime: (out, start, end) => {
        library.memory.setFloat32((out as number) - BASE, Number(end) - Number(start) - 0.5, true)
        return RESULT.CUDA_SUCCESS
      },
      cuDeviceGetUuid: (out, device) => {
        for (let i = 0; i < 16; i++) library.memory.setUint8((out as number) - BASE + i, 16 * Number(device) + i)
        return RESULT.CUDA_SUCCESS
      },
      cuCtxGetStreamPriorityRange: (least, greatest) => library.writeInt(least, 0) + library.writeInt(greatest, -5),
      cuStreamGetPriority: (_stream, out) => library.writeInt(out, -3),
    })
    const driver = new NativeDriver(library)
    driver.cuMemAlloc(256)
    assert.equal(driver.cuEventElapsedTime(3, 5), 1.5)
    const uuid = driver.cuDeviceGetUuid(2)
    assert.deepEqual(
      uuid,
      Uint8Array.from({ length: 16 }, (_, i) => 32 + i),
    )
    driver.cuDeviceGetUuid(0)
    assert.equal(uuid[0], 32, 'a uuid is a copy')
    assert.deepEqual(driver.cuCtxGetStreamPriorityRange(), { least: 0, greatest: -5 })
    assert.equal(driver.cuStreamGetPriority(7), -3)
    assert.throws(() => driver.cuStreamCreateWithPriority(1, 0.5), /priority/)
  })

  test('reads a C int without the bytes that were there before', () => {
    const library: FakeLibrary = new FakeLibrary({
      cuMemAlloc: out => library.write(out, 2n ** 53n - 1n),
      cuMemPoolGetAttribute: (_pool, _attribute, out) => library.writeInt(out, 1),
      cuDeviceCanAccessPeer: (out, device, peer) => library.writeInt(out, device === peer ? 0 : 1),
      cuMemExportToShareableHandle: out => library.writeInt(out, 17),
      cuMemPoolExportToShareableHandle: out => library.writeInt(out, 18),
    })
    const driver = new NativeDriver(library)
    const calls = [
      () => driver.cuMemPoolGetAttribute(1, POOL_ATTRIBUTE.CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC),
      () => driver.cuDeviceCanAccessPeer(0, 1),
      () => driver.cuDeviceCanAccessPeer(1, 1),
      () => driver.cuMemExportToShareableHandle(5, 1),
      () => driver.cuMemPoolExportToShareableHandle(5, 1),
    ]
    const results = calls.map(call => {
      driver.cuMemAlloc(256)
      return call()
    })
    assert.deepEqual(results, [1, true, false, 17, 18])
  })

  test('passes descriptors by value, and exported bytes unchanged', () => {
    const exported = Uint8Array.from({ length: 64 }, (_, i) => 255 - i)
    const seen: unknown[] = []
    const library: FakeLibrary = new FakeLibrary({
      cuMemImportFromShareableHandle: (out, ...rest) => seen.push(rest) && library.write(out, 21n),
      cuMemPoolImportFromShareableHandle: (out, ...rest) => seen.push(rest) && library.write(out, 22n),
      cuMemPoolExportPointer: (out, ptr) => {
        seen.push(ptr)
        for (const [i, byte] of exported.entries()) library.memory.setUint8((out as number) - BASE + i, byte)
        return RESULT.CUDA_SUCCESS
      },
      cuMemPoolImportPointer: (out, pool, data) => {
        seen.push(
          pool,
          Uint8Array.from(exported, (_, i) => library.memory.getUint8((data as number) - BASE + i)),
        )
        return library.write(out, 0x7f00_0000_0200n)
      },
    })
    const driver = new NativeDriver(library)
    assert.equal(driver.cuMemImportFromShareableHandle(17, 1), 21)
    assert.equal(driver.cuMemPoolImportFromShareableHandle(0, 1), 22)
    const bytes = driver.cuMemPoolExportPointer(768)
    assert.deepEqual(bytes, exported)
    exported.reverse()
    driver.cuMemPoolExportPointer(1024)
    assert.notDeepEqual(bytes, exported, 'an export is a copy')
    assert.equal(driver.cuMemPoolImportPointer(22, bytes), 0x7f00_0000_0200)
    assert.deepEqual(seen, [[17, 1], [0, 1, 0], 768, 1024, 22, bytes])
  })

  test('passes kernel arguments as an array of their addresses', () => {
    const seen: bigint[] = []
    const library: FakeLibrary = new FakeLibrary({
      cuLaunchKernel: (...args) => {
        const pointers = args[9] as number
        for (let i = 0; i < 2; i++) seen.push(library.read(Number(library.read(pointers + 8 * i))))
        return RESULT.CUDA_SUCCESS
      },
    })
    const bytes = new Uint8Array(new BigUint64Array([0x1111n, 0x2222n]).buffer)
    const shape = { grid: [1, 1, 1], block: [1, 1, 1], sharedBytes: 0 } as const
    new NativeDriver(library).cuLaunchKernel(1, shape, 0, { bytes, offsets: [8, 0] })
    assert.deepEqual(seen, [0x2222n, 0x1111n])
  })

  test('passes shapes, attributes and occupancy in the order of the prototypes', () => {
    const calls: (readonly unknown[])[] = []
    const noted =
      (results: (args: readonly unknown[]) => void = () => {}): DriverFunction =>
      (...args) => {
        calls.push(args)
        results(args)
        return RESULT.CUDA_SUCCESS
      }
    const library: FakeLibrary = new FakeLibrary({
      cuLaunchKernel: noted(),
      cuLaunchCooperativeKernel: noted(),
      cuFuncGetAttribute: noted(([out]) => library.writeInt(out, 12)),
      cuFuncSetAttribute: noted(),
      cuOccupancyMaxActiveBlocksPerMultiprocessor: noted(([out]) => library.writeInt(out, 8)),
      cuOccupancyMaxPotentialBlockSize: noted(([blocks, threads]) => {
        library.writeInt(blocks, 264)
        library.writeInt(threads, 1024)
      }),
    })
    const driver = new NativeDriver(library)
    const shape = { grid: [2, 3, 4], block: [5, 6, 7], sharedBytes: 8 } as const
    driver.cuLaunchKernel(1, shape, 9, { bytes: new Uint8Array(8), offsets: [0] })
    driver.cuLaunchCooperativeKernel(1, shape, 9, { bytes: new Uint8Array(8), offsets: [0] })
    const [plain, cooperative] = calls.splice(0)
    assert.deepEqual(plain.slice(0, 9), [1, 2, 3, 4, 5, 6, 7, 8, 9])
    assert.deepEqual(cooperative, plain.slice(0, 10), 'without the last one')
    assert.equal(driver.cuFuncGetAttribute(4, 1), 12)
    driver.cuFuncSetAttribute(1, 8, 65_536)
    assert.equal(driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(1, 256, 1024), 8)
    assert.deepEqual(driver.cuOccupancyMaxPotentialBlockSize(1, 1024), { blocks: 264, blockThreads: 1024 })
    const addresses = (call: readonly unknown[]) => call.map(each => ((each as number) >= BASE ? 'out' : each))
    assert.deepEqual(calls.map(addresses), [
      ['out', 4, 1],
      [1, 8, 65_536],
      ['out', 1, 256, 1024],
      ['out', 'out', 1, 0, 1024, 0],
    ])
  })

  test('ends PTX with a zero byte and reports the compiler log', () => {
    const images: number[][] = []
    const library: FakeLibrary = new FakeLibrary({
      cuModuleLoadData: (_out, image, _count, _options, values) => {
        images.push([...(image as Uint8Array)])
        const log = Number(library.read(values)) - BASE
        assert.equal(library.memory.getUint8(log), 0, 'the log of the load before should be gone')
        assert.equal(library.read((values as number) + 8), 8192n, 'the size of the log should be set anew')
        library.write((values as number) + 8, 3n)
        for (const [i, letter] of [...Buffer.from('bad\0')].entries()) library.memory.setUint8(log + i, letter)
        return RESULT.CUDA_ERROR_INVALID_PTX
      },
    })
    const driver = new NativeDriver(library)
    for (const image of ['AB', new Uint8Array([67])]) {
      assert.throws(
        () => driver.cuModuleLoadData(image),
        (error: Error) => error instanceof CudaError && error.result === 218 && error.message.endsWith(': bad'),
      )
    }
    assert.deepEqual(images, [
      [65, 66, 0],
      [67, 0],
    ])
  })

  test('returns false from a query that is not ready, and throws for other errors', () => {
    let code: number = RESULT.CUDA_ERROR_NOT_READY
    const driver = new NativeDriver(new FakeLibrary({ cuEventQuery: () => code, cuStreamQuery: () => code }))
    assert.equal(driver.cuEventQuery(8), false)
    assert.equal(driver.cuStreamQuery(8), false)
    code = RESULT.CUDA_SUCCESS
    assert.equal(driver.cuEventQuery(8), true)
    assert.equal(driver.cuStreamQuery(8), true)
    code = RESULT.CUDA_ERROR_INVALID_HANDLE
    assert.throws(() => driver.cuEventQuery(8), CudaError)
    assert.throws(() => driver.cuStreamQuery(8), CudaError)
  })

  test('copies memory of a pool in host memory by the calls that can, if the driver knows each pointer', () => {
    const [HOST, DEVICE, UNKNOWN] = [1 << 12, 2 << 12, 3 << 12]
    const kinds = new Map<unknown, number>([
      [HOST, 1],
      [DEVICE, 2],
    ])
    const made: unknown[][] = []
    const noted =
      (name: string): DriverFunction =>
      (...args) => {
        made.push([name, ...args])
        return RESULT.CUDA_SUCCESS
      }
    const refuse = () => RESULT.CUDA_ERROR_INVALID_VALUE
    const library: FakeLibrary = new FakeLibrary({
      cuMemcpyHtoD: refuse,
      cuMemcpyDtoH: refuse,
      cuMemcpyDtoD: refuse,
      cuMemcpyHtoDAsync: refuse,
      cuMemcpyDtoHAsync: refuse,
      cuMemcpyDtoDAsync: refuse,
      cuMemcpy: noted('cuMemcpy'),
      cuMemcpyAsync: noted('cuMemcpyAsync'),
      cuPointerGetAttribute: (out, _attribute, ptr) =>
        kinds.has(ptr) ? library.writeInt(out, kinds.get(ptr)!) : RESULT.CUDA_ERROR_INVALID_VALUE,
    })
    const driver = new NativeDriver(library)
    const view = new Uint8Array(8)
    driver.cuMemcpyHtoD(HOST, view)
    driver.cuMemcpyDtoH(view, HOST)
    driver.cuMemcpyDtoD(HOST, DEVICE, 5)
    driver.cuMemcpyHtoDAsync(HOST, view, 9)
    driver.cuMemcpyDtoHAsync(view, HOST, 9)
    driver.cuMemcpyDtoDAsync(DEVICE, HOST, 5, 9)
    assert.deepEqual(made, [
      ['cuMemcpy', HOST, BASE, 8],
      ['cuMemcpy', BASE, HOST, 8],
      ['cuMemcpy', HOST, DEVICE, 5],
      ['cuMemcpyAsync', HOST, BASE, 8, 9],
      ['cuMemcpyAsync', BASE, HOST, 8, 9],
      ['cuMemcpyAsync', DEVICE, HOST, 5, 9],
    ])
    for (const [call, copy] of [
      ['cuMemcpyHtoD', () => driver.cuMemcpyHtoD(DEVICE, view)],
      ['cuMemcpyDtoHAsync', () => driver.cuMemcpyDtoHAsync(view, UNKNOWN, 9)],
      ['cuMemcpyDtoD', () => driver.cuMemcpyDtoD(HOST, UNKNOWN, 5)],
      ['cuMemcpyDtoDAsync', () => driver.cuMemcpyDtoDAsync(DEVICE, DEVICE, 5, 9)],
    ] as const) {
      assert.throws(copy, { name: 'CudaError', call, result: RESULT.CUDA_ERROR_INVALID_VALUE })
    }
    assert.equal(made.length, 6, 'no other copy should have been tried')
  })

  test('describes a refusal with the texts of the driver', () => {
    const library: FakeLibrary = new FakeLibrary({
      cuMemAlloc: () => RESULT.CUDA_ERROR_OUT_OF_MEMORY,
      cuGetErrorName: (code, out) => library.write(out, BigInt(code as number) + 1000n),
      cuGetErrorString: (code, out) => library.write(out, BigInt(code as number) + 2000n),
    })
    assert.throws(
      () => new NativeDriver(library).cuMemAlloc(256),
      (error: CudaError) =>
        error.result === 2 &&
        error.message === 'cuMemAlloc failed: text at 1002 (2): text at 2002' &&
        error.call !== '',
    )
  })

  test('after a fault all calls on its context fail, and none on another context', () => {
    const fault = () => RESULT.CUDA_ERROR_ILLEGAL_ADDRESS
    const library = new FakeLibrary({ cuStreamSynchronize: fault, cuDevicePrimaryCtxRetain: fault })
    const driver = new NativeDriver(library)
    driver.cuCtxSetCurrent(1)
    assert.throws(() => driver.cuStreamSynchronize(0), CudaError)
    for (const call of [
      () => driver.cuMemFree(256),
      () => driver.cuEventQuery(8),
      () => driver.cuStreamSynchronize(0),
    ]) {
      assert.throws(
        call,
        (error: Error) => error instanceof DeviceLostError && error.first.call === 'cuStreamSynchronize',
      )
    }
    assert.ok(!library.binds.includes('cuMemFree'), 'a lost device should not be touched')
    assert.equal(driver.cuDeviceGetCount(), 0)
    driver.cuCtxSetCurrent(2)
    driver.cuMemFree(256)
    assert.throws(() => driver.cuDevicePrimaryCtxRetain(0), CudaError)
    driver.cuMemFree(256)
  })

  test('counts calls after countCalls', () => {
    const driver = new NativeDriver(new FakeLibrary({ cuEventQuery: () => RESULT.CUDA_ERROR_NOT_READY }))
    driver.cuMemFree(256)
    assert.equal(driver.calls.size, 0)
    driver.countCalls()
    driver.cuMemFree(256)
    driver.cuMemFree(256)
    driver.cuEventQuery(8)
    assert.deepEqual(Object.fromEntries(driver.calls), { cuMemFree: 2, cuEventQuery: 1 })
  })
})
