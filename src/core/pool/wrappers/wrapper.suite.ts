// The contract of a wrapper, alone and around any other: the contract of a pool, and the promises that a wrapper
// could break. Buffers belong to the outermost wrapper, and every argument arrives. Every layer that counts has
// counted exactly the live buffers, also after an out of memory or a failed driver call.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { KiB, MiB } from '../../base/bytes.js'
import { OutOfMemoryError, PoolError } from '../../base/errors.js'
import { Random } from '../../base/random.js'
import { fakeNvtx } from '../../libraries/nvtx.fixture.js'
import type { Stream } from '../../order/stream.js'
import { assertAbortable } from '../../order/waits.fixture.js'
import type { SegmentObserver } from '../backing/segment-watch.js'
import type { DeviceBuffer } from '../buffer.js'
import type { PoolOptions } from '../caching/options.js'
import type { PlainPool } from '../driver-owned/plain-pool.js'
import { assertConsistent, isRefused, TestDevice } from '../pool.fixture.js'
import type { Pool } from '../pool.js'
import { poolSuite } from '../pool.suite.js'
import { fallback } from './fallback.js'
import { limited } from './limited.js'
import { profiled } from './profiled.js'
import { retrying } from './retrying.js'
import { statistics } from './statistics.js'
import { tagged } from './tagged.js'
import type { Wrapper } from './wrapper.js'

/** One wrapper put around a pool. */
interface Layer {
  readonly pool: Wrapper
  /** the bytes and buffers that it counts as live; absent if it does not count */
  held?(): { readonly bytes: number; readonly buffers?: number }
  /** a second pool that its buffers come from */
  readonly besides?: PlainPool
}
export type Wrap = (upstream: Pool, device: TestDevice) => Layer

const UPSTREAM_BYTES = 24 * MiB
const LIMIT_BYTES = 16 * MiB
/** Around another wrapper, one of so many driver calls fails: alone, each wrapper meets the failure of every call. */
const APART = 7
/** more than the device's memory */
const TOO_MUCH_BYTES = 65 * MiB

/** The wrappers of this folder by name; each has room for 16 MiB. */
export const WRAPPERS: Readonly<Record<string, Wrap>> = {
  limited: upstream => {
    const pool = limited(upstream, LIMIT_BYTES)
    return { pool, held: () => ({ bytes: pool.handedOutBytes }) }
  },
  tagged: upstream => {
    const pool = tagged(upstream, { limits: { untagged: LIMIT_BYTES } })
    return {
      pool,
      held: () => {
        const { requestedBytes, liveBuffers } = pool.statsByTag()['untagged']
        return { bytes: requestedBytes, buffers: liveBuffers }
      },
    }
  },
  statistics: upstream => {
    const pool = statistics(upstream)
    const { bytes, allocations } = pool.counters
    return { pool, held: () => ({ bytes: bytes.current, buffers: allocations.current }) }
  },
  retrying: upstream => ({ pool: retrying(upstream, (_, attempt) => attempt === 1) }),
  profiled: upstream => ({ pool: profiled(upstream, { nvtx: fakeNvtx().nvtx }) }),
  'with fallback': (upstream, device) => {
    const besides = device.createPlainPool()
    return { pool: fallback(upstream, besides), besides }
  },
}

/** `wraps` around a caching pool of 24 MiB on a device of 64 MiB, innermost first. */
function open(wraps: readonly Wrap[], options: PoolOptions = {}) {
  const device = new TestDevice({ devices: 2 })
  const upstream = device.createPool({ maxPoolBytes: UPSTREAM_BYTES, ...options })
  const layers: Layer[] = []
  let pool: Pool = upstream
  for (const wrap of wraps) {
    layers.push(wrap(pool, device))
    pool = layers[layers.length - 1].pool
  }
  return { device, upstream, layers, pool }
}

type Opened = ReturnType<typeof open>

/** Asserts that every layer has counted the buffers of its upstream, and that the pools at the bottom agree. */
function assertCounted({ upstream, layers, pool }: Opened, held: readonly DeviceBuffer[]): void {
  for (const [depth, { held: counted }] of layers.entries()) {
    if (counted === undefined) continue
    const beside = layers.slice(depth + 1).map(outer => outer.besides)
    const through = held.filter(({ allocation }) => !beside.some(other => Object.is(other, allocation.pool)))
    const { bytes, buffers = through.length } = counted()
    const expected = through.reduce((sum, buffer) => sum + buffer.byteLength, 0)
    assert.deepEqual([bytes, buffers], [expected, through.length], `layer ${depth}`)
  }
  const { liveBuffers, requestedBytes, allocations, frees } = pool.stats()
  const requested = held.reduce((sum, buffer) => sum + buffer.byteLength, 0)
  assert.deepEqual([liveBuffers, requestedBytes, allocations - frees], [held.length, requested, held.length])
  assertConsistent(upstream, spareBytesOf(upstream))
}

