// Block pools on a real GPU: blocks do not overlap, and no block is handed out while another stream still works on
// it. Kernels stamp and compare the memory in stream order. Fails without a GPU.
//
// POOL_FUZZ_SEED and POOL_FUZZ_STEPS replay and lengthen the random programs; the names of the tests say the seed.

import assert from 'node:assert/strict'
import { after, describe, it } from 'node:test'
import { GiB, KiB, MiB } from '../../base/bytes.js'
import { Random } from '../../base/random.js'
import { signal } from '../../order/order.fixture.js'
import type { DeviceBuffer } from '../buffer.js'
import { GpuDevice } from '../gpu-device.fixture.js'
import type { BlockOptions } from './block-options.js'

const SEED = Number(process.env['POOL_FUZZ_SEED'] ?? 1)
const STEPS = Number(process.env['POOL_FUZZ_STEPS'] ?? 3000)
const MOST_SPIN_MS = 0.5

const gpu = new GpuDevice()
after(() => gpu.close())

describe('a block pool on a GPU', () => {
  it('blocks are aligned, do not overlap, and keep their contents while the pool grows', () => {
    for (const blockBytes of [256, 1000, 4 * KiB, 48 * KiB, 2 * MiB, 3 * MiB]) {
      using pool = gpu.createBlockPool({ blockBytes, count: 7, maxCount: 40 })
      const all = Array.from({ length: 40 }, () => pool.allocate(blockBytes))
      for (const [index, buffer] of all.entries()) {
        assert.equal(buffer.ptr % pool.alignment, 0)
        gpu.stamp(buffer, index)
      }
      assert.equal(pool.tryAllocate(1), null)
      for (const [index, buffer] of all.entries()) gpu.compare(buffer, index)
      assert.deepEqual(gpu.damages(), [])
      pool.check()
    }
  })

  it('refuses a pool larger than the device', () => {
    const expected = { name: 'OutOfMemoryError', message: /createBlockPool: no room/ }
    assert.throws(() => gpu.createBlockPool({ blockBytes: 1 * GiB, count: 500 }), expected)
  })

  it('reuses a block at once on its stream, on other streams only after its work', () => {
    using a = gpu.createStream()
    using b = gpu.createStream()
    using pool = gpu.createBlockPool({ blockBytes: 1 * MiB, count: 1, maxCount: 2 })
    const release = gpu.hold(a)
    const first = pool.allocate(1 * MiB, a)
    const { ptr } = first
    gpu.stamp(first, 1)
    first.free()
    const second = pool.allocate(1 * MiB, a)
    assert.equal(second.ptr, ptr)
    gpu.stamp(second, 2)
    gpu.compare(second, 2)
    second.free()
    const other = pool.allocate(1 * MiB, b)
    assert.notEqual(other.ptr, ptr)
    assert.equal(pool.count, 2)
    release()
    a.synchronize()
    const later = pool.allocate(1 * MiB, b)
    assert.equal(later.ptr, ptr)
    assert.deepEqual(gpu.damages(), [])
  })

  it('closes with work pending, which completes first', () => {
    using stream = gpu.createStream()
    const pool = gpu.createBlockPool({ blockBytes: 2 * MiB, count: 2 })
    const [kept, freed] = [pool.allocate(2 * MiB, stream), pool.allocate(2 * MiB, stream)]
    gpu.spin(stream, 20)
    gpu.stamp(kept, 1)
    gpu.stamp(freed, 1)
    freed.free()
    assert.deepEqual(pool.close(), { heldBuffers: 1, heldBytes: 2 * MiB })
    gpu.synchronize() // throws if a kernel used unmapped memory
  })
})

const KINDS: readonly (readonly [name: string, options: BlockOptions])[] = [
  ['fixed', { blockBytes: 256 * KiB, count: 24 }],
  ['growing', { blockBytes: 1 * MiB, count: 6, maxCount: 32 }],
]

describe(`random programs on block pools on a GPU (POOL_FUZZ_SEED=${SEED} POOL_FUZZ_STEPS=${STEPS})`, () => {
  for (const [name, options] of KINDS) {
    it(name, () => {
      const random = new Random(SEED)
      const streams = Array.from({ length: 4 }, () => gpu.createStream())
      const pool = gpu.createBlockPool(options)
      const held: { buffer: DeviceBuffer; stamp: number }[] = []
      const taken = { allocate: 0, full: 0, use: 0, elsewhere: 0, replaced: 0 }
      const anyStream = () => streams[random.below(streams.length)]
      const takeOut = () => held.splice(random.below(held.length), 1)

      for (let step = 0; step < STEPS; step++) {
        const dice = random.below(100)
        if (dice < 45) {
          const buffer = pool.tryAllocate(random.below(2) === 0 ? pool.blockBytes : 1000, anyStream())
          taken[buffer === null ? 'full' : 'allocate']++
          if (buffer === null) continue
          gpu.stamp(buffer, step)
          held.push({ buffer, stamp: step })
        } else if (dice < 80) {
          for (const { buffer, stamp } of takeOut()) {
            if (buffer.stream.closed) buffer.free()
            else if (random.below(3) > 0) {
              gpu.compare(buffer, stamp)
              buffer.free()
            } else {
              const other = anyStream()
              signal(buffer.stream, other)
              gpu.compare(buffer, stamp, other)
              buffer.free(other)
              taken.elsewhere++
            }
          }
        } else if (dice < 90) gpu.spin(anyStream(), random.fraction() * MOST_SPIN_MS)
        else if (dice < 98) {
          const { buffer, stamp } = held[random.below(held.length)] ?? {}
          if (buffer === undefined || buffer.stream.closed) continue
          const other = anyStream()
          signal(buffer.stream, other)
          gpu.compare(buffer, stamp!, other)
          buffer.recordUse(other)
          taken.use++
        } else {
          const index = random.below(streams.length)
          streams[index].close()
          streams[index] = gpu.createStream()
          taken.replaced++
        }
        if (step % 100 === 0) pool.check()
      }
      for (const { buffer } of held) buffer.free()
      assert.deepEqual(gpu.damages(), [])
      for (const [what, count] of Object.entries(taken)) assert.ok(count > 0, `${what} happened`)
      const all = Array.from({ length: pool.maxCount }, () => pool.allocate(pool.blockBytes, streams[0]))
      assert.equal(pool.availableBlocks, 0)
      for (const buffer of all) buffer.free()
      assert.deepEqual(pool.close(), { heldBuffers: 0, heldBytes: 0 })
      for (const stream of streams) stream.close()
    })
  }
})
