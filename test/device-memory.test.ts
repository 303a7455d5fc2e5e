// Memory for kernels on the simulated device: the host's view, refusals, and the integrity of the tables. One file,
// since both kinds share their kernels and most refusals.

import assert from 'node:assert/strict'
import { afterEach, beforeEach, describe, it } from 'node:test'
import { KiB, MiB } from '../src/core/base/bytes.js'
import { createDeviceArena, createDeviceHeap, createStreamArenas, type DeviceRegion } from '../src/entries/kernels.js'
import { SimulatedDriver } from '../src/entries/simulated.js'
import {
  CudaError,
  type Device,
  DeviceLostError,
  type DevicePointer,
  fallback,
  limited,
  openDevice,
} from '../src/index.js'
import { BITMAP_BYTES, bytesOfClass, CLASSES, DEVICE_HEAP, DEVICE_POOL } from '../src/kernel-memory/device-layout.js'
import { HeapTables } from '../src/kernel-memory/heap-tables.js'
import { takeAndGiveBack } from './device-memory.fixture.js'

let device: Device

beforeEach(() => {
  device = openDevice(new SimulatedDriver())
})
afterEach(() => device.close())

describe('a device arena', () => {
  it('hands out memory of its region in a row, and counts', async () => {
    const { take } = takeAndGiveBack(device)
    const region = device.createPool().allocate(64 * KiB)
    const arena = createDeviceArena(device, region)
    const first = take(arena, 10, 3)
    assert.deepEqual(
      first.map(address => address - first[0]),
      [0, 16, 32],
    )
    assert.ok(first[0] >= region.ptr && first[0] % 16 === 0)
    const { maxPoolBytes } = arena
    assert.deepEqual(await arena.stats(), { takenBytes: 48, peakBytes: 48, maxPoolBytes, failures: 0 })
    const rest = maxPoolBytes - 48
    assert.deepEqual(take(arena, rest + 16, 1), [0])
    assert.notEqual(take(arena, rest, 1)[0], 0)
    assert.deepEqual(take(arena, 1, 2), [0, 0])
    assert.deepEqual(arena.statsSync(), {
      takenBytes: maxPoolBytes,
      peakBytes: maxPoolBytes,
      maxPoolBytes,
      failures: 3,
    })
    arena.check()
    arena.reset()
    assert.equal(take(arena, 8, 1)[0], first[0])
    assert.deepEqual(arena.statsSync(), { takenBytes: 16, peakBytes: maxPoolBytes, maxPoolBytes, failures: 0 })
    arena.check()
  })

  it('leaves no event behind where the driver refuses to order what is read', () => {
    const driver = new SimulatedDriver()
    const own = openDevice(driver)
    const region = own.createPool().allocate(64 * KiB)
    createDeviceArena(own, region)
    driver.failCall({ call: 'cuStreamWaitEvent', code: 999 })
    assert.throws(() => createDeviceArena(own, region), { name: 'CudaError', call: 'cuStreamWaitEvent' })
    own.close()
    assert.equal(driver.calls.get('cuEventDestroy'), driver.calls.get('cuEventCreate'))
  })

  it('is reset in stream order', () => {
    const { take } = takeAndGiveBack(device)
    const arena = createDeviceArena(device, device.createPool().allocate(64 * KiB))
    take(arena, 100, 4)
    const driver = device.driver as SimulatedDriver
    const stream = device.createStream()
    const ticket = driver.holdOperation(stream.handle)
    arena.reset(stream)
    assert.equal(arena.statsSync().takenBytes, 448)
    driver.releaseThrough(stream.handle, ticket)
    stream.synchronize()
    assert.equal(arena.statsSync().takenBytes, 0)
  })

  it('grows in a growable buffer without moving', () => {
    const { take } = takeAndGiveBack(device)
    const region = device.createGrowableBuffer({ bytes: 2 * MiB, capacityBytes: 64 * MiB })
    const arena = createDeviceArena(device, region)
    const { ptr, maxPoolBytes } = arena
    const [first] = take(arena, maxPoolBytes, 1)
    assert.deepEqual(take(arena, 16, 1), [0])
    arena.grow(6 * MiB)
    assert.deepEqual([arena.ptr, region.byteLength, arena.maxPoolBytes], [ptr, 6 * MiB, maxPoolBytes + 4 * MiB])
    assert.equal(take(arena, 4 * MiB, 1)[0], first + Math.ceil(maxPoolBytes / 16) * 16)
    arena.check()
    arena.grow(6 * MiB) // nothing to do
    assert.equal(arena.statsSync().maxPoolBytes, arena.maxPoolBytes)
    assert.throws(() => arena.grow(65 * MiB), RangeError)
    for (const bytes of [0, -1, 0.5, Number.NaN]) {
      assert.throws(() => arena.grow(bytes), { name: 'RangeError', message: /^grow: bytes must be/ })
    }
  })
})

