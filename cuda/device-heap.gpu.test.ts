// The allocators of kernels on a real GPU: every thread stamps its block, a second kernel verifies, a third frees;
// blocks handed out twice; exhaustion; bad frees; growth and reset. Without a GPU it fails.

import assert from 'node:assert/strict'
import { after, describe, it } from 'node:test'
import { controlPtx } from '../src/core/kernel/device-code.js'
import type { KernelArgument } from '../src/core/kernel/kernel.js'
import { Module } from '../src/core/kernel/module.js'
import { TestGpu } from '../src/core/order/gpu.fixture.js'
import type { Stream } from '../src/core/order/stream.js'
import {
  bumpStats,
  bytesOfClass,
  DEVICE_HEAP,
  DEVICE_POOL,
  type HeapGeometry,
  heapGeometry,
  SUPERBLOCK_BYTES,
  superblocksWithin,
} from '../src/kernel-memory/device-layout.js'
import { checkHeap } from '../src/kernel-memory/heap-check.js'
import { type HeapStats, heapStats, statsBytes } from '../src/kernel-memory/heap-stats.js'
import { NO_TRIALS, trialsPtx } from './compile-ptx.js'

const REGION_BYTES = 256 * 2 ** 20
const MOST_BLOCKS = 2 ** 19
const THREADS = 256

const gpu = new TestGpu()
const { driver } = gpu
const control = new Module(gpu.context, gpu.defaultStream, controlPtx())
const ptx = trialsPtx()
const skip = ptx === null && NO_TRIALS
const trials = ptx === null ? null : new Module(gpu.context, gpu.defaultStream, ptx)
const allocated = driver.cuMemAlloc(REGION_BYTES + SUPERBLOCK_BYTES)
/** at a multiple of 64 KiB */
const region = Math.ceil(allocated / SUPERBLOCK_BYTES) * SUPERBLOCK_BYTES
const blocks = driver.cuMemAlloc(8 * MOST_BLOCKS)
const marks = driver.cuMemAlloc(REGION_BYTES / 4)
const faults = driver.cuMemAlloc(4)
after(() => {
  gpu.context.activate()
  for (const ptr of [allocated, blocks, marks, faults]) driver.cuMemFree(ptr)
  control.close()
  trials?.close()
  gpu.close()
})

function launch(module: Module, name: string, threads: number, ...args: readonly KernelArgument[]): void {
  module.kernel(name).launch({ grid: Math.ceil(threads / THREADS), block: Math.min(threads, THREADS) }, ...args)
}

const run = (name: string, threads: number, ...args: readonly KernelArgument[]) =>
  launch(trials!, name, threads, ...args)

/** A fresh heap over `bytes` of the region; `mappedBytes` of them are mapped. */
function makeHeap(bytes = REGION_BYTES, mappedBytes = bytes): HeapGeometry {
  const geometry = heapGeometry(bytes)
  const { superblocksAt, reserved, slotMask } = geometry
  const limit = superblocksWithin(geometry, mappedBytes)
  launch(control, 'heap_initialise', 32 * THREADS, region, region + superblocksAt, reserved, limit, slotMask)
  driver.cuMemsetD8Async(faults, 0, 4, 0)
  return geometry
}

function copyOf(ptr: number, bytes: number): Uint8Array {
  driver.cuCtxSynchronize()
  const copy = new Uint8Array(bytes)
  driver.cuMemcpyDtoH(copy, ptr)
  return copy
}

/** The counters of the heap at `ptr` with room for `bytes`. */
const statsOf = (ptr: number, bytes: number) => heapStats(copyOf(ptr, statsBytes(heapGeometry(bytes).reserved)))
const stats = () => statsOf(region, REGION_BYTES)

function expectEmpty(found: HeapStats): void {
  const { liveBlocks, liveBytes, usedBytes, doubleFrees, invalidFrees } = found
  assert.deepEqual([liveBlocks, liveBytes, usedBytes, doubleFrees, invalidFrees], [0, 0, 0, 0, 0])
  assert.deepEqual(copyOf(faults, 4), new Uint8Array(4), 'a block was not what its thread had written')
}

const pointers = (count: number) => new BigUint64Array(copyOf(blocks, 8 * count).buffer)

