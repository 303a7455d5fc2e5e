import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { GiB, KiB, MiB } from '../../base/bytes.js'
import { OutOfMemoryError, PoolError } from '../../base/errors.js'
import { State } from '../../heap/records.js'
import type { Stream } from '../../order/stream.js'
import type { DeviceBuffer } from '../buffer.js'
import { failingCallsSuite } from '../failing-calls.suite.js'
import { TestDevice } from '../pool.fixture.js'
import { fallback } from '../wrappers/fallback.js'
import type { BlockPool } from './block-pool.js'
import type { SharedBlockPool } from './shared-block-pool.js'

const BLOCK = 4 * KiB

function setUp(count = 4, maxCount = count) {
  const device = new TestDevice()
  const pool = device.createBlockPool({ blockBytes: BLOCK, count, maxCount })
  return { device, pool, a: device.createStream(), b: device.createStream(), c: device.createStream() }
}

/** Takes all blocks; returns their addresses. */
function takeAll(pool: BlockPool | SharedBlockPool, stream?: Stream): DeviceBuffer[] {
  const all: DeviceBuffer[] = []
  for (let one = pool.tryAllocate(BLOCK, stream); one !== null; one = pool.tryAllocate(BLOCK, stream)) all.push(one)
  return all
}

describe('block pool: blocks', () => {
  it('counts ten of a hundred blocks as taken and given back', () => {
    const { pool } = setUp(100)
    assert.equal(pool.availableBlocks, 100)
    const taken = Array.from({ length: 10 }, () => pool.allocate(BLOCK))
    assert.equal(pool.availableBlocks, 90)
    assert.deepEqual(
      taken.map(buffer => buffer.ptr - taken[0].ptr),
      taken.map((_, index) => index * BLOCK),
    )
    for (const buffer of taken) buffer.free()
    assert.equal(pool.availableBlocks, 100)
    const [newest, older] = [pool.allocate(BLOCK), pool.allocate(BLOCK)]
    assert.equal(newest.ptr - older.ptr, BLOCK, 'what was freed last is taken first')
    assert.deepEqual(pool.stats(), {
      ...pool.stats(),
      liveBuffers: 2,
      liveBytes: 2 * BLOCK,
      peakLiveBytes: 10 * BLOCK,
      requestedBytes: 2 * BLOCK,
      reservedBytes: 100 * BLOCK,
      maxPoolBytes: 100 * BLOCK,
      allocations: 12,
      frees: 10,
      cacheMisses: 0,
      growths: 0,
    })
    pool.check()
  })

  it('remembers the size of a request smaller than a block', () => {
    const { pool } = setUp(2, 4)
    const [small, whole] = [pool.allocate(1), pool.allocate(BLOCK)]
    assert.deepEqual([small.byteLength, whole.byteLength, pool.stats().requestedBytes], [1, BLOCK, 1 + BLOCK])
    assert.equal(pool.allocate(3, undefined, BLOCK).byteLength, 3, 'after a miss')
    assert.equal(pool.allocate(4, undefined, BLOCK).byteLength, 4, 'aligned')
    assert.throws(() => small.fill(0, 0, 2), RangeError)
    small.free()
    assert.equal(pool.allocate(BLOCK).byteLength, BLOCK)
    pool.check()
  })

  it('rounds sizes up to 256, and aligns blocks by their size', () => {
    const { device } = setUp()
    for (const [blockBytes, rounded, alignment] of [
      [1, 256, 256],
      [1000, 1024, 1024],
      [48 * KiB, 48 * KiB, 16 * KiB],
      [300 * KiB, 300 * KiB, 4 * KiB],
      [8 * MiB, 8 * MiB, 2 * MiB],
    ]) {
      const pool = device.createBlockPool({ blockBytes, count: 3 })
      assert.deepEqual([pool.blockBytes, pool.alignment], [rounded, alignment])
      for (let count = 0; count < 3; count++) assert.equal(pool.allocate(1, undefined, alignment).ptr % alignment, 0)
      assert.throws(() => pool.allocate(1, undefined, 2 * alignment), { name: 'RangeError', message: /alignment/ })
      pool.check()
      pool.close()
    }
  })

  it('aligns blocks without loss when the driver aligns to 256 only', () => {
    const { device } = setUp()
    const { driver } = device
    const [allocate, free] = [driver.cuMemAlloc.bind(driver), driver.cuMemFree.bind(driver)]
    driver.cuMemAlloc = bytes => allocate(bytes + 256) + 256
    driver.cuMemFree = ptr => free(ptr - 256)
    const before = device.freeBytes()
    const pool = device.createBlockPool({ blockBytes: BLOCK, count: 4, maxCount: 8 })
    const all = takeAll(pool)
    assert.equal(all.length, 8)
    for (const [index, buffer] of all.entries()) {
      assert.equal(buffer.ptr % BLOCK, 0)
      buffer.fill(index)
    }
    for (const [index, buffer] of all.entries()) assert.equal(buffer.readSync()[BLOCK - 1], index)
    assert.equal(pool.stats().reservedBytes, 2 * (5 * BLOCK - 256))
    pool.close()
    assert.equal(device.freeBytes(), before)
  })

  it('falls back for a request larger than a block', () => {
    const { device, pool } = setUp(2)
    const plain = device.createPlainPool()
    assert.equal(fallback(pool, plain).allocate(1 * MiB).allocation.pool, plain)
  })

  it('grows by whole slabs; the last may be smaller', () => {
    const { device, pool } = setUp(4, 10)
    const held = [pool.allocate(BLOCK)]
    held[0].fill(9)
    const { ptr } = held[0]
    assert.deepEqual([pool.count, pool.availableBlocks], [4, 9])
    for (let count = 0; count < 4; count++) held.push(pool.allocate(BLOCK))
    assert.deepEqual([pool.count, pool.availableBlocks, pool.stats().growths], [8, 5, 1])
    held.push(...takeAll(pool))
    assert.deepEqual([pool.count, pool.availableBlocks, held.length], [10, 0, 10])
    assert.equal(new Set(held.map(buffer => buffer.ptr)).size, 10)
    assert.deepEqual([held[0].ptr, held[0].readSync()[0]], [ptr, 9])
    assert.equal(pool.stats().reservedBytes, 10 * BLOCK)
    pool.check()
    pool.close()
    assert.equal(device.freeBytes(), 64 * MiB)
  })

  it('reuses a block after its last generation', () => {
    const { pool } = setUp(1)
    const first = pool.allocate(BLOCK)
    const { ptr } = first
    first.free()
    Object.assign(first.allocation, { tag: (2 ** 28 - 2) * 8 + State.cached })
    const stale = [first]
    for (let round = 0; round < 5; round++) {
      const buffer = pool.allocate(1 + round)
      assert.deepEqual([buffer.ptr, buffer.byteLength], [ptr, 1 + round])
      assert.ok(stale.every(old => old.freed))
      buffer.free()
      stale.push(buffer)
      pool.check()
    }
    assert.equal(new Set(stale.map(buffer => buffer.allocation)).size, 2)
  })
})