describe('a device heap', () => {
  it('hands out and takes back blocks of every size, and counts', async () => {
    const { allocate, free } = takeAndGiveBack(device)
    const region = device.createPool().allocate(4 * MiB)
    const heap = createDeviceHeap(device, region)
    heap.check()
    const held: number[] = []
    let liveBytes = 0
    for (let sizeClass = 0; sizeClass < CLASSES; sizeClass++) {
      const bytes = bytesOfClass(sizeClass)
      const blocks = allocate(heap, bytes - 1, 3)
      for (const block of blocks) {
        assert.ok(
          block >= region.ptr && block + bytes <= region.ptr + region.byteLength && block % 16 === 0,
          `${bytes}`,
        )
      }
      held.push(...blocks)
      liveBytes += 3 * bytes
    }
    held.push(...allocate(heap, 200 * KiB, 1))
    liveBytes += 256 * KiB
    assert.equal(new Set(held).size, held.length)
    heap.check()
    const stats = await heap.stats()
    assert.deepEqual([stats.liveBlocks, stats.liveBytes, stats.failures], [held.length, liveBytes, 0])
    free(heap, held)
    heap.check()
    const after = heap.statsSync()
    assert.deepEqual([after.liveBlocks, after.liveBytes, after.usedBytes], [0, 0, 0])
    assert.equal(after.peakUsedBytes, stats.usedBytes)
    heap.reset()
    assert.deepEqual([heap.statsSync().allocations, heap.statsSync().peakUsedBytes], [0, 0])
    heap.check()
  })

  it('counts and ignores wrong frees, and requests without room', () => {
    const { allocate, free } = takeAndGiveBack(device)
    const heap = createDeviceHeap(device, device.createPool().allocate(1 * MiB))
    const [block, other] = allocate(heap, 64, 2)
    free(heap, [block, block, 0])
    assert.equal(heap.statsSync().doubleFrees, 1)
    free(heap, [other + 8, heap.ptr, 4096, other + 64 * KiB * 100])
    assert.equal(heap.statsSync().invalidFrees, 4)
    const [run] = allocate(heap, 100 * KiB, 1)
    free(heap, [run + 64 * KiB, run, run])
    const { doubleFrees, invalidFrees, liveBlocks } = heap.statsSync()
    assert.deepEqual([doubleFrees, invalidFrees, liveBlocks], [2, 5, 1])
    assert.deepEqual(allocate(heap, 2 * MiB, 1), [0])
    const taken = allocate(heap, 8192, 200)
    const none = taken.filter(address => address === 0).length
    assert.ok(none > 50 && none < 200)
    assert.equal(heap.statsSync().failures, none + 1)
    heap.check()
    free(heap, [...taken, other])
    assert.equal(heap.statsSync().liveBlocks, 0)
    heap.check()
  })

  it('grows in a growable buffer without moving', () => {
    const { allocate, free } = takeAndGiveBack(device)
    const region = device.createGrowableBuffer({ bytes: 2 * MiB, capacityBytes: 32 * MiB })
    const heap = createDeviceHeap(device, region)
    const { ptr } = heap
    const held = [allocate(heap, 4000, 1)[0]]
    assert.deepEqual(allocate(heap, 3 * MiB, 1), [0])
    heap.grow(16 * MiB)
    assert.equal(heap.ptr, ptr)
    heap.check()
    held.push(...allocate(heap, 3 * MiB, 1))
    assert.ok(held.every(address => address !== 0))
    heap.check()
    free(heap, held)
    assert.equal(heap.statsSync().usedBytes, 0)
    heap.check()
  })

  it('notices when its tables are damaged', () => {
    const { allocate } = takeAndGiveBack(device)
    const region = device.createPool().allocate(1 * MiB)
    const heap = createDeviceHeap(device, region)
    const [block] = allocate(heap, 64, 3)
    const driver = device.driver
    const damages: readonly [address: number, expected: RegExp][] = [
      [heap.ptr + DEVICE_HEAP.idleCount, /number of idle superblocks/],
      [heap.ptr + DEVICE_HEAP.counts + 32 * CLASSES, /number of a set/],
      [heap.ptr + DEVICE_HEAP.byteLength, /free|blocks|superblock/],
      [heap.ptr + DEVICE_HEAP.base, /blocks begin behind/],
      [heap.ptr + HeapTables.wordAt(0) + 8, /bits are set/],
      [block - 1, /beyond the last block/],
      [heap.ptr + HeapTables.wordAt(1) + 8, /only blocks have a bit/],
      [block - BITMAP_BYTES - 1, /only blocks have a bit/],
    ]
    for (const [address, expected] of damages) {
      const before = new Uint8Array(1)
      driver.cuMemcpyDtoH(before, address)
      driver.cuMemsetD8Async(address, before[0] ^ 5, 1, 0)
      assert.throws(() => heap.check(), { message: expected })
      driver.cuMemsetD8Async(address, before[0], 1, 0)
      heap.check()
    }
  })
})

