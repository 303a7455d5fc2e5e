// The pools on a real GPU: contents survive growth, moves and trims; pools wait for pending work where they must; a
// pool that ran out of memory keeps working. Fails without a GPU.

import assert from 'node:assert/strict'
import { randomFillSync } from 'node:crypto'
import { after, describe, it } from 'node:test'
import { GiB, MiB } from '../base/bytes.js'
import { OutOfMemoryError } from '../base/errors.js'
import { Random } from '../base/random.js'
import type { Stream } from '../order/stream.js'
import { VirtualBacking } from './backing/virtual-backing.js'
import type { DeviceBuffer } from './buffer.js'
import type { PassThroughPool } from './driver-owned/pass-through-pool.js'
import { GpuDevice } from './gpu-device.fixture.js'
import { fallback } from './wrappers/fallback.js'

const gpu = new GpuDevice()
after(() => gpu.close())

/** A buffer with contents that it should keep. */
interface Held {
  readonly buffer: DeviceBuffer
  /** asserts its contents, or lets `gpu.damages()` report them */
  check(): void
}

/** Gives a buffer contents: from the host, from a fill, or from a kernel, by `index` in turn. */
function occupy(buffer: DeviceBuffer, index: number): Held {
  if (index % 3 === 0) {
    gpu.stamp(buffer, index)
    return { buffer, check: () => gpu.compare(buffer, index) }
  }
  const contents = Buffer.alloc(buffer.byteLength, index % 256)
  if (index % 3 === 1) buffer.fill(index % 256)
  else buffer.write(randomFillSync(contents))
  return { buffer, check: () => assert.ok(contents.equals(buffer.readSync()), `buffer ${index} changed`) }
}

function assertIntact(held: Iterable<Held>): void {
  for (const one of held) one.check()
  assert.deepEqual(gpu.damages(), [])
}