for (const shared of [false, true]) {
  describe(`block pool${shared ? ' shared by threads' : ''}: verbs of caching pools`, () => {
    const open = (count: number, maxCount = count) => {
      const device = new TestDevice()
      const options = { blockBytes: BLOCK, count, maxCount }
      return { device, pool: shared ? device.createSharedBlocks(options).pool : device.createBlockPool(options) }
    }

    it('gives idle slabs back by trimTo, and takes them again', () => {
      const { device, pool } = open(4, 6)
      const held = takeAll(pool)
      for (const buffer of held.splice(1)) buffer.free()
      device.defaultStream.synchronize()
      assert.equal(pool.trimTo(0), 2 * BLOCK, 'the other slab has a live block')
      assert.deepEqual([pool.count, pool.availableBlocks], [4, 5])
      assert.equal(takeAll(pool).length, 5)
      pool.check()
    })

    it('hands out a whole block where no size is given', () => {
      const { pool } = open(2)
      const blocks = [pool.allocate(), pool.tryAllocate(undefined, pool.defaultStream)!]
      assert.deepEqual([blocks.map(({ byteLength }) => byteLength), pool.tryAllocate()], [[BLOCK, BLOCK], null])
    })

    it('takes options without a size', () => {
      const { device, pool } = open(2)
      const stream = device.createStream()
      const blocks = [pool.allocate({ stream, label: 'page' }), pool.tryAllocate({ stream })!]
      assert.deepEqual(
        blocks.map(block => [block.byteLength, block.stream, block.label]),
        [
          [BLOCK, stream, 'page'],
          [BLOCK, stream, ''],
        ],
      )
      assert.equal(pool.tryAllocate({ stream }), null)
      assert.throws(() => pool.allocate({ size: 1 } as object), { name: 'TypeError', message: /unknown option 'size'/ })
    })

    it('lists live buffers, and frees them by address', () => {
      const { pool } = open(2)
      const [first, second] = takeAll(pool)
      first.label = 'weights'
      second.free()
      const { ptr, byteLength, blockBytes, label } = pool.live()[0]
      assert.deepEqual([ptr, byteLength, blockBytes, label], [first.ptr, BLOCK, BLOCK, 'weights'])
      pool.deallocate(ptr)
      assert.deepEqual([first.freed, pool.live(), pool.availableBlocks], [true, [], 2])
      assert.throws(() => pool.deallocate(ptr), { name: 'PoolError', message: /not the start of a live buffer/ })
      pool.check()
    })

    it('resolves whenAvailable when a block was freed', async () => {
      const { pool } = open(1)
      const held = pool.allocate(1)
      const waiting = pool.whenAvailable(BLOCK)
      held.free()
      await waiting
      await assert.rejects(pool.whenAvailable(BLOCK + 1), {
        name: 'OutOfMemoryError',
        message: /a block has 4096 bytes/,
      })
      pool.allocate(1)
    })

    it('refuses another limit and more memory in advance', () => {
      const { pool } = open(2, 4)
      assert.deepEqual([pool.maxPoolBytes, pool.stats().maxPoolBytes], [4 * BLOCK, 4 * BLOCK])
      const message = /make it with a larger maxCount/
      assert.throws(() => (pool.maxPoolBytes = 8 * BLOCK), { name: 'PoolError', message })
      assert.throws(() => pool.reserve(), { name: 'PoolError', message: /raise count/ })
    })

    it('running out names the reason', () => {
      const { pool } = open(2)
      assert.throws(() => pool.allocate(BLOCK + 1), {
        name: 'OutOfMemoryError',
        remedy: 'askForLess',
        message: /a block has 4096 bytes, and 4097 are asked for: ask for less, make blocks larger, or fall back/,
      })
      assert.equal(takeAll(pool).length, 2)
      assert.throws(
        () => pool.allocate(100),
        (error: unknown) => {
          assert.ok(error instanceof OutOfMemoryError)
          assert.match(error.message, /no room for 100 B.*all 2 blocks are handed out: free some, raise maxCount/)
          const { liveBytes, reservedBytes, largestFreeBytes, maxPoolBytes } = error.figures
          assert.deepEqual([liveBytes, reservedBytes, largestFreeBytes, maxPoolBytes], [8 * KiB, 8 * KiB, 0, 8 * KiB])
          return true
        },
      )
      const { pool: single } = open(1)
      takeAll(single)
      const message = /, no free block; the only block is handed out: free it, raise maxCount, or fall back/
      assert.throws(() => single.allocate(100), { name: 'OutOfMemoryError', message })
    })

    it('names a full device when it cannot grow', () => {
      const { device, pool } = open(2, 4)
      const taken = device.context.activate().cuMemAlloc(device.freeBytes())
      assert.equal(takeAll(pool).length, 2)
      assert.throws(() => pool.allocate(1), { name: 'OutOfMemoryError', message: /the device itself is full/ })
      device.driver.cuMemFree(taken)
      assert.equal(takeAll(pool).length, 2)
      pool.check()
    })

    it('refuses bad options by name, and more memory than the device has', () => {
      const device = new TestDevice()
      const make = (options: object) =>
        shared ? device.createSharedBlocks(options as never) : device.createBlockPool(options as never)
      const bad: readonly [object | null, string, RegExp][] = [
        [null, 'TypeError', /options must be an object/],
        [{ count: 1 }, 'TypeError', /blockBytes/],
        [{ blockBytes: 0, count: 1 }, 'RangeError', /blockBytes/],
        [{ blockBytes: 300 * GiB, count: 1 }, 'RangeError', /blockBytes must be at most 256 GiB/],
        [{ blockBytes: 256 }, 'RangeError', /count must be a whole number/],
        [{ blockBytes: 256, count: 0 }, 'RangeError', /count/],
        [{ blockBytes: 256, count: 1.5 }, 'RangeError', /count/],
        [{ blockBytes: 256, count: '4' }, 'RangeError', /count/],
        [{ blockBytes: 256, count: 2 ** 27 }, 'RangeError', /count/],
        [{ blockBytes: 256, count: 2, maxCount: 1 }, 'RangeError', /maxCount \(1\) is below count \(2\)/],
        [{ blockBytes: 256, count: 2, maxCount: Infinity }, 'RangeError', /maxCount/],
        [{ blockBytes: 256, count: 2, size: 1 }, 'TypeError', /unknown option 'size'/],
        [{ blockBytes: 256, count: 1, shared: 1 }, 'TypeError', /unknown option 'shared'/],
        [{ blockBytes: 1 * MiB, count: 1000 }, 'OutOfMemoryError', /createBlockPool: no room for 1000 MiB/],
      ]
      for (const [options, name, message] of bad) {
        assert.throws(() => make(options!), { name, message }, `${message}`)
        assert.equal(device.freeBytes(), device.totalBytes)
      }
    })
  })
}