/** Memory that a failed growth left for a later one. */
function spareBytesOf(pool: Opened['upstream']): number {
  const blocks = pool.snapshot().ranges.flatMap(range => range.blocks)
  const counted = blocks.filter(({ state }) => state !== 'absent' && state !== 'part')
  const used = counted.reduce((sum, block) => sum + block.bytes, 0)
  return pool.stats().reservedBytes - used
}

/** Allocates and frees by all methods, and often asks for too much; refused steps change nothing. */
class Program {
  readonly held: DeviceBuffer[] = []
  /** how many allocations failed */
  refusals = 0
  private readonly streams: readonly Stream[]
  private readonly random = new Random(5)

  constructor(private readonly opened: Opened) {
    this.streams = [opened.device.defaultStream, opened.device.createStream()]
  }

  run(afterEachStep = () => {}): void {
    for (let step = 0; step < 24; step++) {
      const bytes = step % 8 === 7 ? TOO_MUCH_BYTES : this.random.logUniform(1, 8 * MiB)
      this.allocate(bytes, step)
      if (step % 3 === 2 && this.held.length > 0) this.free(this.random.below(this.held.length), step)
      afterEachStep()
    }
  }

  freeAll(): void {
    for (const buffer of this.held.splice(0)) buffer.free()
  }

  private allocate(bytes: number, step: number): void {
    const { pool } = this.opened
    const stream = this.streams[step % 2]
    const alignment = step % 3 === 0 ? 64 * KiB : undefined
    let buffer: DeviceBuffer | null = null
    isRefused(() => {
      buffer = step % 4 < 2 ? pool.allocate(bytes, stream, alignment) : pool.tryAllocate(bytes, stream, alignment)
    }, OutOfMemoryError)
    if (buffer === null) this.refusals++
    else this.held.push(buffer)
  }

  private free(index: number, step: number): void {
    const buffer = this.held[index]
    isRefused(() => {
      if (step % 2 === 0) buffer.free(this.streams[this.random.below(2)])
      else this.opened.pool.free(buffer)
    }, OutOfMemoryError)
    if (buffer.freed) this.held.splice(index, 1)
  }
}

