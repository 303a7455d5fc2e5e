// Arenas on a real GPU: growth does not move memory, and no stream gets memory that another stream still works on,
// across resets and rewinds. Kernels stamp and compare the memory in stream order. Fails without a GPU.
//
// POOL_FUZZ_SEED and POOL_FUZZ_STEPS replay and lengthen the random programs; the names of the tests say the seed.

import assert from 'node:assert/strict'
import { after, describe, it } from 'node:test'
import { GiB, MiB } from '../../base/bytes.js'
import { Random } from '../../base/random.js'
import { signal } from '../../order/order.fixture.js'
import type { DeviceBuffer } from '../buffer.js'
import { GpuDevice } from '../gpu-device.fixture.js'
import { fallback } from '../wrappers/fallback.js'
import type { ArenaMark } from './arena-mark.js'
import type { ArenaOptions } from './arena-options.js'

const SEED = Number(process.env['POOL_FUZZ_SEED'] ?? 1)
const STEPS = Number(process.env['POOL_FUZZ_STEPS'] ?? 2000)
const MOST_SPIN_MS = 0.5

const gpu = new GpuDevice()
after(() => gpu.close())

const KINDS: readonly (readonly [name: string, options: ArenaOptions])[] = [
  ['fixed', { bytes: 64 * MiB }],
  ['growing', { bytes: 3 * MiB, maxPoolBytes: 64 * MiB }],
]

describe('an arena on a GPU', () => {
  it('grows without moving, and keeps all contents', () => {
    using arena = gpu.createArenaPool({ bytes: 1 * MiB, maxPoolBytes: 1 * GiB })
    const held: DeviceBuffer[] = []
    for (let index = 0; index < 40; index++) {
      held.push(arena.allocate((1 + (index % 9)) * MiB + 4 * index))
      gpu.stamp(held[index], index)
    }
    const addresses = held.map(buffer => buffer.ptr)
    assert.ok(arena.stats().growths > 10)
    assert.ok(arena.stats().reservedBytes < 256 * MiB, 'no more than was needed')
    for (const [index, buffer] of held.entries()) {
      gpu.compare(buffer, index)
      assert.equal(buffer.ptr, addresses[index])
    }
    assert.deepEqual(gpu.damages(), [])
    arena.check()
    arena.reset()
    const whole = arena.allocate(1 * GiB)
    assert.equal(whole.ptr, addresses[0])
    gpu.stamp(whole, 99)
    gpu.compare(whole, 99)
    assert.deepEqual(gpu.damages(), [])
  })

  it('gives every alignment', () => {
    for (const [, options] of KINDS) {
      using arena = gpu.createArenaPool(options)
      for (let alignment = 1; alignment <= 2 * MiB; alignment *= 2) {
        const buffer = arena.allocate(100, undefined, alignment)
        assert.equal(buffer.ptr % alignment, 0)
        gpu.stamp(buffer, alignment)
        gpu.compare(buffer, alignment)
      }
      assert.deepEqual(gpu.damages(), [])
    }
  })

  it('running out throws an error with figures, and falls back to plain memory', () => {
    using arena = gpu.createArenaPool({ bytes: 32 * MiB })
    using plain = gpu.createPlainPool()
    assert.throws(() => arena.allocate(40e6), { name: 'OutOfMemoryError', message: /the arena has 32 MiB in all/ })
    const pool = fallback(arena, plain)
    using buffer = pool.allocate(40e6)
    gpu.stamp(buffer, 3)
    gpu.compare(buffer, 3)
    assert.deepEqual([gpu.damages(), pool.fallbacks], [[], 1])
  })

  it('refuses an arena larger than the device', () => {
    const expected = { name: 'OutOfMemoryError', message: /createArenaPool: no room/ }
    assert.throws(() => gpu.createArenaPool({ bytes: 500 * GiB }), expected)
    assert.throws(() => gpu.createArenaPool({ bytes: 500 * GiB, maxPoolBytes: 510 * GiB }), expected)
  })

  for (const [name, options] of KINDS) {
    it(`${name}: a reset and the streams of the arena wait for each other, on the device only`, () => {
      using a = gpu.createStream()
      using b = gpu.createStream()
      using arena = gpu.createArenaPool(options)
      const first = arena.allocate(2 * MiB, b)
      const release = gpu.hold(b)
      gpu.stamp(first, 1)
      gpu.compare(first, 1)
      arena.reset(a)
      const second = arena.allocate(2 * MiB, a)
      gpu.stamp(second, 2)
      gpu.compare(second, 2)
      assert.deepEqual([a.query(), b.query()], [false, false])
      arena.reset(a)
      const third = arena.allocate(2 * MiB, b)
      gpu.stamp(third, 3)
      gpu.compare(third, 3)
      assert.equal(b.query(), false)
      release()
      assert.deepEqual(gpu.damages(), [])
    })
  }

  it('closes with work pending, which completes first', () => {
    for (const [, options] of KINDS) {
      using stream = gpu.createStream()
      const arena = gpu.createArenaPool(options)
      const buffer = arena.allocate(2 * MiB, stream)
      gpu.spin(stream, 20)
      gpu.stamp(buffer, 1)
      assert.deepEqual(arena.close(), { heldBuffers: 1, heldBytes: 2 * MiB })
      gpu.synchronize() // throws if a kernel used unmapped memory
    }
  })
})