describe('arenas for streams', () => {
  it('are one for each, and go back to the pool', () => {
    const { take } = takeAndGiveBack(device)
    const pool = device.createPool()
    const arenas = createStreamArenas(device, { pool, bytes: 64 * KiB })
    const [a, b] = [device.createStream(), device.createStream()]
    assert.equal(arenas.of(a), arenas.of(a))
    assert.notEqual(arenas.of(a).ptr, arenas.of(b).ptr)
    a.synchronize()
    take(arenas.of(a), 32, 1)
    arenas.of(b).reset(b)
    assert.equal(arenas.of(a).statsSync().takenBytes, 32)
    assert.equal(pool.stats().liveBuffers, 2)
    arenas.close()
    arenas.close()
    assert.equal(pool.stats().liveBuffers, 0)
    assert.throws(() => arenas.of(a), { name: 'PoolError', message: /arenas are closed/ })
    for (const options of [null, {}, { pool: {}, bytes: 1 }, { pool, bytes: 0 }, { pool }]) {
      assert.throws(() => createStreamArenas(device, options as never), /createStreamArenas: (options|pool|bytes)/)
    }
    assert.throws(() => createStreamArenas(device, { pool, bytes: 1024, size: 5 } as never), {
      name: 'TypeError',
      message: "createStreamArenas: unknown option 'size'; the options are pool, bytes; did you mean bytes?",
    })
    using other = openDevice(new SimulatedDriver())
    assert.throws(() => createStreamArenas(device, { pool: limited(other.createPool(), 1 * MiB), bytes: 1024 }), {
      name: 'PoolError',
      message: 'createStreamArenas: the pool belongs to another device; use one of this',
    })
    using wrapped = createStreamArenas(device, { pool: fallback(device.createPool(), pool), bytes: 1024 })
    wrapped.of(a)
    const small = createStreamArenas(device, { pool, bytes: 256 })
    assert.throws(() => small.of(a), { name: 'RangeError', message: /must have 512 bytes at least, not 256/ })
    assert.equal(pool.stats().liveBuffers, 0)
  })
})

