// The segments of a pool, and their observer: the pool's list must be the observer's at all times.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { KiB, MiB } from '../../base/bytes.js'
import { PoolError } from '../../base/errors.js'
import { Random } from '../../base/random.js'
import type { PoolSegment, SegmentObserver } from '../backing/segment-watch.js'
import { assertConsistent, TestDevice } from '../pool.fixture.js'
import { limited } from '../wrappers/limited.js'

const STEPS = 400

interface Held {
  readonly ptr: number
  readonly byteLength: number
  free(): void
}

/** A pool that tells its segments. */
interface Told {
  segments(): PoolSegment[]
  tryAllocate(bytes: number): Held | null
  trimTo(bytes: number): number
}

/** The segments that an observer knows. */
class Shadow implements SegmentObserver {
  readonly bytesAt = new Map<number, number>()
  readonly said = { ready: 0, leaving: 0 }

  ready({ ptr, bytes }: PoolSegment): void {
    assert.ok(!this.bytesAt.has(ptr), 'a segment is ready once')
    this.bytesAt.set(ptr, bytes)
    this.said.ready++
  }

  leaving({ ptr, bytes }: PoolSegment): void {
    assert.equal(this.bytesAt.get(ptr), bytes, 'a segment that leaves was ready')
    this.bytesAt.delete(ptr)
    this.said.leaving++
  }

  check(pool: Pick<Told, 'segments'>, buffers: readonly Pick<Held, 'ptr' | 'byteLength'>[]): void {
    const told = [...this.bytesAt].map(([ptr, bytes]) => ({ ptr, bytes })).sort((a, b) => a.ptr - b.ptr)
    assert.deepEqual(
      pool.segments().sort((a, b) => a.ptr - b.ptr),
      told,
    )
    for (let i = 1; i < told.length; i++) assert.ok(told[i - 1].ptr + told[i - 1].bytes <= told[i].ptr)
    for (const { ptr, byteLength } of buffers) {
      let at = ptr
      for (const segment of told)
        if (segment.ptr <= at && at < segment.ptr + segment.bytes) at = segment.ptr + segment.bytes
      assert.ok(at >= ptr + byteLength, 'segments that touch are behind the whole buffer')
    }
  }
}

/** Random allocations, frees and trims; `each` runs after each step. */
function program(pool: Told, seed: number, each: (buffers: readonly Held[]) => void): Held[] {
  const random = new Random(seed)
  const buffers: Held[] = []
  for (let step = 0; step < STEPS; step++) {
    const kind = random.below(8)
    if (kind < 4 && buffers.length < 30) {
      const buffer = pool.tryAllocate(Math.ceil(random.logUniform(KiB, 12 * MiB)))
      if (buffer !== null) buffers.push(buffer)
    } else if (kind < 7 && buffers.length > 0) {
      buffers.splice(random.below(buffers.length), 1)[0].free()
    } else if (kind === 7) {
      pool.trimTo(random.below(32) * MiB)
    }
    each(buffers)
  }
  return buffers
}

