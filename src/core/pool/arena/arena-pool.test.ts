import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { GiB, KiB, MiB } from '../../base/bytes.js'
import { OutOfMemoryError, PoolError } from '../../base/errors.js'
import { failingCallsSuite } from '../failing-calls.suite.js'
import { TestDevice } from '../pool.fixture.js'
import { fallback } from '../wrappers/fallback.js'
import type { ArenaOptions } from './arena-options.js'

function setUp(options: ArenaOptions = { bytes: 4 * MiB }) {
  const device = new TestDevice()
  const [a, b, c] = [device.createStream(), device.createStream(), device.createStream()]
  return { device, arena: device.createArenaPool(options), a, b, c }
}

describe('arena: memory', () => {
  it('hands out memory in a row, and does not advance without room', () => {
    const { arena } = setUp()
    const [first, second, third] = [1000, 1, 257].map(bytes => arena.allocate(bytes))
    assert.deepEqual([second.ptr - first.ptr, third.ptr - second.ptr], [1024, 256])
    assert.equal(arena.availableBytes, 4 * MiB - 1024 - 256 - 512)
    const { availableBytes } = arena
    assert.equal(arena.tryAllocate(4 * MiB), null)
    assert.throws(() => arena.allocate(4 * MiB), OutOfMemoryError)
    assert.equal(arena.tryAllocate(3 * MiB, undefined, 2 * MiB), null)
    assert.equal(arena.availableBytes, availableBytes)
    const rest = arena.allocate(availableBytes)
    assert.equal(rest.ptr, third.ptr + 512)
    assert.equal(arena.availableBytes, 0)
    assert.equal(arena.tryAllocate(1), null)
    arena.check()
  })

  it('running out names the memory left and a remedy', () => {
    const { arena } = setUp({ bytes: 32 * MiB })
    assert.throws(() => arena.allocate(40e6), {
      name: 'OutOfMemoryError',
      message: /no room for 38\.15 MiB.*the arena has 32 MiB in all: make it larger, or fall back/,
    })
    arena.allocate(30 * MiB)
    assert.throws(
      () => arena.allocate(3 * MiB),
      (error: unknown) => {
        assert.ok(error instanceof OutOfMemoryError)
        assert.match(error.message, /the arena has 2 MiB of 32 MiB left: reset it, make it larger, or fall back/)
        const { requestedBytes, liveBytes, reservedBytes, largestFreeBytes, maxPoolBytes } = error.figures
        const expected = [3 * MiB, 30 * MiB, 32 * MiB, 2 * MiB, 32 * MiB]
        assert.deepEqual([requestedBytes, liveBytes, reservedBytes, largestFreeBytes, maxPoolBytes], expected)
        return true
      },
    )
  })

  it('falls back to the driver for a size that does not fit', () => {
    const { device, arena } = setUp()
    const plain = device.createPlainPool()
    const pool = fallback(arena, plain)
    using large = pool.allocate(5 * MiB)
    using small = pool.allocate(1 * MiB)
    assert.deepEqual([large.allocation.pool, small.allocation.pool, pool.fallbacks], [plain, arena, 1])
  })

  it('gives alignments larger than that of its first address', () => {
    const { device } = setUp()
    for (const bytes of [3 * MiB + 1, 5 * MiB]) {
      const arena = device.createArenaPool({ bytes })
      for (let alignment = 1; alignment <= 512 * KiB; alignment *= 2) {
        const buffer = arena.allocate(100, undefined, alignment)
        assert.equal(buffer.ptr % Math.max(256, alignment), 0)
      }
      arena.check()
      arena.close()
    }
    const arena = device.createArenaPool({ bytes: 300 * KiB, maxPoolBytes: 8 * MiB })
    arena.allocate(1)
    assert.equal(arena.allocate(1 * MiB, undefined, 2 * MiB).ptr % (2 * MiB), 0)
    assert.equal(arena.availableBytes, 5 * MiB)
  })

  it('a buffer without a stream belongs to the default stream', () => {
    const { device, arena } = setUp()
    const a = device.createStream()
    const { defaultStream } = device
    for (const stream of [
      undefined,
      undefined,
      a,
      a,
      undefined,
      undefined,
      defaultStream,
      undefined,
      a,
      defaultStream,
    ]) {
      assert.equal(arena.allocate(1, stream).stream, stream ?? defaultStream)
      assert.equal(arena.tryAllocate(1, stream)?.stream, stream ?? defaultStream)
    }
  })

  it('a single free makes one buffer stale, and gives no memory back before a reset', () => {
    const { arena } = setUp()
    const [first, second] = [arena.allocate(1 * MiB), arena.allocate(1 * MiB)]
    second.free()
    assert.deepEqual([first.freed, second.freed, arena.availableBytes], [false, true, 2 * MiB])
    assert.equal(arena.stats().liveBytes, 1 * MiB)
    assert.equal(arena.allocate(1).ptr, first.ptr + 2 * MiB)
    arena.reset()
    assert.equal(arena.availableBytes, 4 * MiB)
    arena.check()
  })

  it('reset makes every buffer stale, and the same memory is handed out again', () => {
    const { arena } = setUp()
    const old = Array.from({ length: 10 }, () => arena.allocate(1000))
    const { ptr } = old[0]
    arena.reset()
    assert.ok(old.every(buffer => buffer.freed))
    assert.deepEqual([arena.stats().liveBuffers, arena.stats().frees, arena.stats().requestedBytes], [0, 10, 0])
    const again = Array.from({ length: 10 }, () => arena.allocate(1000))
    assert.equal(again[0].ptr, ptr)
    assert.ok(old.every(buffer => buffer.freed))
    assert.throws(() => old[3].free(), { name: 'PoolError', message: /freed, or the arena reset or rewound/ })
    assert.throws(() => old[3].fill(0), PoolError)
    old[3][Symbol.dispose]()
    assert.ok(again.every(buffer => !buffer.freed))
    arena.check()
  })

  it('rewinding to a mark keeps the buffers below, with their contents, and drops those above', () => {
    const { arena } = setUp()
    const below = arena.allocate(1000)
    below.fill(7)
    const outer = arena.mark()
    const middle = arena.allocate(1000)
    const inner = arena.mark()
    const above = arena.allocate(1000)
    const { ptr } = above
    arena.rewind(inner)
    assert.deepEqual([below.freed, middle.freed, above.freed], [false, false, true])
    assert.equal(arena.allocate(1).ptr, ptr)
    arena.rewind(inner)
    arena.rewind(outer)
    assert.deepEqual([below.freed, middle.freed], [false, true])
    arena.allocate(1 * MiB).fill(1)
    arena.rewind(outer)
    assert.equal(below.readSync()[999], 7)
    assert.equal(arena.stats().liveBuffers, 1)
    arena.check()
  })

  it('an outdated mark is refused, and nothing changes', () => {
    const { device, arena, a } = setUp()
    const other = device.createArenaPool({ bytes: 1 * MiB })
    const bottom = arena.mark()
    arena.allocate(100)
    const low = arena.mark()
    arena.allocate(100)
    const high = arena.mark()
    arena.rewind(low)
    assert.throws(() => arena.rewind(high), { name: 'PoolError', message: /rewound to below the mark/ })
    const kept = arena.allocate(100_000)
    assert.throws(() => arena.rewind(high), { name: 'PoolError', message: /rewound to below the mark/ })
    assert.throws(() => other.rewind(low), { name: 'PoolError', message: /another arena/ })
    for (const bad of [undefined, null, 1, {}, kept]) {
      assert.throws(() => arena.rewind(bad as never), { name: 'TypeError', message: /mark must come from mark\(\)/ })
    }
    assert.throws(() => arena.rewind(low, new TestDevice().createStream()), {
      name: 'PoolError',
      message: /another device/,
    })
    assert.throws(() => arena.reset({} as never), { name: 'TypeError', message: /must be a Stream/ })
    a.close()
    assert.throws(() => arena.rewind(low, a), { name: 'PoolError', message: /stream is closed/ })
    assert.throws(() => arena.reset(a), { name: 'PoolError', message: /stream is closed/ })
    assert.equal(kept.freed, false)
    arena.reset()
    for (const mark of [bottom, low]) {
      assert.throws(() => arena.rewind(mark), { name: 'PoolError', message: /reset after the mark/ })
    }
    arena.close()
    for (const use of [() => arena.mark(), () => arena.reset(), () => arena.rewind(bottom), () => arena.check()]) {
      assert.throws(use, { name: 'PoolError', message: /closed/ })
    }
    assert.equal(arena.availableBytes, 0)
  })

  it('its limit is fixed', () => {
    const { arena } = setUp({ bytes: 1 * MiB, maxPoolBytes: 8 * MiB })
    assert.equal(arena.maxPoolBytes, 8 * MiB)
    assert.throws(() => Object.assign(arena, { maxPoolBytes: 1 }), { name: 'PoolError', message: /limit of an arena/ })
  })

  it('bad options are refused by name', () => {
    const { device } = setUp()
    const bad: readonly [unknown, string, RegExp][] = [
      [undefined, 'TypeError', /options must be an object/],
      [{}, 'TypeError', /bytes/],
      [{ bytes: 0 }, 'RangeError', /bytes/],
      [{ bytes: 1.5 }, 'RangeError', /bytes/],
      [{ bytes: '1' }, 'TypeError', /bytes/],
      [
        { bytes: 1, maxByte: 2 },
        'TypeError',
        /createArenaPool: unknown option 'maxByte'; the options are bytes, maxPoolBytes/,
      ],
      [{ bytes: 2, maxPoolBytes: 1 }, 'RangeError', /maxPoolBytes \(1 B\) is below bytes \(2 B\)/],
      [{ bytes: 1, maxPoolBytes: Infinity }, 'RangeError', /maxPoolBytes/],
      [{ bytes: 1, maxPoolBytes: 600 * GiB }, 'RangeError', /at most 511 GiB/],
    ]
    for (const [options, name, message] of bad) {
      assert.throws(() => device.createArenaPool(options as ArenaOptions), { name, message }, `${message}`)
    }
  })

  it('a device without room throws an error with figures', () => {
    const { device } = setUp()
    for (const options of [{ bytes: 1 * GiB }, { bytes: 1 * GiB, maxPoolBytes: 2 * GiB }]) {
      assert.throws(
        () => device.createArenaPool(options),
        (error: unknown) => {
          assert.ok(error instanceof OutOfMemoryError)
          assert.match(error.message, /createArenaPool: no room for 1 GiB.*make the pool smaller/)
          assert.deepEqual([error.figures.requestedBytes, error.figures.deviceFreeBytes], [1 * GiB, 60 * MiB])
          return true
        },
      )
      assert.equal(device.freeBytes(), 60 * MiB)
    }
  })
})

