// The contract of every pool and every wrapper.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { KiB, MiB } from '../base/bytes.js'
import { OutOfMemoryError, PoolError } from '../base/errors.js'
import { Random } from '../base/random.js'
import { Abortable } from '../order/waits.fixture.js'
import { allocateManySuite } from './allocate-many.suite.js'
import type { DeviceBuffer } from './buffer.js'
import { TestDevice } from './pool.fixture.js'
import type { Pool } from './pool.js'
import { uploadManySuite } from './upload-many.suite.js'

/** A pool that can hold at least 16 MiB, on a device of its own. */
export interface PoolUnderTest {
  readonly device: TestDevice
  readonly pool: Pool
  /** the pool's own assertions */
  check(): void
  /** closes the pool, or the pool behind the wrapper */
  close(): void
}

const BAD_SIZES: readonly [unknown, typeof RangeError | typeof TypeError][] = [
  [0, RangeError],
  [-1, RangeError],
  [1.5, RangeError],
  [Number.NaN, RangeError],
  [2 ** 53, RangeError],
  [Number.POSITIVE_INFINITY, RangeError],
  ['64', TypeError],
  ['64 apples', RangeError],
  ['101%', RangeError],
  [null, TypeError],
  [undefined, TypeError],
  [[64], TypeError],
  [64n, TypeError],
]
const BAD_ALIGNMENTS: readonly unknown[] = [0, -256, 3, 1.5, 768, Number.NaN, Number.POSITIVE_INFINITY, 4 * MiB, '64']