for (const backing of ['virtual', 'segments'] as const) {
  describe(`a caching pool of ${backing} memory on a GPU`, () => {
    it('contents survive growth', () => {
      using pool = gpu.createPool({ backing, maxPoolBytes: 1 * GiB })
      const random = new Random(1)
      const held: Held[] = []
      while (pool.stats().reservedBytes < 512 * MiB) {
        held.push(occupy(pool.allocate(random.logUniform(1, 48 * MiB)), held.length))
      }
      assert.ok(pool.stats().growths > 10)
      assertIntact(held)
      pool.check()
      for (const { buffer } of held) buffer.free()
      gpu.synchronize()
      const whole = occupy(pool.allocate(1 * GiB), 3)
      assertIntact([whole])
      assert.equal(pool.stats().reservedBytes, 1 * GiB)
    })

    it('gives every alignment', () => {
      using pool = gpu.createPool({ backing })
      const held: Held[] = []
      for (let alignment = 1; alignment <= 2 * MiB; alignment *= 2) {
        held.push(occupy(pool.allocate(3 * alignment + 100, undefined, alignment), held.length))
        assert.equal(held.at(-1)!.buffer.ptr % alignment, 0)
      }
      assertIntact(held)
    })

    it('trimTo gives back idle memory, and keeps live and pending memory', () => {
      using pool = gpu.createPool({ backing, maxPoolBytes: 256 * MiB })
      using stream = gpu.createStream()
      const held = Array.from({ length: 8 }, (_, index) => occupy(pool.allocate(16 * MiB, stream), 3 * index))
      const live = held.filter((_, index) => index % 2 === 0)
      const release = gpu.hold(stream)
      for (const { buffer } of held.filter(one => !live.includes(one))) {
        gpu.stamp(buffer, 99)
        buffer.free()
      }
      assert.equal(pool.trimTo(0), 0)
      assert.equal(stream.query(), false, 'nothing waited')
      release()
      stream.synchronize()
      assert.equal(pool.trimTo(0), 64 * MiB)
      assertIntact(live)

      const again = Array.from({ length: 4 }, (_, index) => occupy(pool.allocate(16 * MiB, stream), index))
      assertIntact([...live, ...again])
      for (const { buffer } of [...live, ...again]) buffer.free()
      stream.synchronize()
      pool.trimTo(0)
      assert.equal(pool.stats().reservedBytes, 0)
      assert.equal(pool.stats().cachedBytes, 0)
    })

    it('closes with work pending, which completes first', () => {
      using stream = gpu.createStream()
      const pool = gpu.createPool({ backing })
      const [kept, freed] = [pool.allocate(8 * MiB, stream), pool.allocate(8 * MiB, stream)]
      gpu.spin(stream, 20)
      gpu.stamp(kept, 1)
      gpu.stamp(freed, 2)
      freed.free()
      assert.deepEqual(pool.close(), { heldBuffers: 1, heldBytes: 8 * MiB })
      assert.equal(gpu.driver.cuStreamQuery(stream.handle), true)
      gpu.synchronize() // throws if a kernel used unmapped memory
      assert.throws(() => kept.ptr, { name: 'PoolError', message: /pool is closed/ })
    })

    it('running out throws an error with figures, and the pool keeps working', () => {
      using pool = gpu.createPool({ backing, maxPoolBytes: 64 * MiB })
      const held = Array.from({ length: 15 }, (_, index) => occupy(pool.allocate(4 * MiB), index))
      assert.throws(
        () => pool.allocate(8 * MiB),
        (error: unknown) => {
          assert.ok(error instanceof OutOfMemoryError)
          const { requestedBytes, liveBytes, maxPoolBytes, deviceFreeBytes } = error.figures
          assert.deepEqual([requestedBytes, liveBytes, maxPoolBytes], [8 * MiB, 60 * MiB, 64 * MiB])
          assert.ok(deviceFreeBytes > 0)
          return true
        },
      )
      assert.equal(pool.tryAllocate(8 * MiB), null)
      const [first] = held.splice(3, 1)
      const [second] = held.splice(9, 1)
      first.buffer.free()
      second.buffer.free()
      held.push(occupy(pool.allocate(8 * MiB), 100))
      assert.equal(pool.tryAllocate(8 * MiB), null)
      assertIntact(held)
      pool.check()
    })

    it('leaves leaveFreeBytes free on the device', () => {
      using pool = gpu.createPool({ backing, leaveFreeBytes: gpu.totalBytes })
      assert.equal(pool.tryAllocate(1), null)
      assert.equal(pool.stats().reservedBytes, 0)
    })

    it('falls back to plain driver memory', () => {
      using small = gpu.createPool({ backing, maxPoolBytes: 8 * MiB })
      using plain = gpu.createPlainPool()
      const pool = fallback(small, plain)
      const held = Array.from({ length: 5 }, (_, index) => occupy(pool.allocate(4 * MiB), index))
      assert.equal(pool.fallbacks, 3)
      assert.equal(plain.stats().liveBytes, 12 * MiB)
      assertIntact(held)
      for (const { buffer } of held) buffer.free()
      assert.deepEqual([small.stats().liveBuffers, plain.stats().liveBuffers], [0, 0])
    })
  })
}