describe('memory for kernels', () => {
  const makers = { createDeviceArena, createDeviceHeap }

  for (const [name, make] of Object.entries(makers)) {
    it(`is refused by ${name} what it cannot be made of`, () => {
      const pool = device.createPool()
      const region = pool.allocate(4 * MiB)
      const create = (what: unknown, options?: unknown) => () => make(device, what as DeviceRegion, options as never)
      for (const what of [null, undefined, 5, {}, { ptr: 0.5, byteLength: 1 }, { ptr: 4096 }, 'text']) {
        assert.throws(create(what), {
          name: 'TypeError',
          message: new RegExp(`^${name}: region must be device memory`),
        })
      }
      const least = { name: 'RangeError', message: /the region must have \d+ bytes at least, not 256/ }
      assert.throws(create(pool.allocate(256)), least)
      assert.throws(create(region, { streams: 1 }), { name: 'TypeError', message: /unknown option 'streams'/ })
      assert.throws(create(region, { stream: {} }), { name: 'TypeError', message: /stream must be a Stream/ })
      const closed = device.createStream()
      closed.close()
      assert.throws(create(region, { stream: closed }), { name: 'PoolError', message: /stream is closed/ })
      using other = openDevice('simulated')
      const foreign = other.createPool().allocate(4 * MiB)
      assert.throws(create(foreign), { name: 'PoolError', message: /the region belongs to another device/ })
      const freed = pool.allocate(4 * MiB)
      freed.free()
      assert.throws(create(freed), { name: 'PoolError', message: /already freed/ })
      create(region)()
    })

    it(`is used no more when what ${name} made is closed, or its region freed`, async () => {
      const pool = device.createPool()
      for (const region of [pool.allocate(4 * MiB), pool.zeros(Uint32Array, MiB)]) {
        const made = make(device, region)
        assert.throws(() => made.grow(8 * MiB), { name: 'PoolError', message: /the region cannot grow/ })
        assert.throws(() => made.reset({} as never), { name: 'TypeError', message: /^reset: stream must be a Stream/ })
        made.close()
        made.close()
        assert.equal(made.closed, true)
        const closed = { name: 'PoolError', message: /memory for kernels is closed/ }
        assert.throws(() => made.ptr, closed)
        assert.throws(() => made.reset(), closed)
        assert.throws(() => made.statsSync(), closed)
        assert.throws(() => made.grow(1), closed)
        assert.throws(() => made.check(), closed)
        await assert.rejects(made.stats(), closed)
        const again = make(device, region)
        region.free()
        assert.throws(() => again.ptr, { name: 'PoolError', message: /already freed/ })
        assert.throws(() => again.statsSync(), { name: 'PoolError', message: /already freed/ })
        assert.match(`${again}`, /in a freed region/)
      }
    })
  }

  it('is refused while its pool sleeps, and so is a launch with a buffer there', async () => {
    const { take } = takeAndGiveBack(device)
    const pool = device.createPool()
    const [arena, heap] = [
      createDeviceArena(device, pool.allocate(64 * KiB)),
      createDeviceHeap(device, pool.allocate(64 * MiB)),
    ]
    const buffer = pool.allocate(64 * KiB)
    const array = pool.allocateArray(Uint32Array, 10)
    const growable = device.createGrowableBuffer({ bytes: 1 * MiB })
    const kernel = device.compileKernels('extern "C" __global__ void use(float *x) {}', { simulated: { use() {} } })
    const launch = (memory: DevicePointer) => kernel.kernel('use').launch({ grid: 1, block: 1 }, memory)
    await pool.sleep()
    await growable.sleep()
    const calls: [name: string, call: () => unknown][] = [
      ...[buffer, array, growable, arena, heap].map((memory): [string, () => unknown] => [
        'launch',
        () => launch(memory),
      ]),
      ['createDeviceArena', () => createDeviceArena(device, buffer)],
      ['createDeviceHeap', () => createDeviceHeap(device, buffer)],
      ['reset', () => arena.reset()],
      ['reset', () => heap.reset()],
      ['check', () => heap.check()],
      ['statsSync', () => arena.statsSync()],
    ]
    for (const [name, call] of calls) {
      const message = new RegExp(`^${name}: the (pool|buffer) is asleep; await its wake\\(\\) before it is used$`)
      assert.throws(call, { name: 'PoolError', message })
    }
    await assert.rejects(heap.stats(), { name: 'PoolError', message: /^stats: the pool is asleep/ })
    await pool.wake()
    await growable.wake()
    for (const memory of [buffer, array, growable]) launch(memory)
    assert.equal(take(arena, 16, 2).length, 2)
    heap.check()
    device.synchronize()
  })

  it('is made of a buffer of any pool', () => {
    const { allocate, take } = takeAndGiveBack(device)
    const [bytes, stream] = [2 * MiB, device.defaultStream]
    const regions: Record<string, DeviceRegion> = {
      caching: device.createPool().allocate(bytes),
      segments: device.createPool({ backing: 'segments' }).allocate(bytes),
      managed: device.createPool({ backing: 'managed' }).allocate(bytes),
      debug: device.createPool({ debug: true }).allocate(bytes),
      arena: device.createArenaPool({ bytes: 2 * bytes }).allocate(bytes),
      blocks: device.createBlockPool({ blockBytes: bytes, count: 1 }).allocate(bytes),
      plain: device.createPlainPool().allocate(bytes),
      driver: device.createDriverPool().allocate(bytes),
      limited: limited(device.createPool(), bytes).allocate(bytes),
      growable: device.createGrowableBuffer({ bytes, capacityBytes: 2 * bytes }),
      array: device.createPool().allocateArray(Float32Array, bytes / 4),
      shared: device.createInterprocessBuffer(bytes),
    }
    for (const [name, region] of Object.entries(regions)) {
      const heap = createDeviceHeap(device, region, { stream })
      const [block] = allocate(heap, 1000, 1)
      assert.ok(block > region.ptr && block < region.ptr + bytes, name)
      heap.check()
      const arena = createDeviceArena(device, region, { stream })
      assert.equal(take(arena, 1000, 1)[0], arena.base, name)
      arena.check()
    }
  })

  it('and its kernels are lost with the device, and every call names the first fault', async () => {
    const module = device.compileKernels('extern "C" __global__ void fault(int *x);', {
      simulated: { fault: ({ args, memory }) => memory.store(args.pointer(0), Uint8Array.of(1)) },
    })
    const kernel = module.kernel('fault')
    const heap = createDeviceHeap(device, device.createPool().allocate(1 * MiB))
    device.synchronize()
    kernel.launch({ grid: 1, block: 1 }, 64)
    const first = { name: 'CudaError', resultName: 'CUDA_ERROR_ILLEGAL_ADDRESS' }
    assert.throws(() => device.synchronize(), first)
    const lost = (error: unknown) =>
      error instanceof DeviceLostError && error.first.resultName === 'CUDA_ERROR_ILLEGAL_ADDRESS'
    const calls: readonly (() => unknown)[] = [
      () => kernel.launch({ grid: 1, block: 1 }, 64),
      () => kernel.launch({ grid: 1, block: 1, cooperative: true }, 64),
      () => kernel.launch({ grid: 1, block: 1, sharedBytes: 100_000 }, 64),
      () => kernel.occupancy(32),
      () => kernel.suggestShape(),
      () => kernel.resources(),
      () => module.kernel('fault'),
      () => heap.statsSync(),
      () => heap.reset(),
      () => heap.check(),
    ]
    for (const call of calls) assert.throws(call, lost, String(call))
    await assert.rejects(heap.stats(), lost)
    heap.close()
    module.close()
  })

  it('is not used again before the reads of its counters are done', async () => {
    const pool = device.createPool()
    const stream = device.createStream()
    const region = pool.allocate(4 * MiB, stream)
    const arena = createDeviceArena(device, region, { stream })
    const { ptr } = region
    const pending = arena.stats()
    region.free()
    assert.notEqual(pool.allocate(4 * MiB, stream).ptr, ptr)
    assert.equal((await pending).failures, 0)
  })

  it('can be made after any call of the driver was refused while it was made first', () => {
    const callsOf = ({ calls }: SimulatedDriver) => [...calls.values()].reduce((sum, count) => sum + count, 0)
    let refused = true
    for (let nth = 1; refused; nth++) {
      const driver = new SimulatedDriver()
      using other = openDevice(driver)
      const region = other.createPool().allocate(1 * MiB)
      const before = callsOf(driver)
      driver.failCall({ call: '*', nth, code: 999 })
      try {
        createDeviceHeap(other, region)
        refused = callsOf(driver) - before >= nth
      } catch (error) {
        assert.ok(error instanceof CudaError, `call ${nth}: ${error}`)
      }
      driver.clearFaults()
      const heap = createDeviceHeap(other, region)
      createDeviceArena(other, other.createPool().allocate(1 * MiB))
      assert.equal(heap.statsSync().liveBytes, 0)
      heap.check()
    }
  })

  it('has counters from the beginning, in whatever stream it is made', () => {
    const stream = device.createStream()
    const driver = device.driver as SimulatedDriver
    for (const make of Object.values(makers)) {
      const region = device.createPool().allocate(4 * MiB)
      device.synchronize()
      driver.holdOperation(stream.handle)
      assert.equal(make(device, region, { stream }).statsSync().failures, 0)
    }
  })

  it('lies behind the structure that the table describes', () => {
    const arena = createDeviceArena(device, device.createPool().allocate(1 * MiB))
    device.synchronize()
    const base = new BigUint64Array(1)
    device.driver.cuMemcpyDtoH(base, arena.ptr + DEVICE_POOL.base)
    assert.equal(Number(base[0]), arena.ptr + 256)
  })
})
