// Calls on pools of one thread that V8 cuts short. Arenas and block pools are whole afterwards; a caching pool is
// whole, or says that it is not. New work on memory comes after the work that used it, by the simulated device's
// order. No memory is lost.
//
// CUTS_SEED, CUTS_ROUNDS and CUTS_POINTS replay and lengthen; the names of the tests say them. Cuts by chance depend
// on time.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { KiB, MiB } from '../src/core/base/bytes.js'
import { Random } from '../src/core/base/random.js'
import { Bump } from '../src/core/heap/bump.js'
import { RecordTable } from '../src/core/heap/records.js'
import { SegregatedFit } from '../src/core/heap/segregated-fit.js'
import type { Stream } from '../src/core/order/stream.js'
import { Arena } from '../src/core/pool/arena/arena.js'
import { ArenaAllocation } from '../src/core/pool/arena/arena-allocation.js'
import { ArenaPool } from '../src/core/pool/arena/arena-pool.js'
import { Epochs } from '../src/core/pool/arena/epochs.js'
import { GrowableRange } from '../src/core/pool/backing/growable-range.js'
import { SegmentBacking } from '../src/core/pool/backing/segment-backing.js'
import { SlabSource } from '../src/core/pool/backing/slab-source.js'
import { BlockCaches, FixedBlock } from '../src/core/pool/blocks/block-caches.js'
import { BlockPool } from '../src/core/pool/blocks/block-pool.js'
import type { DeviceBuffer } from '../src/core/pool/buffer.js'
import { Block } from '../src/core/pool/caching/block.js'
import { CachingPool } from '../src/core/pool/caching/caching-pool.js'
import { CentralHeap } from '../src/core/pool/caching/central/central-heap.js'
import { CrossStreamReuse } from '../src/core/pool/caching/central/cross-stream.js'
import { Deferred } from '../src/core/pool/caching/central/deferred.js'
import { FreeMemory } from '../src/core/pool/caching/central/free-memory.js'
import { Settling } from '../src/core/pool/caching/central/settling.js'
import { Steps } from '../src/core/pool/caching/central/steps.js'
import { LivePeak } from '../src/core/pool/caching/live-peak.js'
import { StreamCaches } from '../src/core/pool/caching/stream-caches.js'
import { ClosablePool } from '../src/core/pool/closable-pool.js'
import { CUT_BY_CHANCE } from './chance-cuts.js'
import { CUTS } from './cut-points.js'
import { CAPACITY_BYTES, close, cutAtEach, MOST_POINTS, type Subject, System } from './cut-system.js'

const SEED = Number(process.env['CUTS_SEED'] ?? 1)
const ROUNDS = Number(process.env['CUTS_ROUNDS'] ?? 12)
const BLOCK_BYTES = 4 * KiB
/** More bytes than a program on an arena ever has live, except where it grows. */
const ARENA_BYTES = 64 * KiB

const CACHING: Subject<CachingPool> = {
  classes: [
    ClosablePool,
    CachingPool,
    StreamCaches,
    CentralHeap,
    Steps,
    Settling,
    FreeMemory,
    SegregatedFit,
    RecordTable,
  ],
  open: device => device.createPool({ maxPoolBytes: 64 * MiB }),
  prepare: ({ pool }) => {
    pool.trimTo(0)
    for (const buffer of Array.from({ length: 6 }, () => pool.allocate(4096))) buffer.free()
  },
  programs: {
    'a hit and its free': ({ pool }) => pool.allocate(4096).free(),
    'a hit of the next class': ({ pool }) => pool.allocate(3800).free(),
    'a block out of the heap': ({ pool }) => pool.allocate(200_000).free(),
    'new memory': ({ pool }) => pool.allocate(40 * MiB).free(),
    'a block in a view, whose memory leaves': ({ pool }) => {
      const blocks = Array.from({ length: 6 }, () => pool.allocate(4 * MiB))
      for (const index of [1, 3]) blocks[index].free()
      const joined = pool.allocate(8 * MiB)
      assert.ok(pool.stats().reservedBytes < 34 * MiB, 'memory of the freed blocks is a part of it')
      for (const block of [blocks[0], blocks[2], blocks[4], blocks[5], joined]) block.free()
      pool.trimTo(8 * MiB)
    },
    'idle memory': ({ pool }) => {
      pool.processDeferred()
      pool.trimTo(0)
    },
  },
  settle: ({ pool }) => {
    for (const { ptr } of pool.live()) pool.deallocate(ptr)
    pool.check()
    pool.allocate(1 * MiB).free()
    assert.equal(pool.stats().liveBuffers, 0)
  },
}