describe('moving memory on a GPU', () => {
  const LIMIT = 256 * MiB
  const BLOCK = 4 * MiB

  function full(streams: readonly Stream[]) {
    const pool = gpu.createPool({ backing: 'virtual', maxPoolBytes: LIMIT })
    const held = Array.from({ length: LIMIT / BLOCK }, (_, index) =>
      occupy(pool.allocate(BLOCK, streams[index % streams.length]), index),
    )
    const backing = pool.central.backing as VirtualBacking
    assert.ok(backing instanceof VirtualBacking)
    return { pool, held, backing }
  }

  it('moves to larger blocks again and again, and keeps live contents', () => {
    const streams = [gpu.createStream(), gpu.createStream(), gpu.createStream()]
    const { pool, held, backing } = full(streams)
    const random = new Random(2)
    for (let round = 0; round < 8; round++) {
      assertIntact(held)
      const freed = held.filter((_, index) => index % 2 === round % 2)
      for (const { buffer } of freed) buffer.free()
      gpu.synchronize()
      const before = backing.stitched
      const large = occupy(pool.allocate(freed.length * BLOCK, streams[round % 3]), 1000 + round)
      assert.ok(backing.stitched > before, `round ${round} moved memory`)
      const kept = held.filter(one => !freed.includes(one))
      assertIntact([large, ...kept])
      large.buffer.free()
      const again = freed.map((_, index) => occupy(pool.allocate(BLOCK, streams[random.below(3)]), index))
      held.splice(0, held.length, ...kept, ...again)
      assert.equal(pool.stats().reservedBytes, LIMIT)
      pool.check()
    }
    pool.close()
    for (const stream of streams) stream.close()
  })

  it('idle memory moves while kernels run, without waiting for them', () => {
    using busy = gpu.createStream()
    using other = gpu.createStream()
    const { pool, held, backing } = full([busy, other])
    const freed = held.filter((_, index) => index % 2 === 1)
    const kept = held.filter((_, index) => index % 2 === 0)
    for (const { buffer } of freed) buffer.free()
    pool.processDeferred() // marks the streams behind the last use of the freed blocks
    gpu.synchronize()
    pool.processDeferred() // notices that the use is complete
    const release = gpu.hold(busy)
    for (const { buffer } of kept) gpu.stamp(buffer, 5, busy)
    const large = occupy(pool.allocate(freed.length * BLOCK, other), 6)
    assert.ok(backing.stitched > 0)
    assert.equal(busy.query(), false, 'the kernels still run')
    other.synchronize()
    release()
    for (const { buffer } of kept) gpu.compare(buffer, 5, busy)
    assertIntact([large])
    pool.close()
  })

  it('memory with pending work moves only after the work', () => {
    using busy = gpu.createStream()
    using other = gpu.createStream()
    const { pool, held } = full([busy])
    const freed = held.filter((_, index) => index % 2 === 1)
    const kept = held.filter((_, index) => index % 2 === 0)
    gpu.synchronize()
    gpu.spin(busy, 20)
    for (const { buffer } of freed) {
      gpu.stamp(buffer, 77)
      buffer.free()
    }
    const large = pool.allocate(freed.length * BLOCK, other)
    gpu.stamp(large, 8)
    gpu.compare(large, 8)
    assertIntact(kept)
    gpu.compare(large, 8)
    assert.deepEqual(gpu.damages(), [])
    pool.close()
  })
})

describe('pools of driver allocations', () => {
  const kinds: readonly (readonly [name: string, open: () => PassThroughPool])[] = [
    ['plain', () => gpu.createPlainPool()],
    ['driver', () => gpu.defaultDriverPool()],
  ]
  for (const [name, open] of kinds) {
    it(`${name}: memory holds its contents, on several streams, until it is freed in order`, () => {
      using pool = open()
      using stream = gpu.createStream()
      using other = gpu.createStream()
      const sizes = [1, 1000, 1 * MiB, 5 * MiB + 4]
      const held = [stream, other, gpu.defaultStream].flatMap((on, index) =>
        sizes.map((bytes, position) => occupy(pool.allocate(bytes, on), 4 * index + position)),
      )
      assertIntact(held)
      assert.equal(pool.stats().liveBuffers, 12)
      assert.ok(pool.stats().reservedBytes >= pool.stats().requestedBytes)

      const used = held[3].buffer
      gpu.spin(other, 10)
      gpu.stamp(used, 11, other)
      used.recordUse(other)
      used.free()
      const next = pool.allocate(5 * MiB + 4, stream)
      gpu.stamp(next, 12)
      gpu.compare(next, 12)
      assert.deepEqual(gpu.damages(), [])
      gpu.compare(next, 12)
      assertIntact(held.filter(({ buffer }) => buffer !== used))
      for (const { buffer } of held.slice(4)) buffer.free()
      assert.equal(pool.stats().liveBuffers, 4)
    })

    it(`${name}: running out returns null or throws an error with figures, and close frees all buffers`, () => {
      const pool = open()
      const held = pool.allocate(1 * MiB)
      assert.equal(pool.tryAllocate(400 * GiB), null)
      assert.throws(() => pool.allocate(400 * GiB), { name: 'OutOfMemoryError', message: /400 GiB/ })
      gpu.stamp(held, 1)
      pool.close()
      pool.close()
      assert.equal(held.freed, true)
      gpu.synchronize()
      assert.throws(() => pool.allocate(1), { name: 'PoolError', message: /closed/ })
    })
  }
})