describe('the heap of kernels on a GPU', { skip }, () => {
  it('take, stamp, verify, free: equal and mixed sizes, own blocks and others’', () => {
    makeHeap()
    for (const [least, most, shape] of [
      [16, 16, 0],
      [64, 64, 0],
      [200, 200, 0],
      [16, 2048, 0],
      [16, 4096, 1],
      [5000, 300_000, 0],
    ]) {
      const threads = most > 4096 ? 512 : 65_536
      for (const stride of [1, 40_503]) {
        const shapeOf = [threads, least, most, shape, 7] as const
        run('heap_take', threads, region, blocks, ...shapeOf)
        run('stamp', threads, blocks, ...shapeOf)
        run('verify', threads, blocks, ...shapeOf, faults)
        const live = stats()
        assert.deepEqual([live.liveBlocks, live.failures], [threads, 0], `${least} to ${most}`)
        assert.ok(live.liveBytes >= threads * least && live.liveBytes <= live.usedBytes)
        run('heap_free', threads, region, blocks, threads, stride)
        expectEmpty(stats())
      }
    }
  })

  it('blocks are aligned, and no two overlap', () => {
    makeHeap()
    const threads = 4096
    for (const bytes of [16, 48, 64, 256, 1000, 4096]) {
      run('heap_take', threads, region, blocks, threads, bytes, bytes, 0, 0)
      const sorted = [...pointers(threads)].map(Number).sort((a, b) => a - b)
      const alignment = (bytes & (bytes - 1)) === 0 ? bytes : 16
      assert.ok(
        sorted.every((ptr, index) => ptr % alignment === 0 && (index === 0 || ptr - sorted[index - 1] >= bytes)),
      )
      run('heap_free', threads, region, blocks, threads, 1)
    }
    expectEmpty(stats())
  })

  it('churn in one kernel, watched by a detector of memory handed out twice, also where the heap is too small', () => {
    driver.cuMemsetD8Async(marks, 0, REGION_BYTES / 4, 0)
    for (const bytes of [REGION_BYTES, 8 * 2 ** 20]) {
      makeHeap(bytes)
      for (const [most, shape] of [
        [64, 0],
        [2048, 0],
        [4096, 1],
        [100_000, 0],
      ]) {
        for (const threads of [1024, 65_536]) run('churn', threads, region, 8, 16, most, shape, 3, marks, faults)
        expectEmpty(stats())
      }
      if (bytes < REGION_BYTES) assert.ok(stats().failures > 0)
    }
  })

  it('several streams churn on one heap at once', () => {
    makeHeap()
    const streams: Stream[] = Array.from({ length: 4 }, () => gpu.createStream())
    const churn = trials!.kernel('churn')
    for (let round = 0; round < 20; round++) {
      for (const [index, stream] of streams.entries()) {
        churn.launch({ grid: 32, block: THREADS, stream }, region, 4, 16, 1024, 1, 100 * round + index, marks, faults)
      }
    }
    expectEmpty(stats())
    for (const stream of streams) stream.close()
  })

  it('a full heap gives nullptr and counts it, after at least 85 % at 64 bytes; one free makes room for one', () => {
    const bytes = 16 * 2 ** 20
    makeHeap(bytes)
    const threads = MOST_BLOCKS
    run('heap_take', threads, region, blocks, threads, 64, 64, 0, 0)
    const full = stats()
    assert.ok(full.failures > 0 && full.liveBlocks + full.failures === threads)
    assert.ok(full.liveBytes >= 0.85 * bytes, `${full.liveBytes}`)
    const got = [...pointers(threads)]
    assert.equal(got.filter(ptr => ptr !== 0n).length, full.liveBlocks)
    const index = got.findIndex(ptr => ptr !== 0n)
    run('heap_free', 1, region, blocks + 8 * index, 1, 1)
    run('heap_take', 1, region, blocks + 8 * index, 1, 64, 64, 0, 0)
    assert.deepEqual([stats().failures, stats().liveBlocks], [full.failures, full.liveBlocks])
    run('heap_free', threads, region, blocks, threads, 1)
    expectEmpty(stats())
  })

  it('half of a small heap is for all threads that ask at once, again and again', () => {
    const { reserved } = makeHeap(4 * 2 ** 20)
    const half = 512 * reserved
    for (let round = 0; round < 200; round++) {
      run('heap_take', half, region, blocks, half, 64, 64, 0, 0)
      run('heap_free', half, region, blocks, half, 1)
    }
    const found = stats()
    assert.deepEqual([found.allocations, found.failures], [200 * half, 0])
    expectEmpty(found)
  })

  it('bad sizes and bad frees are counted, and change nothing', () => {
    const { superblocksAt } = makeHeap()
    run('heap_take', 1, region, blocks, 1, 0, 0, 0, 0)
    run('heap_take', 1, region, blocks, 1, 2 ** 31, 2 ** 31, 0, 0)
    assert.equal(stats().failures, 2)
    run('heap_take', 32, region, blocks, 32, 64, 64, 0, 0)
    const [block] = [...pointers(32)].map(Number)
    const end = region + REGION_BYTES
    const bad = [block + 16, block + 1, region, region + superblocksAt - 64, end, end - 8, 64]
    const list = BigUint64Array.from([0n, ...bad.map(BigInt)])
    driver.cuMemcpyHtoD(blocks + 8 * 32, list)
    run('heap_free', list.length, region, blocks + 8 * 32, list.length, 1)
    assert.deepEqual([stats().invalidFrees + stats().doubleFrees, stats().liveBlocks], [bad.length, 32])
    run('heap_free', 1, region, blocks, 1, 1)
    const before = stats()
    run('heap_free', 1, region, blocks, 1, 1)
    assert.deepEqual([stats().doubleFrees - before.doubleFrees, stats().liveBlocks], [1, 31])
    run('heap_free', 31, region, blocks + 8, 31, 1)
    run('heap_free', 31, region, blocks + 8, 31, 1)
    const { liveBlocks, usedBytes, doubleFrees } = stats()
    assert.deepEqual([liveBlocks, usedBytes, doubleFrees - before.doubleFrees], [0, 0, 32])
  })

  it('second frees that race with everything else leave the heap whole', () => {
    for (const bytes of [4 * 2 ** 20, REGION_BYTES]) {
      const { superblocksAt, reserved } = makeHeap(bytes)
      for (const [most, shape] of [
        [64, 0],
        [4096, 1],
        [100_000, 0],
      ]) {
        for (const threads of [1024, 65_536]) run('free_twice', threads, region, 16, 16, most, shape, 5)
        const { liveBlocks, usedBytes, doubleFrees, invalidFrees } = stats()
        assert.deepEqual([liveBlocks, usedBytes], [0, 0], `${bytes} bytes, blocks of up to ${most}`)
        assert.ok(doubleFrees + invalidFrees > 0)
        checkHeap(copyOf(region, superblocksAt))
      }
      run('heap_take', 1, region, blocks, 1, 2 ** 20, 2 ** 20, 0, 0)
      run('heap_free', 1, region, blocks, 1, 1)
      const { failures } = stats()
      const half = Math.min(MOST_BLOCKS, 512 * reserved)
      run('heap_take', half, region, blocks, half, 64, 64, 0, 0)
      assert.deepEqual([stats().failures, stats().liveBlocks], [failures, half])
    }
  })

  it('grows while the base stays, and a reset frees everything', () => {
    const geometry = makeHeap(REGION_BYTES, 8 * 2 ** 20)
    const threads = 65_536
    run('heap_take', threads, region, blocks, threads, 1024, 1024, 0, 0)
    const small = stats()
    assert.ok(small.failures > 0 && small.maxPoolBytes <= 8 * 2 ** 20)
    launch(control, 'heap_grow', THREADS, region, geometry.reserved)
    run('heap_take', threads, region, blocks, threads, 1024, 1024, 0, 0)
    const grown = stats()
    assert.deepEqual([grown.failures, grown.maxPoolBytes], [small.failures, geometry.reserved * SUPERBLOCK_BYTES])
    assert.equal(grown.liveBytes, grown.liveBlocks * bytesOfClass(19))
    launch(control, 'heap_reset', 32 * THREADS, region)
    const { maxPoolBytes, ...zero } = stats()
    assert.deepEqual([maxPoolBytes, ...Object.values(zero)], [grown.maxPoolBytes, ...Object.values(zero).map(() => 0)])
    run('heap_take', threads, region, blocks, threads, 1024, 1024, 0, 0)
    assert.deepEqual([stats().liveBlocks, stats().failures], [threads, 0])
    run('heap_free', threads, region, blocks, threads, 1)
    expectEmpty(stats())
  })
})