const ARENA: Subject<ArenaPool> = {
  classes: [ClosablePool, Arena, ArenaPool, ArenaAllocation, Bump, Epochs, GrowableRange],
  open: device => device.createArenaPool({ bytes: 2 * MiB, maxPoolBytes: CAPACITY_BYTES / 2 }),
  prepare: system => {
    const {
      pool,
      streams: [a, b],
    } = system
    pool.reset(a)
    system.use(pool.allocate(1000, a))
    system.use(pool.allocate(5000, b))
    system.marks.push(pool.mark())
    system.use(pool.allocate(1000, b))
    system.use(pool.allocate(300, b)).free()
    pool.rewind(pool.mark())
    system.use(pool.allocate(700, a, 4096))
    pool.rewind(pool.mark())
    system.use(pool.allocate(700, a))
  },
  programs: {
    'an allocation': ({ pool, streams: [a] }) => pool.allocate(1000, a),
    'an allocation on another stream': ({ pool, streams: [, b] }) => pool.allocate(1000, b),
    'an aligned allocation': ({ pool, streams: [a] }) => pool.allocate(1000, a, 8192),
    growth: ({ pool, streams: [, b] }) => pool.allocate(pool.stats().largestFreeBytes + 1, b),
    'a free': ({ uses }) => uses[0].buffer.free(),
    'a free on another stream': ({ uses, streams: [, b] }) => uses[0].buffer.free(b),
    'a use on another stream': ({ uses, streams: [, b] }) => uses[0].buffer.recordUse(b),
    'a rewind over marks': ({ pool, marks, streams: [, b] }) => pool.rewind(marks[0], b),
    'a reset': ({ pool, streams: [a] }) => pool.reset(a),
    statistics: ({ pool }) => pool.stats(),
  },
  settle: system => {
    const {
      pool,
      streams: [, b, c],
    } = system
    pool.check()
    system.useAgain()
    for (const stream of system.streams) system.assertSafe(pool.allocate(1000, stream))
    system.assertSafe(pool.allocate(ARENA_BYTES, c))
    system.assertSafe(pool.allocate(ARENA_BYTES, b))
    pool.reset(b)
    pool.check()
    assert.deepEqual([pool.stats().liveBuffers, pool.stats().liveBytes], [0, 0])
    assert.equal(pool.availableBytes, pool.maxPoolBytes)
    system.assertSafe(pool.allocate(2 * ARENA_BYTES, c))
    system.forget()
  },
}

const BLOCK: Subject<BlockPool> = {
  classes: [
    BlockPool,
    BlockCaches,
    FixedBlock,
    ...CACHING.classes,
    Block,
    LivePeak,
    Deferred,
    CrossStreamReuse,
    SegmentBacking,
    SlabSource,
  ],
  open: device => device.createBlockPool({ blockBytes: BLOCK_BYTES, count: 6, maxCount: 12 }),
  prepare: system => {
    const {
      pool,
      streams: [a, b],
    } = system
    system.use(pool.allocate(BLOCK_BYTES, a))
    for (let count = 0; count < 2; count++) {
      const shared = system.use(pool.allocate(100, a))
      shared.recordUse(b)
      system.use(shared, b)
    }
    system.use(pool.allocate(200, b)).free()
    system.uses[1].buffer.free()
  },
  programs: {
    'a hit and its free': system => take(system, BLOCK_BYTES, system.streams[1]).free(),
    'a hit that is smaller, and its free': system => take(system, 100, system.streams[1]).free(),
    'a block that was never used': system => take(system, 100, system.streams[0]).free(),
    'a block of another stream': system => {
      const { device, pool, streams } = system
      device.synchronize()
      while (freeBlocks(pool) > 0) take(system, 100, streams[0])
    },
    'a free on another stream': ({ device, uses, streams: [a, b] }) => {
      const event = device.createEvent()
      event.record(a)
      b.wait(event)
      event.close()
      uses[0].buffer.free(b)
    },
    'a free of what has completed': ({ device, uses, streams: [a] }) => {
      device.synchronize()
      uses[0].buffer.free(a)
    },
    'a use on another stream': ({ uses, streams: [, b] }) => uses[0].buffer.recordUse(b),
    'a free of what another stream uses': ({ uses }) => uses[3].buffer.free(),
    'settled uses': ({ device, pool }) => {
      device.synchronize()
      pool.processDeferred()
    },
    statistics: ({ pool }) => pool.stats(),
  },
  settle: system => {
    const { device, pool, uses, held, streams } = system
    pool.check()
    system.useAgain()
    const granted: DeviceBuffer[] = []
    while (freeBlocks(pool) > 0) {
      const buffer = pool.tryAllocate(1, streams[granted.length % 3])
      assert.ok(buffer !== null, `one of ${freeBlocks(pool)} free blocks can be had`)
      system.assertSafe(buffer)
      granted.push(buffer)
    }
    for (const buffer of [...granted, ...held, ...uses.map(use => use.buffer)]) buffer[Symbol.dispose]()
    for (const { ptr } of pool.live()) pool.deallocate(ptr) // whose allocation was cut short as it returned
    device.synchronize()
    pool.processDeferred()
    pool.check()
    const { liveBuffers, liveBytes, requestedBytes, pendingBytes } = pool.stats()
    assert.deepEqual([liveBuffers, liveBytes, requestedBytes, pendingBytes], [0, 0, 0, 0])
    system.forget()
  },
}