for (const backing of ['virtual', 'segments', 'managed', 'registrable'] as const) {
  describe(`segments: ${backing}`, () => {
    for (const seed of [1, 2, 3]) {
      it(`are what the observer was told, whatever the pool does (seed ${seed})`, () => {
        const pool = new TestDevice().createPool({ backing, maxPoolBytes: 64 * MiB })
        const shadow = new Shadow()
        pool.observeSegments(shadow)
        const left = program(pool, seed, buffers => shadow.check(pool, buffers))
        assert.ok(shadow.said.ready > 3 && shadow.said.leaving > 0)
        for (const buffer of left) buffer.free()
        pool.close()
        assert.equal(shadow.bytesAt.size, 0, 'all segments leave when the pool closes')
      })
    }

    it('are told to an observer that comes later, until it stops', () => {
      const pool = new TestDevice().createPool({ backing })
      using first = pool.allocate(5 * MiB)
      const shadow = new Shadow()
      const stop = pool.observeSegments(shadow)
      shadow.check(pool, [first])
      assert.throws(() => pool.observeSegments(new Shadow()), PoolError)
      stop()
      const told = shadow.said.ready
      using second = pool.allocate(50 * MiB)
      assert.equal(shadow.said.ready, told)
      const next = new Shadow()
      pool.observeSegments(next)
      stop() // ends its own observer only
      next.check(pool, [first, second])
    })

    it('that the observer refuses go back, and the pool works on', () => {
      const device = new TestDevice()
      const pool = device.createPool({ backing })
      using held = pool.allocate(3 * MiB)
      held.fill(7)
      const shadow = new Shadow()
      let refusing = false
      pool.observeSegments({
        ready: segment => {
          if (refusing) throw new RangeError('not this one')
          shadow.ready(segment)
        },
        leaving: segment => {
          if (refusing) throw new RangeError('it is in use')
          shadow.leaving(segment)
        },
      })
      refusing = true
      const before = device.freeBytes()
      assert.throws(() => pool.allocate(40 * MiB), { name: 'RangeError', message: 'not this one' })
      assert.equal(device.freeBytes(), before)
      assertConsistent(pool)
      refusing = false
      pool.allocate(40 * MiB).free()
      refusing = true
      assert.throws(() => pool.trimTo(0), { name: 'RangeError', message: 'it is in use' })
      // Mapped memory is out of the heap then, and a later call gives it back.
      assertConsistent(pool, backing === 'virtual' ? 2 * MiB : 0)
      refusing = false
      pool.trimTo(0)
      shadow.check(pool, [held])
      assert.equal(held.readSync()[0], 7)
      assertConsistent(pool)
    })

    it('have an observer that may not use the pool, and whose calls of it change nothing', () => {
      const pool = new TestDevice().createPool({ backing, maxPoolBytes: 32 * MiB })
      const calls = [
        () => pool.allocate(1),
        () => pool.tryAllocate(3 * MiB),
        () => pool.trimTo(0),
        () => pool.reserve(1 * MiB),
        () => pool.processDeferred(),
        () => pool.live(),
        () => {
          pool.maxPoolBytes = 16 * MiB
        },
      ]
      const within = {
        name: 'PoolError',
        message: /the pool is calling its observer of segments, which must not use it/,
      }
      const refuse = () => {
        for (const call of calls) assert.throws(call, within)
        calls[6]()
      }
      let acts = refuse
      pool.observeSegments({ ready: () => acts(), leaving: () => acts() })
      assert.throws(() => pool.allocate(12 * MiB), within)
      acts = () => {}
      pool.allocate(12 * MiB).free()
      acts = refuse
      assert.throws(() => pool.trimTo(0), within)
      acts = () => {
        throw new RangeError('it is in use')
      }
      assert.throws(
        () => {
          pool.maxPoolBytes = 4 * MiB
        },
        { name: 'RangeError' },
      )
      acts = () => {}
      assert.deepEqual([pool.maxPoolBytes, pool.stats().maxPoolBytes], [32 * MiB, 32 * MiB])
      pool.allocate(20 * MiB).free()
      assertConsistent(pool)
    })

    it('that the observer refuses at a free do not leave the block to the wrapper of its last buffer', () => {
      const pool = new TestDevice().createPool({ backing, releaseThresholdBytes: 0 })
      const wrapper = limited(pool, 64 * MiB)
      let refusing = true
      pool.observeSegments({
        ready() {},
        leaving() {
          if (refusing) throw new RangeError('it is in use')
        },
      })
      const large = wrapper.allocate(40 * MiB)
      assert.throws(() => large.free(), { name: 'RangeError', message: 'it is in use' })
      assert.equal(large.freed, true)
      refusing = false
      const next = pool.allocate(40 * MiB)
      assert.equal(next.pool, pool)
      pool.free(next)
      assertConsistent(pool, 0)
    })

    it('refuse an observer without its methods, and a closed pool', () => {
      const pool = new TestDevice().createPool({ backing })
      assert.throws(() => pool.observeSegments({} as never), /observer must have methods ready and leaving/)
      assert.throws(() => pool.observeSegments(null as never), TypeError)
      pool.close()
      assert.throws(() => pool.segments(), PoolError)
    })
  })
}

it('a view is a segment of its own, ready after its access is set and told before it is unmapped', () => {
  const device = new TestDevice()
  const pool = device.createPool({ backing: 'virtual', maxPoolBytes: 16 * MiB })
  const shadow = new Shadow()
  pool.observeSegments(shadow)
  const parts = Array.from({ length: 8 }, () => pool.allocate(2 * MiB))
  for (const index of [1, 3, 5]) parts[index].free()
  const before = shadow.bytesAt.size
  using joined = pool.allocate(6 * MiB) // from three places
  assert.equal(shadow.bytesAt.size, before + 1)
  shadow.check(pool, [joined])
})

describe('segments: pinned', () => {
  for (const seed of [1, 2, 3]) {
    it(`are what the observer was told, whatever the pool does (seed ${seed})`, () => {
      const pool = new TestDevice().createHostPool({ maxPoolBytes: 64 * MiB, segmentBytes: 1 * MiB })
      const shadow = new Shadow()
      const hostPool: Told = {
        segments: () => pool.segments(),
        trimTo: bytes => pool.trimTo(bytes),
        tryAllocate(bytes) {
          const buffer = pool.tryAllocate(bytes)
          if (buffer === null) return null
          const ptr = pool.context.driver.hostAddress(buffer.bytes)
          return { ptr, byteLength: bytes, free: () => buffer.free() }
        },
      }
      const stop = pool.observeSegments(shadow)
      const left = program(hostPool, seed, buffers => shadow.check(pool, buffers))
      assert.ok(shadow.said.ready > 3 && shadow.said.leaving > 0)
      for (const buffer of left) buffer.free()
      pool.close()
      assert.equal(shadow.bytesAt.size, 0, 'all segments leave when the pool closes')
      stop()
      assert.throws(() => pool.segments(), PoolError)
    })
  }

  it('are listed for a pool that threads share, as many as there are', () => {
    const { pool } = new TestDevice().createSharedHost({ segmentBytes: 64 * KiB })
    const held = Array.from({ length: 300 }, () => pool.allocate(64 * KiB))
    const addresses = held.map(({ bytes }) => pool.context.driver.hostAddress(bytes)).sort((a, b) => a - b)
    assert.deepEqual(
      pool.segments(),
      addresses.map(ptr => ({ ptr, bytes: 64 * KiB })),
    )
    assert.throws(() => pool.observeSegments(new Shadow()), {
      name: 'PoolError',
      message: /or make it with createPool/,
    })
    pool.close()
    assert.throws(() => pool.segments(), PoolError)
  })
})