describe('arena: growth', () => {
  it('takes memory when it is needed, without moving', () => {
    const { device, arena } = setUp({ bytes: 1 * MiB, maxPoolBytes: 20 * MiB })
    const { reservedBytes } = arena.stats()
    assert.equal(reservedBytes, 2 * MiB, 'whole granules')
    const first = arena.allocate(1 * MiB)
    const { ptr } = first
    first.fill(5)
    const second = arena.allocate(7 * MiB)
    assert.equal(second.ptr, ptr + 1 * MiB)
    second.fill(6)
    assert.deepEqual([arena.stats().reservedBytes, arena.stats().growths], [8 * MiB, 1])
    assert.equal(arena.availableBytes, 12 * MiB)
    const rest = arena.allocate(12 * MiB)
    rest.fill(8)
    assert.equal(arena.tryAllocate(1), null)
    assert.deepEqual([first.readSync()[0], second.readSync(7 * MiB - 1)[0]], [5, 6])
    arena.reset()
    assert.equal(arena.stats().reservedBytes, 20 * MiB, 'a reset keeps the memory')
    assert.equal(arena.allocate(20 * MiB).ptr, ptr)
    arena.check()
    arena.close()
    assert.equal(device.freeBytes(), 64 * MiB)
  })

  it('never grows beyond maxPoolBytes, even between two granules', () => {
    const { arena } = setUp({ bytes: 1, maxPoolBytes: 3 * MiB })
    assert.equal(arena.availableBytes, 3 * MiB)
    assert.equal(arena.tryAllocate(3 * MiB + 1), null)
    assert.equal(arena.stats().growths, 0, 'nothing is tried for what can never fit')
    arena.allocate(3 * MiB)
    assert.equal(arena.tryAllocate(1), null)
    arena.check()
  })

  it('names a full device, and works again when the device has room', () => {
    const { device, arena } = setUp({ bytes: 2 * MiB, maxPoolBytes: 40 * MiB })
    const taken = device.context.activate().cuMemAlloc(60 * MiB)
    const held = arena.allocate(1 * MiB)
    const { availableBytes } = arena
    assert.equal(arena.tryAllocate(10 * MiB), null)
    assert.throws(() => arena.allocate(10 * MiB), { name: 'OutOfMemoryError', message: /the device itself is full/ })
    assert.throws(() => arena.allocate(60 * MiB), { message: /the arena has 40 MiB in all/ })
    assert.deepEqual([arena.availableBytes, arena.stats().reservedBytes], [availableBytes, 2 * MiB])
    arena.allocate(1 * MiB).free()
    device.driver.cuMemFree(taken)
    assert.equal(arena.allocate(10 * MiB).ptr, held.ptr + 2 * MiB)
    arena.check()
  })

  it('needs virtual memory, and names an alternative', () => {
    const expected = { name: 'PoolError', message: /maxPoolBytes needs virtual memory.*leave maxPoolBytes out/ }
    const without = new TestDevice({ virtualMemory: false })
    assert.throws(() => without.createArenaPool({ bytes: 1 * MiB, maxPoolBytes: 2 * MiB }), expected)
    without.createArenaPool({ bytes: 1 * MiB, maxPoolBytes: 1 * MiB }).allocate(1 * MiB)
    const blocked = new TestDevice({ faults: [{ call: 'cuMemSetAccess', code: 801, onwards: true }] })
    assert.throws(() => blocked.createArenaPool({ bytes: 1 * MiB, maxPoolBytes: 2 * MiB }), expected)
    assert.equal(blocked.freeBytes(), 64 * MiB)
  })
})