const FULL_BLOCK: Subject<BlockPool> = {
  ...BLOCK,
  open: device => device.createBlockPool({ blockBytes: BLOCK_BYTES, count: 1, maxCount: 10_000 }),
  prepare: system => {
    while (freeBlocks(system.pool) > 0) take(system, 100, system.streams[0])
  },
  programs: { growth: system => take(system, 100, system.streams[0]) },
}

/** Notes a buffer that the pool returns. */
function take({ pool, held }: System<BlockPool>, bytes: number, stream: Stream): DeviceBuffer {
  const buffer = pool.allocate(bytes, stream)
  held[held.length] = buffer // without a call, where the program could be cut short
  return buffer
}

describe(`calls of one thread that are cut short (CUTS_SEED=${SEED} CUTS_ROUNDS=${ROUNDS} CUTS_POINTS=${MOST_POINTS})`, () => {
  for (const cut of CUTS) {
    it(`${cut} leaves a caching pool whole, or the next call says so, where any method begins`, () => {
      assert.ok(cutAtEach(cut, CACHING, SEED) > 0)
    })

    it(`${cut} leaves an arena whole where any method begins`, () => {
      assert.equal(cutAtEach(cut, ARENA, SEED), 0)
    })

    it(`${cut} leaves a block pool whole where any method begins`, () => {
      assert.equal(cutAtEach(cut, BLOCK, SEED), 0)
      assert.equal(cutAtEach(cut, FULL_BLOCK, SEED), 0)
    })

    // The calls use one stream and memory taken beforehand, so they never call the simulated device. Cut calls of the
    // device are not tested here.
    it(`${cut} leaves an arena whole, by chance`, () => {
      const system = new System(device => device.createArenaPool({ bytes: 64 * MiB }))
      const { pool, marks } = system
      const random = new Random(SEED)
      const step = () => {
        const dice = random.below(32)
        const buffer = pool.tryAllocate(1 + random.below(2 * KiB), undefined, 2 ** random.below(12))
        if (dice < 8) buffer?.free()
        if (dice === 8) marks.push(pool.mark())
        if (dice === 9 && random.below(4) === 0) pool.reset()
        if (dice === 10 && marks.length > 0) {
          const mark = marks.splice(random.below(marks.length))[0]
          if (mark.resets === pool.mark().resets && mark.entry <= mark.span.last) pool.rewind(mark)
        }
      }
      for (let round = 0; round < ROUNDS; round++) {
        CUT_BY_CHANCE[cut](step, random)
        pool.check()
        pool.reset()
        pool.check()
        assert.deepEqual([pool.availableBytes, pool.stats().liveBuffers], [64 * MiB, 0])
        pool.allocate(64 * MiB).free()
        pool.reset()
      }
      close(system)
    })

    it(`${cut} leaves a block pool whole, by chance`, () => {
      const system = new System(device => device.createBlockPool({ blockBytes: BLOCK_BYTES, count: 24 }))
      const { pool } = system
      const held: (DeviceBuffer | null)[] = Array.from({ length: 24 }, () => null)
      const random = new Random(SEED)
      const step = () => {
        const place = random.below(held.length)
        const bytes = 1 + random.below(BLOCK_BYTES)
        if (held[place] === null) held[place] = pool.tryAllocate(bytes)
        else if (held[place].freed) held[place] = null
        else held[place].free()
      }
      for (let round = 0; round < ROUNDS; round++) {
        CUT_BY_CHANCE[cut](step, random)
        pool.check()
        for (const buffer of held.splice(0)) buffer?.[Symbol.dispose]()
        const all = Array.from({ length: 24 }, () => pool.allocate(1))
        assert.equal(pool.tryAllocate(1), null)
        for (const buffer of all) buffer.free()
        pool.check()
        for (let place = 0; place < 24; place++) held.push(null)
      }
      close(system)
    })
  }
})

/** How many blocks the pool has, without those that it may grow by, and has not handed out. */
function freeBlocks(pool: BlockPool): number {
  return pool.count - pool.stats().liveBuffers
}