for (const backing of ['virtual', 'segments', 'registrable'] as const) {
  describe(`segments: shared by threads, ${backing}`, () => {
    for (const seed of [1, 2, 3]) {
      it(`are behind all buffers, and the same for each thread (seed ${seed})`, () => {
        const { pool, attach } = new TestDevice().createSharedPool({ backing, maxPoolBytes: 64 * MiB })
        const other = attach()
        let changes = 0
        let last: PoolSegment[] = []
        const left = program(pool, seed, buffers => {
          const segments = pool.segments()
          const shadow = new Shadow()
          for (const segment of segments) shadow.ready(segment)
          shadow.check(other, buffers)
          const bytes = segments.reduce((sum, segment) => sum + segment.bytes, 0)
          assert.ok(bytes >= pool.stats().reservedBytes, 'all memory is in a segment')
          if (segments.length !== last.length) changes++
          last = segments
        })
        assert.ok(changes > 3)
        for (const buffer of left) buffer.free()
        pool.trimTo(0)
        assert.deepEqual(pool.segments(), [])
        other.close()
        pool.close()
        assert.throws(() => pool.segments(), PoolError)
      })
    }

    it('have no observer', () => {
      const { pool } = new TestDevice().createSharedPool({ backing })
      const refusal = { name: 'PoolError', message: /another thread maps the memory.*look at segments\(\)/ }
      assert.throws(() => pool.observeSegments(new Shadow()), refusal)
    })
  })
}

describe('segments: growable', () => {
  for (const seed of [1, 2, 3]) {
    it(`are what the observer was told, whatever the buffer does (seed ${seed})`, () => {
      const random = new Random(seed)
      const buffer = new TestDevice().createGrowableBuffer({ bytes: 3 * MiB, capacityBytes: 32 * MiB })
      const shadow = new Shadow()
      buffer.observeSegments(shadow)
      for (let step = 0; step < STEPS; step++) {
        const { byteLength } = buffer
        if (random.below(2) === 0) buffer.grow(byteLength + random.below(32 * MiB - byteLength + 1))
        else buffer.shrink(random.below(byteLength + 1))
        if (random.below(2) === 0) buffer.settleSync()
        shadow.check(buffer, [buffer])
      }
      assert.ok(shadow.said.ready > 3 && shadow.said.leaving > 0)
      buffer.free()
      buffer.settleSync()
      assert.equal(shadow.bytesAt.size, 0, 'all segments leave when the buffer is freed')
    })
  }

  it('that the observer refuses go back, and the buffer works on', () => {
    const device = new TestDevice()
    const buffer = device.createGrowableBuffer({ bytes: 4 * MiB, capacityBytes: 32 * MiB })
    const shadow = new Shadow()
    let refusing = false
    const asked = (does: (segment: PoolSegment) => void) => (segment: PoolSegment) => {
      if (refusing) throw new RangeError('not now')
      does(segment)
    }
    buffer.observeSegments({
      ready: asked(segment => shadow.ready(segment)),
      leaving: asked(segment => shadow.leaving(segment)),
    })
    buffer.fill(7)
    refusing = true
    const before = device.freeBytes()
    assert.throws(() => buffer.grow(24 * MiB), { name: 'RangeError', message: 'not now' })
    assert.deepEqual([device.freeBytes(), buffer.byteLength], [before, 4 * MiB])
    refusing = false
    buffer.grow(24 * MiB)
    shadow.check(buffer, [buffer])
    refusing = true
    buffer.shrink(2 * MiB)
    assert.throws(() => buffer.settleSync(), { name: 'RangeError', message: 'not now' })
    refusing = false
    buffer.settleSync()
    shadow.check(buffer, [buffer])
    assert.equal(buffer.readSync()[0], 7)
    buffer.free()
  })

  it('keep the buffer from sleeping, and have one observer', async () => {
    const buffer = new TestDevice().createGrowableBuffer({ bytes: 4 * MiB })
    const stop = buffer.observeSegments(new Shadow())
    assert.throws(() => buffer.observeSegments(new Shadow()), { name: 'PoolError', message: /there is an observer/ })
    assert.throws(() => buffer.observeSegments({} as never), TypeError)
    await assert.rejects(buffer.sleep(), { name: 'PoolError', message: /the segments are registered, by an observer/ })
    stop()
    await buffer.sleep()
    assert.deepEqual(buffer.segments(), [])
    await buffer.wake()
    assert.equal(buffer.segments().length > 0, true)
    buffer.free()
  })
})