describe('two of a kind in one warp on a GPU', { skip }, () => {
  const half = REGION_BYTES / 2
  const sides = [region, region + half]
  const [threads, bytes] = [4096, 64]
  const expectApart = () => {
    for (const [index, ptr] of pointers(threads).entries()) {
      const side = sides[index % 2]
      assert.ok(Number(ptr) > side && Number(ptr) < side + half, `thread ${index}`)
    }
    assert.equal(new Set(pointers(threads)).size, threads)
  }

  it('heaps hand out their own memory, and get it back', () => {
    const { superblocksAt, reserved, slotMask } = heapGeometry(half)
    for (const at of sides) {
      launch(control, 'heap_initialise', 32 * THREADS, at, at + superblocksAt, reserved, reserved, slotMask)
    }
    driver.cuMemsetD8Async(faults, 0, 4, 0)
    const live = () => sides.map(at => statsOf(at, half).liveBlocks)
    run('heap_take_of_two', threads, ...sides, blocks, threads, bytes)
    assert.deepEqual(live(), [threads / 2, threads / 2])
    expectApart()
    run('heap_free_of_two', threads, ...sides, blocks, threads)
    for (const at of sides) expectEmpty(statsOf(at, half))
    run('heap_take_of_two', 64, ...sides, blocks, 64, 0)
    assert.deepEqual(
      sides.map(at => statsOf(at, half).failures),
      [32, 32],
    )
  })

  it('arenas hand out their own memory', () => {
    for (const at of sides) launch(control, 'bump_initialise', 1, at, at + 4096, 2 ** 20, 2 ** 20)
    run('arena_take_of_two', threads, ...sides, blocks, threads, bytes)
    expectApart()
    for (const at of sides) {
      const { takenBytes, failures } = bumpStats(copyOf(at, DEVICE_POOL.byteLength))
      assert.deepEqual([takenBytes, failures], [(threads / 2) * bytes, 0])
    }
  })
})