/** Runs the shared tests; `open` is called once for each of them. */
export function poolSuite(name: string, open: () => PoolUnderTest): void {
  allocateManySuite(name, open)
  uploadManySuite(name, open)
  describe(`pool contract: ${name}`, () => {
    it('refuses a bad size by name, and changes nothing', () => {
      const { pool, check } = open()
      const before = pool.stats()
      for (const [bytes, kind] of BAD_SIZES) {
        if (bytes === undefined && 'blockBytes' in pool) continue // a whole block
        const expected = { name: kind.name, message: /bytes/ }
        assert.throws(() => pool.allocate(bytes as number), expected, `allocate(${String(bytes)})`)
        assert.throws(() => pool.tryAllocate(bytes as number), expected, `tryAllocate(${String(bytes)})`)
      }
      assert.deepEqual(pool.stats(), before)
      check()
    })

    it('refuses a bad alignment, and changes nothing', () => {
      const { pool, check } = open()
      pool.allocate(1 * MiB).free()
      const { liveBuffers, liveBytes, allocations } = pool.stats()
      for (const alignment of BAD_ALIGNMENTS) {
        const expected = { name: /^(Range|Type)Error$/, message: /alignment/ }
        assert.throws(() => pool.allocate(1 * MiB, undefined, alignment as number), expected, `${String(alignment)}`)
      }
      const stats = pool.stats()
      assert.deepEqual([stats.liveBuffers, stats.liveBytes, stats.allocations], [liveBuffers, liveBytes, allocations])
      check()
    })

    it('takes the size as text, and the rest as options', () => {
      const { device, pool, check } = open()
      const stream = device.createStream()
      const buffer = pool.allocate('64 KiB', { stream, alignment: '512B', label: 'weights' })
      assert.deepEqual([buffer.byteLength, buffer.ptr % 512, buffer.label], [64 * KiB, 0, 'weights'])
      assert.equal(buffer.stream, stream)
      assert.equal(pool.tryAllocate('64KiB', {})?.stream, pool.defaultStream)
      assert.equal(pool.tryAllocate(64 * KiB, stream, 512)?.stream, stream)
      const array = pool.allocateArray(Float32Array, 100, { stream, label: 'bias' })
      assert.deepEqual([array.label, array.buffer.stream], ['bias', stream])
      assert.equal(pool.upload(new Float32Array(10), { label: 'input' }).label, 'input')
      assert.equal(pool.stats().liveBuffers, 5)
      check()
    })

    it('refuses bad options of an allocation by name, and changes nothing', () => {
      const { device, pool, check } = open()
      const before = pool.stats()
      const bad: readonly [unknown, RegExp][] = [
        [{ streams: device.createStream() }, /unknown option 'streams'; .*did you mean stream/],
        [{ stream: {} }, /stream must be a Stream, not an Object/],
        [{ label: 7 }, /label must be a text such as 'weights', not 7/],
        [{ alignment: null }, /alignment must be a number of bytes, not null/],
        [new Date(), /stream must be a Stream, not a Date/],
        [[], /stream must be a Stream, not an Array/],
      ]
      for (const [options, message] of bad) {
        const expected = { name: 'TypeError', message }
        assert.throws(() => pool.allocate(64, options as object), expected)
        assert.throws(() => pool.tryAllocate('64B', options as object), expected)
      }
      const twice = () => pool.allocate(64, {}, 512)
      assert.throws(twice, { name: 'TypeError', message: /alignment stands beside options/ })
      assert.deepEqual(pool.stats(), before)
      check()
    })

    it('waits for memory, refuses what never fits, and gives up by a signal', { timeout: 10_000 }, async () => {
      const { pool, check } = open()
      const before = pool.stats()
      await pool.whenAvailable(1 * MiB)
      await assert.rejects(pool.whenAvailable(2 ** 50), { name: 'OutOfMemoryError', message: /1024 TiB/ })
      await assert.rejects(pool.whenAvailable(0), { name: 'RangeError', message: /^whenAvailable: bytes/ })
      const gone = new Abortable()
      gone.abort()
      await assert.rejects(pool.whenAvailable(1 * MiB, gone.options), gone.reason)
      await pool.whenAvailable(1 * MiB, { maxWaiting: 0 })
      const first = pool.whenAvailable(1 * MiB, { maxWaiting: 1 })
      const second = pool.whenAvailable(1 * MiB, { maxWaiting: 1 })
      await assert.rejects(second, { code: 'ERR_TOO_MANY_WAIT', message: /^whenAvailable: 1 request waits for memory/ })
      await first
      await pool.whenAvailable(1 * MiB, { maxWaiting: 0 })
      for (const maxWaiting of [-1, 0.5, '1']) {
        const refused = { name: 'RangeError', message: /^whenAvailable: maxWaiting must be/ }
        await assert.rejects(pool.whenAvailable(1 * MiB, { maxWaiting } as object), refused)
      }
      const { liveBuffers, allocations, frees } = pool.stats()
      assert.deepEqual([liveBuffers, allocations, frees], [before.liveBuffers, before.allocations, before.frees])
      check()
    })

    it('allocates as soon as there is room, or gives up by a signal', { timeout: 10_000 }, async () => {
      const { device, pool, check } = open()
      const stream = device.createStream()
      const buffer = await pool.allocateSoon('1MiB', { stream, label: 'soon' })
      assert.deepEqual([buffer.byteLength, buffer.stream, buffer.label], [1 * MiB, stream, 'soon'])
      buffer.free()
      const held = []
      for (let next = pool.tryAllocate(1 * MiB); next !== null; next = pool.tryAllocate(1 * MiB)) held.push(next)
      const before = pool.stats()
      const gone = new AbortController()
      const given = pool.allocateSoon(1 * MiB, { signal: gone.signal })
      const full = { code: 'ERR_TOO_MANY_WAIT' }
      await assert.rejects(pool.allocateSoon(1 * MiB, { maxWaiting: 0 }), full)
      gone.abort(new Error('no longer'))
      await assert.rejects(given, { message: 'no longer' })
      const { liveBuffers, allocations } = pool.stats()
      assert.deepEqual([liveBuffers, allocations], [before.liveBuffers, before.allocations])
      for (const options of [{ streams: stream }, { signal: 5 }, { maxWaiting: -1 }, { label: 5 }]) {
        await assert.rejects(pool.allocateSoon(1 * MiB, options as object), { name: /^(Type|Range)Error$/ })
      }
      assert.equal(pool.stats().allocations, before.allocations)
      check()
    })

    it('aligns to at least 256 bytes', () => {
      const { pool } = open()
      for (let alignment = 1; alignment <= 256; alignment *= 2) {
        assert.equal(pool.allocate(100, undefined, alignment).ptr % 256, 0)
      }
    })

    it('1 PiB throws OutOfMemoryError with a readable size, and the pool keeps working', () => {
      const { pool, check } = open()
      assert.throws(
        () => pool.allocate(2 ** 50),
        (error: unknown) => {
          assert.ok(error instanceof OutOfMemoryError)
          assert.match(error.message, /1024 TiB/)
          assert.equal(error.figures.requestedBytes, 2 ** 50)
          return true
        },
      )
      assert.equal(pool.tryAllocate(2 ** 50), null)
      assert.equal(pool.tryAllocate(Number.MAX_SAFE_INTEGER), null)
      assert.equal(pool.tryAllocate(Number.MAX_SAFE_INTEGER, undefined, 4096), null)
      const buffer = pool.allocate(1 * MiB)
      assert.equal(buffer.byteLength, 1 * MiB)
      buffer.free()
      check()
    })

    it('OutOfMemoryError has its figures', () => {
      const { pool, check } = open()
      pool.allocate(3 * MiB)
      const { liveBytes } = pool.stats()
      assert.throws(
        () => pool.allocate(512 * MiB),
        (error: unknown) => {
          assert.ok(error instanceof OutOfMemoryError)
          assert.match(error.message, /512 MiB/)
          const { figures } = error
          assert.equal(figures.requestedBytes, 512 * MiB)
          assert.ok(figures.liveBytes <= liveBytes)
          assert.ok(figures.reservedBytes >= figures.liveBytes)
          for (const [figure, value] of Object.entries(figures)) assert.ok(value >= 0, `${figure} is ${value}`)
          return true
        },
      )
      check()
    })

    it('knows the requested bytes', () => {
      const { pool } = open()
      for (const bytes of [1, 255, 256, 257, 100_000, 1 * MiB - 1, 1 * MiB, 2 * MiB + 1]) {
        using buffer = pool.allocate(bytes)
        assert.equal(buffer.byteLength, bytes)
        assert.equal(buffer.freed, false)
        assert.ok(pool.stats().liveBytes >= bytes)
      }
      assert.equal(pool.stats().liveBuffers, 0)
    })

    it('refuses a second free and every use after a free', () => {
      const { pool, device, check } = open()
      const other = pool.allocate(1 * KiB)
      const buffer = pool.allocate(1 * KiB)
      buffer.free()
      const { frees, liveBuffers } = pool.stats()
      assertStale(buffer, other, device)
      assert.throws(() => pool.free(buffer), PoolError)
      assert.equal(buffer.freed, true)
      buffer[Symbol.dispose]()
      buffer[Symbol.dispose]()
      assert.deepEqual([pool.stats().frees, pool.stats().liveBuffers], [frees, liveBuffers])
      assert.equal(other.freed, false)
      check()
    })

    it('a stale handle stays stale when its memory is in use again', () => {
      const { pool, device } = open()
      const stale = pool.allocate(4 * KiB)
      stale.free()
      const live = pool.allocate(4 * KiB)
      assertStale(stale, live, device)
      assert.equal(live.freed, false)
      live.free()
    })

    it('dispose frees once, and does nothing after a free or a close', () => {
      const { pool, close } = open()
      {
        using _scoped = pool.allocate(1 * KiB)
        assert.equal(pool.stats().liveBuffers, 1)
      }
      assert.equal(pool.stats().liveBuffers, 0)
      const held = pool.allocate(1 * KiB)
      close()
      held[Symbol.dispose]()
      assert.equal(held.freed, true)
    })

    it('refuses values that are no buffer or stream by name', () => {
      const { pool, check } = open()
      using array = pool.allocateArray(Float32Array, 4)
      for (const bad of [new Float32Array(4), 5, null, undefined, {}]) {
        assert.throws(() => pool.free(bad as never), {
          name: 'TypeError',
          message: /^free: buffer must be a DeviceBuffer or a DeviceArray, such as/,
        })
      }
      assert.throws(() => pool.free(array.subarray(1)), { name: 'PoolError', message: /^free: this is a view/ })
      for (const bad of [5, null, undefined, {}]) {
        assert.throws(() => array.buffer.recordUse(bad as never), {
          name: 'TypeError',
          message: /recordUse: stream must/,
        })
      }
      check()
    })

    it('a closed pool refuses all calls but close', () => {
      const { pool, device, close } = open()
      const [held, other] = [pool.allocate(1 * KiB), pool.allocate(1 * KiB)]
      close()
      close()
      assert.throws(() => pool.allocate(1 * KiB), { name: 'PoolError', message: /closed/ })
      assert.throws(() => pool.tryAllocate(1 * KiB), { name: 'PoolError', message: /closed/ })
      assertStale(held, other, device)
      assert.equal(device.freeBytes(), device.totalBytes)
    })

    it('a closed pool counts no memory, and keeps its totals and peaks', () => {
      const { pool, close } = open()
      pool.allocate(1 * KiB).free()
      pool.allocate(1 * MiB)
      const { allocations, cacheMisses, growths, insertedWaits } = pool.stats()
      close()
      const { peakLiveBytes, peakReservedBytes, maxPoolBytes, ...counters } = pool.stats()
      const totals = { allocations, frees: allocations, cacheMisses, growths, insertedWaits }
      for (const [counter, value] of Object.entries(counters)) {
        assert.equal(value, totals[counter as keyof typeof totals] ?? 0, counter)
      }
      assert.ok(Math.min(peakLiveBytes, peakReservedBytes, maxPoolBytes) >= 1 * MiB)
    })

    it('refuses a closed stream, but frees buffers that were allocated on it', () => {
      const { pool, device, check } = open()
      const stream = device.createStream()
      const buffer = pool.allocate(1 * KiB, stream)
      stream.close()
      assert.throws(() => pool.allocate(1 * KiB, stream), { name: 'PoolError', message: /stream is closed/ })
      assert.throws(() => pool.tryAllocate(1 * KiB, stream), PoolError)
      assert.throws(() => buffer.write(new Uint8Array(1)), { name: 'PoolError', message: /stream is closed/ })
      assert.throws(() => buffer.fill(0), { name: 'PoolError', message: /stream is closed/ })
      assert.throws(() => buffer.readSync(), { name: 'PoolError', message: /stream is closed/ })
      assert.throws(() => buffer.recordUse(stream), { name: 'PoolError', message: /stream is closed/ })
      assert.equal(buffer.freed, false)
      buffer.free()
      assert.equal(pool.stats().liveBuffers, 0)
      check()
    })

    it('refuses streams of another device, and values that are no stream', () => {
      const { pool, device, check } = open()
      const elsewhere = new TestDevice().createStream()
      const buffer = pool.allocate(1 * KiB)
      assert.throws(() => pool.allocate(1 * KiB, elsewhere), { name: 'PoolError', message: /another device/ })
      assert.throws(() => buffer.free(elsewhere), { name: 'PoolError', message: /another device/ })
      for (const other of [[], device, 5, 'stream', pool]) {
        const stream = other as unknown as typeof elsewhere
        const expected = { name: 'TypeError', message: /: stream must be a Stream, not / }
        assert.throws(() => pool.allocate(1 * KiB, stream), expected)
        assert.throws(() => pool.tryAllocate(1 * KiB, stream, 512), expected)
        assert.throws(() => buffer.free(stream), expected)
        assert.throws(() => buffer.recordUse(stream), expected)
      }
      const nothing = null as unknown as typeof elsewhere
      const named = { name: 'TypeError', message: /allocate: stream must be a Stream, not null/ }
      assert.throws(() => pool.allocate(1 * KiB, nothing), named)
      assert.throws(() => pool.tryAllocate(1 * KiB, nothing), named)
      assert.throws(() => buffer.free(nothing), { name: 'TypeError', message: /stream must be a Stream, not null/ })
      assert.throws(() => buffer.recordUse(elsewhere), { name: 'PoolError', message: /another device/ })
      assert.equal(buffer.freed, false)
      buffer.free()
      check()
    })

    it('refuses a buffer of another pool', () => {
      const { pool, device, check } = open()
      const other = device.createPool({ maxPoolBytes: 4 * MiB })
      const [mine, theirs] = [pool.allocate(1 * KiB), other.allocate(1 * KiB)]
      assert.throws(() => other.free(mine), { name: 'PoolError', message: /another pool/ })
      assert.throws(() => pool.free(theirs), { name: 'PoolError', message: /another pool/ })
      assert.deepEqual([mine.freed, theirs.freed], [false, false])
      pool.free(mine)
      other.free(theirs)
      assert.equal(pool.stats().liveBuffers, 0)
      check()
    })

    it('frees on a named stream that comes after the stream of the allocation', () => {
      const { pool, device, check } = open()
      const stream = device.createStream()
      const first = pool.allocate(1 * KiB)
      device.defaultStream.synchronize()
      pool.free(first, stream)
      const second = pool.allocate(2 * MiB, stream)
      stream.synchronize()
      second.free(device.defaultStream)
      const buffer = pool.allocateAsync(1 * KiB, stream)
      assert.equal(buffer.stream, stream)
      pool.deallocateAsync(buffer, stream)
      assert.equal(pool.stats().liveBuffers, 0)
      check()
    })

    it('allocateArray throws if count times size is inexact, or the type is no typed array', () => {
      const { pool, check } = open()
      const before = pool.stats()
      for (const count of [0, -1, 1.5, Number.NaN, Number.POSITIVE_INFINITY, 2 ** 53, 2 ** 51, '4', undefined]) {
        assert.throws(() => pool.allocateArray(Float64Array, count as number), { name: 'RangeError', message: /count/ })
      }
      for (const type of [Array, DataView, 'Float32Array', undefined, {}]) {
        const untyped = type as unknown as typeof Float32Array
        assert.throws(() => pool.allocateArray(untyped, 4), { name: 'TypeError', message: /typed array/ })
      }
      assert.throws(() => pool.allocateArray(Float64Array, 2 ** 47), OutOfMemoryError)
      assert.deepEqual([pool.stats().liveBuffers, pool.stats().liveBytes], [before.liveBuffers, before.liveBytes])
      const array = pool.allocateArray(Float64Array, 1000)
      assert.deepEqual([array.length, array.byteLength, array.ptr], [1000, 8000, array.buffer.ptr])
      array.free()
      assert.throws(() => array.ptr, PoolError)
      array[Symbol.dispose]()
      check()
    })

    it('zeros is an array of zeros, and free takes an array', () => {
      const { pool, device, check } = open()
      const stream = device.createStream()
      for (let round = 0; round < 2; round++) {
        const array = pool.zeros(Float64Array, 1000, stream)
        assert.deepEqual([array.readSync(), array.stream], [new Float64Array(1000), stream])
        array.fill(0.1)
        assert.deepEqual(array.readSync(), new Float64Array(1000).fill(0.1))
        pool.free(array, stream)
        assert.equal(array.freed, true)
      }
      assert.throws(() => pool.zeros(Float64Array, 0), { name: 'RangeError', message: /^zeros: count must be/ })
      assert.equal(pool.stats().liveBuffers, 0)
      check()
    })

    it('buffers held at the same time never overlap, keep their contents, and are counted', () => {
      const { pool, device, check } = open()
      const streams = [device.defaultStream, device.createStream(), device.createStream()]
      const random = new Random(7)
      const held: { buffer: DeviceBuffer; value: number }[] = []
      let freed = 0
      for (let step = 0; step < 300; step++) {
        if (random.below(5) < 3 && held.length < 40) {
          const bytes = random.logUniform(1, 300 * KiB)
          const buffer = pool.allocate(bytes, streams[random.below(streams.length)])
          buffer.fill(step & 255)
          held.push({ buffer, value: step & 255 })
        } else if (held.length > 0) {
          const [{ buffer, value }] = held.splice(random.below(held.length), 1)
          assert.equal(buffer.readSync(0, 1)[0], value)
          assert.equal(buffer.readSync(buffer.byteLength - 1)[0], value)
          buffer.free()
          freed++
        }
        assertCounted(pool, held, freed)
        if (step % 10 === 0) check()
      }
      assertDisjoint(held.map(({ buffer }) => buffer))
      for (const stream of streams) stream.synchronize() // required by pools that are not stream-ordered
      for (const { buffer } of held) buffer.free()
      assert.equal(pool.stats().liveBytes, 0)
      check()
    })
  })
}