describe('arena: close', () => {
  it('waits for pending work and reports lost buffers', () => {
    for (const options of [{ bytes: 4 * MiB }, { bytes: 1 * MiB, maxPoolBytes: 4 * MiB }]) {
      const { device, arena, a } = setUp(options)
      const held = [arena.allocate(1000, a), arena.allocate(3 * MiB, a)]
      arena.allocate(10, a).free()
      device.hold(a)
      held[0].fill(1)
      assert.deepEqual(arena.close(), { heldBuffers: 2, heldBytes: 1000 + 3 * MiB })
      assert.equal(arena.closed, true)
      assert.equal(a.query(), true)
      assert.ok(held.every(buffer => buffer.freed))
      assert.throws(() => held[0].ptr, { name: 'PoolError', message: /pool is closed/ })
      assert.deepEqual(arena.close(), { heldBuffers: 0, heldBytes: 0 })
      assert.throws(() => arena.allocate(1000, a), { name: 'PoolError', message: /closed/ })
      assert.deepEqual([arena.stats().reservedBytes, arena.stats().largestFreeBytes], [0, 0])
      assert.equal(device.freeBytes(), 64 * MiB)
    }
  })
})

for (const [name, options] of [
  ['arena', { bytes: 16 * MiB }],
  ['registrable arena', { bytes: 16 * MiB, backing: 'registrable' }],
  ['arena that grows', { bytes: 1 * MiB, maxPoolBytes: 16 * MiB }],
] as const) {
  failingCallsSuite(name, {
    open: device => device.createArenaPool(options),
    use(arena, attempts, device, b) {
      const a = device.defaultStream
      for (const stream of [a, b, a]) attempts.hold(() => arena.allocate(700 * KiB, stream))
      const mark = arena.mark()
      attempts.hold(() => arena.allocate(5 * MiB, b, 2 * MiB))
      attempts.try(() => arena.rewind(mark, a))
      for (const stream of [b, a]) attempts.hold(() => arena.allocate(1 * MiB, stream))
      attempts.try(() => attempts.live[0]?.recordUse(b))
      attempts.try(() => arena.reset(b))
      attempts.try(() => {
        const short = device.createStream()
        try {
          attempts.hold(() => arena.allocate(100, short))
        } finally {
          short.close()
        }
      })
      attempts.hold(() => arena.allocate(3 * MiB, a))
      attempts.try(() => attempts.live[0]?.free(b))
      attempts.try(() => arena.reset())
      for (const stream of [a, b]) attempts.hold(() => arena.allocate(3 * MiB, stream))
    },
    takeAll(arena) {
      arena.reset()
      assert.equal(arena.availableBytes, 16 * MiB)
      arena.allocate(16 * MiB).free()
    },
  })
}