/** Runs the shared tests with `wraps` around one another, innermost first. */
export function wrapperSuite(name: string, wraps: readonly Wrap[]): void {
  poolSuite(name, () => {
    const { device, upstream, layers, pool } = open(wraps)
    const close = () => {
      upstream.close()
      for (const { besides } of layers) besides?.close()
    }
    return { device, pool, check: () => assertConsistent(upstream), close }
  })

  describe(`wrapper contract: ${name}`, () => {
    it('stream and alignment arrive upstream, and only the outermost wrapper frees a buffer', () => {
      const opened = open(wraps)
      const { device, layers, pool, upstream } = opened
      const stream = device.createStream()
      for (const verb of ['allocate', 'tryAllocate'] as const) {
        const buffer = pool[verb](100, stream, 1 * MiB)!
        assert.deepEqual([buffer.pool === pool, buffer.stream === stream, buffer.ptr % MiB], [true, true, 0])
        for (const inner of [upstream, ...layers.slice(0, -1).map(layer => layer.pool)]) {
          assert.throws(() => inner.free(buffer), { name: 'PoolError', message: /another pool/ })
        }
        assertCounted(opened, [buffer])
        pool.free(buffer)
        assertCounted(opened, [])
      }
      using array = pool.allocateArray(Float32Array, 10, stream)
      assertCounted(opened, [array.buffer])
    })

    it('a free arrives with its stream, or without one', t => {
      const { device, pool, upstream } = open(wraps)
      const stream = device.createStream()
      const release = t.mock.method(upstream, 'release')
      const [first, second] = [pool.allocate(1000), pool.allocate(1000)]
      first.free(stream)
      pool.free(second)
      const [named, unnamed] = release.mock.calls.map(call => call.arguments)
      assert.ok(named[0] === first && named[1] === stream)
      assert.ok(unnamed[0] === second && unnamed[1] === undefined)
    })

    it('a free arrives while the pool sleeps', async () => {
      const opened = open(wraps)
      const { pool, upstream } = opened
      const [first, second] = [pool.allocate(1000), pool.allocate(2 * MiB)]
      await upstream.sleep()
      first.free()
      pool.free(second)
      assertCounted(opened, [])
      await upstream.wake()
      upstream.check()
    })

    it('waits for room within all limits, and aborted waits count nothing', { timeout: 10_000 }, async () => {
      const opened = open(wraps)
      const { pool } = opened
      const held: DeviceBuffer[] = []
      for (let more = pool.tryAllocate(8 * MiB); more !== null; more = pool.tryAllocate(8 * MiB)) held.push(more)
      await assertAbortable(
        'whenAvailable',
        options => pool.whenAvailable(8 * MiB, options),
        () => {
          assertCounted(opened, held)
          for (const buffer of held.splice(0)) buffer.free()
        },
      )
      assertCounted(opened, [])
      pool.allocate(8 * MiB).free()
    })

    it('a second free is refused, and a refused free counts nothing', () => {
      const opened = open(wraps)
      const { pool } = opened
      const freed = pool.allocate(1000)
      freed.free()
      const held = pool.allocate(1000)
      const elsewhere = new TestDevice().createStream()
      const refused: readonly (() => void)[] = [
        () => freed.free(),
        () => pool.free(freed),
        () => held.free(elsewhere),
        () => pool.free(held, elsewhere),
      ]
      for (const free of refused) {
        assert.throws(free, PoolError)
        assertCounted(opened, [held])
      }
      freed[Symbol.dispose]()
      assertCounted(opened, [held])
      held[Symbol.dispose]()
      held[Symbol.dispose]()
      assertCounted(opened, [])
    })

    it('what an observer of segments throws ends a call, and the counts are right', () => {
      const opened = open(wraps, { releaseThresholdBytes: 0 }) // a free gives memory back, and tells the observer
      const { pool, upstream } = opened
      const refused = { message: 'the observer refuses' }
      let refusing: keyof SegmentObserver | null = 'ready'
      const answer = (method: keyof SegmentObserver) => () => {
        if (method === refusing) throw new Error(refused.message)
      }
      upstream.observeSegments({ ready: answer('ready'), leaving: answer('leaving') })
      for (const verb of ['allocate', 'tryAllocate'] as const) assert.throws(() => pool[verb](12 * MiB), refused)
      assertCounted(opened, [])
      const frees: ((buffer: DeviceBuffer) => void)[] = [buffer => buffer.free(), buffer => pool.free(buffer)]
      for (const free of frees) {
        refusing = null
        const buffer = pool.allocate(12 * MiB)
        refusing = 'leaving'
        assert.throws(() => free(buffer), refused)
        assert.equal(buffer.freed, true)
        assertCounted(opened, [])
      }
    })

    it('a bad size or alignment is refused and counts nothing', () => {
      const opened = open(wraps)
      const { pool } = opened
      for (const bad of [0, -1, 0.5, Number.NaN, 2 ** 53]) {
        assert.throws(() => pool.allocate(bad), { name: 'RangeError', message: /bytes/ })
        assert.throws(() => pool.tryAllocate(bad), { name: 'RangeError', message: /bytes/ })
        assert.throws(() => pool.allocate(1, undefined, bad), { name: 'RangeError', message: /alignment/ })
        assert.throws(() => pool.tryAllocate(1, undefined, bad), { name: 'RangeError', message: /alignment/ })
      }
      assertCounted(opened, [])
      assert.equal(pool.stats().allocations, 0)
    })

    it('an out of memory counts nothing, at each step of a program that often runs out', () => {
      const opened = open(wraps)
      const program = new Program(opened)
      program.run(() => assertCounted(opened, program.held))
      assert.ok(program.refusals >= 3 && program.held.length > 0, `${program.refusals} refusals`)
      program.freeAll()
      assertCounted(opened, [])
      opened.pool.allocate(LIMIT_BYTES).free()
    })

    for (const [what, code, onwards] of [
      ['out of memory', 2, false],
      ['another refusal', 999, false],
      ['out of memory from then on', 2, true],
    ] as const) {
      it(`a failure of any driver call, with ${what}, leaves the counts right`, () => {
        const apart = wraps.length === 1 ? 1 : APART
        let nth = 1 + (name.length % apart)
        for (let met = true; met; nth += apart) {
          const opened = open(wraps)
          const { driver } = opened.device
          const program = new Program(opened)
          const before = opened.device.callCount
          driver.failCall({ call: '*', nth, code, onwards })
          program.run()
          met = opened.device.callCount - before >= nth
          driver.clearFaults()
          assertCounted(opened, program.held)
          program.freeAll()
          assertCounted(opened, [])
          opened.pool.allocate(LIMIT_BYTES).free()
          assertCounted(opened, [])
        }
        assert.ok(nth > 20, `${nth} driver calls`)
      })
    }
  })
}