function assertStale(stale: DeviceBuffer, live: DeviceBuffer, device: TestDevice): void {
  const uses: readonly (() => unknown)[] = [
    () => stale.ptr,
    () => stale.byteLength,
    () => stale.write(new Uint8Array(1)),
    () => stale.writeSync(new Uint8Array(1)),
    () => stale.readSync(),
    () => stale.readSync(0, 1),
    () => stale.fill(0),
    () => stale.fill(0, 0, 1),
    () => stale.copyFrom(live, 0, 0, 1),
    () => live.copyFrom(stale, 0, 0, 1),
    () => stale.copyFromSync(live, 0, 0, 1),
    () => stale.recordUse(device.defaultStream),
    () => stale.free(),
  ]
  for (const use of uses) {
    const isRefused = (error: unknown) => error instanceof PoolError && /freed|closed/.test(error.message)
    assert.throws(use, isRefused, `${use}`)
  }
}

function assertCounted(pool: Pool, held: readonly { buffer: DeviceBuffer }[], frees: number): void {
  const stats = pool.stats()
  const requested = held.reduce((sum, { buffer }) => sum + buffer.byteLength, 0)
  assert.deepEqual(
    [stats.liveBuffers, stats.frees, stats.allocations, stats.requestedBytes],
    [held.length, frees, frees + held.length, requested],
  )
  assert.ok(stats.liveBytes >= requested && stats.reservedBytes >= stats.liveBytes)
  assert.ok(stats.peakLiveBytes >= stats.liveBytes)
  assert.ok(stats.peakReservedBytes >= stats.reservedBytes)
}

function assertDisjoint(buffers: readonly DeviceBuffer[]): void {
  const sorted = [...buffers].sort((a, b) => a.ptr - b.ptr)
  for (let index = 1; index < sorted.length; index++) {
    assert.ok(sorted[index - 1].ptr + sorted[index - 1].byteLength <= sorted[index].ptr, 'buffers overlap')
  }
}