describe('block pool: stream order', () => {
  it('reuses a freed block at once on its stream, without a driver call', () => {
    const { device, pool, a } = setUp(1)
    device.hold(a)
    const calls = JSON.stringify([...device.driver.calls])
    for (let round = 0; round < 100; round++) pool.allocate(BLOCK, a).free()
    assert.equal(JSON.stringify([...device.driver.calls]), calls)
    assert.equal(pool.stats().cacheMisses, 0)
  })

  it('keeps any number of freed blocks for their stream', () => {
    const { device, pool, a } = setUp(1000)
    for (const buffer of takeAll(pool, a)) buffer.free()
    device.hold(a)
    const calls = JSON.stringify([...device.driver.calls])
    for (let round = 0; round < 3; round++) {
      const held = Array.from({ length: 1000 }, () => pool.allocate(BLOCK, a))
      assert.deepEqual([pool.availableBlocks, pool.stats().pendingBytes], [0, 0])
      for (const buffer of held) buffer.free()
      assert.deepEqual([pool.availableBlocks, pool.stats().pendingBytes], [1000, 1000 * BLOCK])
    }
    assert.equal(JSON.stringify([...device.driver.calls]), calls)
    assert.equal(pool.stats().cacheMisses, 0)
    pool.check()
  })

  it('keeps large blocks again once another stream has taken them', () => {
    const { device, a, b } = setUp()
    const pool = device.createBlockPool({ blockBytes: 2 * MiB, count: 3 })
    for (let round = 0; round < 3; round++) {
      for (const stream of [a, b]) {
        const held = Array.from({ length: 3 }, () => pool.allocate(2 * MiB, stream))
        for (const buffer of held) buffer.free()
        const { cacheMisses } = pool.stats()
        for (let pair = 0; pair < 5; pair++) pool.allocate(1, stream).free()
        assert.equal(pool.stats().cacheMisses, cacheMisses)
        pool.check()
      }
    }
    assert.equal(pool.stats().peakLiveBytes, 6 * MiB)
  })

  it('a block that was freed last is found by every other call', () => {
    const { device, pool, a, b } = setUp(2)
    for (const stream of [a, a, b]) pool.allocate(BLOCK, stream).free() // of both streams the last one
    for (const stream of [a, b, a]) {
      pool.allocate(BLOCK, stream).free()
      device.context.activate().cuCtxSynchronize()
      const all = takeAll(pool, stream === a ? b : a)
      assert.deepEqual([all.length, pool.stats().peakLiveBytes], [2, 2 * BLOCK])
      for (const buffer of all) buffer.free()
      pool.check()
    }
  })

  it('reuses a freed block on another stream once its work is known complete', () => {
    const { device, pool, a, b } = setUp(2)
    const release = device.hold(a)
    const [first, second] = takeAll(pool, a)
    const { ptr } = first
    first.fill(1)
    first.free()
    assert.equal(pool.stats().pendingBytes, BLOCK)
    assert.equal(pool.processDeferred(), 0)
    second.free()
    release()
    assert.equal(pool.processDeferred(), 2)
    assert.equal(pool.stats().pendingBytes, 0)
    assert.ok(takeAll(pool, b).some(buffer => buffer.ptr === ptr))
    pool.check()
  })

  it('on a miss looks for completed work, then grows, then waits', () => {
    const { device, pool, a, b } = setUp(1, 2)
    pool.allocate(BLOCK, a).free()
    const first = pool.allocate(BLOCK, b)
    assert.equal(pool.count, 1, 'the work was complete')
    const release = device.hold(b)
    first.free()
    const second = pool.allocate(BLOCK, a)
    assert.deepEqual([pool.count, b.query()], [2, false], 'it grew instead of waiting')
    const third = pool.allocate(BLOCK, a)
    assert.equal(b.query(), true, 'it waited')
    assert.notEqual(second.ptr, third.ptr)
    assert.equal(pool.tryAllocate(1, a), null)
    release()
    pool.check()
  })

  it('a block used on another stream waits for that work, even for its own stream', () => {
    const { device, pool, a, b, c } = setUp(2)
    const [used, other] = takeAll(pool, a)
    const { ptr } = used
    used.recordUse(b)
    used.recordUse(c)
    assert.equal(used.freed, false)
    const [releaseB, releaseC] = [device.hold(b), device.hold(c)]
    used.free()
    assert.throws(() => used.free(), PoolError)
    other.free()
    const next = pool.allocate(BLOCK, a)
    assert.notEqual(next.ptr, ptr)
    releaseB()
    assert.deepEqual([pool.processDeferred(), pool.stats().pendingBytes], [0, BLOCK])
    releaseC()
    assert.equal(pool.processDeferred(), 1)
    assert.equal(pool.allocate(BLOCK, a).ptr, ptr)
    pool.check()
  })

  it('waits for shared blocks when no other block is left', () => {
    const { device, pool, a, b } = setUp(1)
    const used = pool.allocate(BLOCK, a)
    used.recordUse(b)
    device.hold(b)
    used.free()
    pool.allocate(BLOCK, a)
    assert.equal(b.query(), true)
    pool.check()
  })

  it('a block freed on another stream belongs to that stream', () => {
    const { device, pool, a, b } = setUp(1)
    device.hold(b)
    const buffer = pool.allocate(BLOCK, a)
    buffer.free(b)
    pool.allocate(BLOCK, b).free()
    assert.equal(b.query(), false)
    pool.allocate(BLOCK, a)
    assert.equal(b.query(), true, 'the first stream had to wait')
    pool.check()
  })

  it('reuses blocks of a closed stream when its work is done', () => {
    for (const freedBefore of [true, false]) {
      const { device, pool, a, b } = setUp(1)
      const buffer = pool.allocate(BLOCK, a)
      device.hold(a)
      buffer.fill(1)
      if (freedBefore) buffer.free()
      a.close()
      if (!freedBefore) buffer.free()
      assert.equal(pool.processDeferred(), 0)
      assert.equal(pool.stats().pendingBytes, BLOCK)
      pool.allocate(BLOCK, b).free()
      pool.check()
    }
  })

  it('a new stream in the slot of a closed stream gets its blocks when they are free', () => {
    const { device, pool } = setUp(2)
    for (let round = 0; round < 200; round++) {
      const stream = device.createStream()
      const [first, second] = takeAll(pool, stream)
      first.fill(round & 255)
      first.free()
      stream.close()
      second.free()
    }
    pool.check()
    assert.equal(pool.stats().liveBuffers, 0)
  })
})