describe(`random programs on arenas on a GPU (POOL_FUZZ_SEED=${SEED} POOL_FUZZ_STEPS=${STEPS})`, () => {
  for (const [name, options] of KINDS) {
    it(name, () => {
      const random = new Random(SEED)
      const streams = Array.from({ length: 3 }, () => gpu.createStream())
      const arena = gpu.createArenaPool(options)
      const taken = { allocate: 0, full: 0, use: 0, rewind: 0, reset: 0 }
      let held: { buffer: DeviceBuffer; stamp: number }[] = []
      let marks: { mark: ArenaMark; count: number }[] = []
      const anyStream = () => streams[random.below(streams.length)]
      const compareSome = () => {
        for (const { buffer, stamp } of held) if (random.below(4) === 0) gpu.compare(buffer, stamp)
      }

      for (let step = 0; step < STEPS; step++) {
        const dice = random.below(100)
        if (dice < 50) {
          const buffer = arena.tryAllocate(
            random.logUniform(4, 40 * MiB),
            anyStream(),
            random.below(9) === 0 ? MiB : 256,
          )
          taken[buffer === null ? 'full' : 'allocate']++
          if (buffer === null) continue
          gpu.stamp(buffer, step)
          held.push({ buffer, stamp: step })
        } else if (dice < 70 && held.length > 0) {
          const { buffer, stamp } = held[random.below(held.length)]
          const other = anyStream()
          signal(buffer.stream, other)
          gpu.compare(buffer, stamp, other)
          buffer.recordUse(other)
          taken.use++
        } else if (dice < 80) gpu.spin(anyStream(), random.fraction() * MOST_SPIN_MS)
        else if (dice < 88) marks.push({ mark: arena.mark(), count: held.length })
        else if (dice < 96 && marks.length > 0) {
          const index = random.below(marks.length)
          compareSome()
          arena.rewind(marks[index].mark, random.below(2) === 0 ? anyStream() : undefined)
          held = held.slice(0, marks[index].count)
          marks = marks.slice(0, index + 1)
          taken.rewind++
        } else if (dice >= 98) {
          compareSome()
          arena.reset(random.below(2) === 0 ? anyStream() : undefined)
          held = []
          marks = []
          taken.reset++
        }
        if (step % 100 === 0) arena.check()
      }
      for (const { buffer, stamp } of held) gpu.compare(buffer, stamp)
      assert.deepEqual(gpu.damages(), [])
      for (const [what, count] of Object.entries(taken)) assert.ok(count > 0, `${what} happened`)
      arena.close()
      for (const stream of streams) stream.close()
    })
  }
})