describe('growth on a GPU', { skip }, () => {
  it('on several streams at once adds each superblock once', () => {
    const { reserved } = makeHeap(REGION_BYTES, 8 * 2 ** 20)
    driver.cuCtxSynchronize()
    const streams: Stream[] = Array.from({ length: 4 }, () => gpu.createStream())
    const grow = control.kernel('heap_grow')
    for (let limit = reserved % 61; limit <= reserved; limit += 61) {
      for (const stream of streams) grow.launch({ grid: 1, block: THREADS, stream }, region, limit)
    }
    const [idle] = new Int32Array(copyOf(region + DEVICE_HEAP.idleCount, 4).buffer)
    assert.deepEqual([stats().maxPoolBytes, idle], [reserved * SUPERBLOCK_BYTES, reserved])
    for (const stream of streams) stream.close()
  })
})

describe('pool and arena on a GPU', { skip }, () => {
  const memory = region + 4096
  for (const name of ['pool_take', 'arena_take']) {
    it(`${name}: blocks lie side by side, what does not fit is counted, a reset begins anew`, () => {
      const threads = 10_000
      for (const [least, most] of [
        [64, 64],
        [1, 500],
      ]) {
        launch(control, 'bump_initialise', 1, region, memory, 2 ** 20, 2 ** 24)
        run(name, threads, region, blocks, threads, least, most, 0, 0)
        const found = bumpStats(copyOf(region, DEVICE_POOL.byteLength))
        const got = [...pointers(threads)]
          .map(Number)
          .filter(ptr => ptr !== 0)
          .sort((a, b) => a - b)
        assert.ok(got.every((ptr, index) => ptr % 16 === 0 && (index === 0 || ptr - got[index - 1] >= 16)))
        assert.ok(got[0] === memory && got[got.length - 1] + least <= memory + 2 ** 20)
        assert.equal(got.length + found.failures, threads)
        if (least === most) assert.deepEqual([found.takenBytes, found.failures], [640_000, 0])
        else assert.ok(found.failures > 0 && found.takenBytes > 0.95 * 2 ** 20)
        run('stamp', threads, blocks, threads, 4, 4, 0, 0)
        driver.cuMemsetD8Async(faults, 0, 4, 0)
        run('verify', threads, blocks, threads, 4, 4, 0, 0, faults)
        assert.deepEqual(copyOf(faults, 4), new Uint8Array(4))
        launch(control, 'bump_reset', 1, region)
        const fresh = bumpStats(copyOf(region, DEVICE_POOL.byteLength))
        assert.deepEqual([fresh.takenBytes, fresh.failures, fresh.peakBytes], [0, 0, found.takenBytes])
      }
      launch(control, 'bump_grow', 1, region, 2 ** 24)
      run(name, threads, region, blocks, threads, 1, 500, 0, 0)
      assert.equal(bumpStats(copyOf(region, DEVICE_POOL.byteLength)).failures, 0)
      run(name, 1, region, blocks, 1, 2 ** 30, 2 ** 30, 0, 0)
      assert.equal(bumpStats(copyOf(region, DEVICE_POOL.byteLength)).failures, 1)
    })
  }
})