describe('block pool: close', () => {
  it('waits for pending work and reports lost buffers', () => {
    const { device, pool, a } = setUp(4, 8)
    const held = [100, BLOCK].map(bytes => pool.allocate(bytes, a))
    pool.allocate(BLOCK, a).free()
    device.hold(a)
    held[0].fill(1)
    assert.deepEqual(pool.close(), { heldBuffers: 2, heldBytes: 100 + BLOCK })
    assert.equal(a.query(), true)
    assert.ok(held.every(buffer => buffer.freed))
    assert.throws(() => held[0].free(), { name: 'PoolError', message: /pool is closed/ })
    assert.throws(() => pool.processDeferred(), { name: 'PoolError', message: /closed/ })
    assert.deepEqual(pool.close(), { heldBuffers: 0, heldBytes: 0 })
    assert.deepEqual([pool.availableBlocks, pool.stats().reservedBytes, device.freeBytes()], [0, 0, 64 * MiB])
  })
})

failingCallsSuite('block pool', {
  open: device => device.createBlockPool({ blockBytes: 1 * MiB, count: 4, maxCount: 16 }),
  use(pool, attempts, device, b) {
    const a = device.defaultStream
    for (const stream of [a, b, a, b]) attempts.hold(() => pool.allocate(1 * MiB, stream))
    attempts.try(() => attempts.live[0]?.free())
    attempts.hold(() => pool.allocate(100, b))
    attempts.try(() => attempts.live[0]?.recordUse(a))
    attempts.try(() => attempts.live[0]?.free())
    attempts.try(() => attempts.live[0]?.free(b))
    attempts.try(() => pool.processDeferred())
    attempts.try(() => {
      const short = device.createStream()
      try {
        attempts.hold(() => pool.allocate(300, short))
        attempts.try(() => attempts.live.at(-1)?.free())
      } finally {
        short.close()
      }
    })
    for (let count = 0; count < 14; count++) attempts.hold(() => pool.allocate(1 * MiB, a))
    for (let count = 0; count < 6; count++) attempts.try(() => attempts.live[0]?.free())
    for (let count = 0; count < 6; count++) attempts.hold(() => pool.allocate(1 * MiB, b))
  },
  takeAll(pool) {
    const all = Array.from({ length: 16 }, () => pool.allocate(1 * MiB))
    assert.equal(pool.availableBlocks, 0)
    for (const buffer of all) buffer.free()
  },
})
