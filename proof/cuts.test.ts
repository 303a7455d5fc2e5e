// Pool calls that V8 cuts short at any point while their thread lives on: a stopped script skips `finally`, and the
// stack may be full at any function. A cut call may leave a live buffer without a handle, which `live()` lists. The
// rest of a shared pool is intact afterwards. The pools take their memory beforehand, since the simulated device need
// not survive cuts.
//
// CUTS_SEED, CUTS_ROUNDS and CUTS_POINTS replay and lengthen; the names of the tests say them. Cuts by chance depend
// on time.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { KiB, MiB } from '../src/core/base/bytes.js'
import { Random } from '../src/core/base/random.js'
import type { Device } from '../src/core/device/device.js'
import { openDevice } from '../src/core/device/open.js'
import { SimulatedDriver } from '../src/core/driver/simulated/simulated-driver.js'
import { Bump } from '../src/core/heap/bump.js'
import { RecordTable } from '../src/core/heap/records.js'
import { SegregatedFit } from '../src/core/heap/segregated-fit.js'
import { SharedBump } from '../src/core/heap/shared-bump.js'
import type { Stream } from '../src/core/order/stream.js'
import { Arena } from '../src/core/pool/arena/arena.js'
import { Epochs } from '../src/core/pool/arena/epochs.js'
import { SharedArenaPool } from '../src/core/pool/arena/shared-arena-pool.js'
import { ArenaState } from '../src/core/pool/arena/shared-arena-state.js'
import { SharedBlockPool } from '../src/core/pool/blocks/shared-block-pool.js'
import type { DeviceBuffer } from '../src/core/pool/buffer.js'
import { FreeMemory } from '../src/core/pool/caching/central/free-memory.js'
import { StreamCaches } from '../src/core/pool/caching/stream-caches.js'
import { ClosablePool } from '../src/core/pool/closable-pool.js'
import { AddressLookup } from '../src/core/pool/shared/address-lookup.js'
import { BlockOwnership } from '../src/core/pool/shared/block-ownership.js'
import { LockedHeaps } from '../src/core/pool/shared/locked-heaps.js'
import { RemoteFrees } from '../src/core/pool/shared/remote-frees.js'
import { ServerClient } from '../src/core/pool/shared/server-client.js'
import { SharedPool } from '../src/core/pool/shared/shared-pool.js'
import { SharedReport } from '../src/core/pool/shared/shared-report.js'
import { SharedState } from '../src/core/pool/shared/shared-state.js'
import { ThreadCache } from '../src/core/pool/shared/thread-cache.js'
import { ThreadCaches } from '../src/core/pool/shared/thread-caches.js'
import { BiasedLock } from '../src/core/threads/biased-lock.js'
import { Doorbell } from '../src/core/threads/doorbell.js'
import { RequestChannel } from '../src/core/threads/request-channel.js'
import { RobustLock } from '../src/core/threads/robust-lock.js'
import { CUT_BY_CHANCE } from './chance-cuts.js'
import { CUTS, CutPoints, choosePoints } from './cut-points.js'
import { cutAtEach, type Subject } from './cut-system.js'

const SEED = Number(process.env['CUTS_SEED'] ?? 1)
const ROUNDS = Number(process.env['CUTS_ROUNDS'] ?? 12)
/** The points at which a program on a shared pool is cut; few, since each run asks the pool server several times. */
const MOST_POINTS = Number(process.env['CUTS_POINTS'] ?? 12)
const LIMIT = 64 * MiB
const MOST_BURST = 24
const CACHED = 6
const BLOCKS = 96
const ARENA_PART = 64 * KiB
/** The classes of a shared pool that a client thread runs; the pool server has its own thread and classes. */
const CLASSES = [
  ClosablePool,
  SharedPool,
  SharedBlockPool,
  BlockOwnership,
  AddressLookup,
  LockedHeaps,
  ServerClient,
  SharedReport,
  ThreadCache,
  StreamCaches,
  BiasedLock,
  ThreadCaches,
  RemoteFrees,
  SharedState,
  FreeMemory,
  SegregatedFit,
  RecordTable,
  RobustLock,
  RequestChannel,
  Doorbell,
]

interface System {
  readonly device: Device
  readonly pool: SharedPool
  readonly streams: readonly Stream[]
}

/** Programs on a block pool, which caches like other pools. */
const BLOCK_PROGRAMS: Readonly<Record<string, (system: System) => void>> = {
  'a shorter buffer': ({ pool, streams: [a] }) => pool.allocate(100, a).free(),
  'all blocks': ({ pool, streams: [a] }) => {
    const all = Array.from({ length: BLOCKS }, () => pool.allocate(100, a))
    for (const buffer of all) buffer.free()
  },
  'a use on another stream': ({ pool, streams: [a, b] }) => {
    const buffer = pool.allocate(100, a)
    buffer.recordUse(b)
    buffer.free()
  },
  'a buffer that is handed over': ({ pool, streams: [a] }) => pool.adopt(pool.allocate(100, a).transfer()).free(),
}

const ARENA: Subject<SharedArenaPool> = {
  classes: [ClosablePool, Arena, SharedArenaPool, ArenaState, Bump, SharedBump, Epochs],
  open: device => device.createSharedArenaPool({ bytes: 4 * ARENA_PART }),
  prepare: system => {
    const {
      pool,
      streams: [a, b],
    } = system
    pool.reset(a)
    for (const stream of [a, b, b, a]) system.use(pool.allocate(1000, stream))
  },
  programs: {
    'an allocation': ({ pool, streams: [a] }) => pool.allocate(1000, a),
    'an allocation on another stream': ({ pool, streams: [, , c] }) => pool.allocate(1000, c),
    'an aligned allocation': ({ pool, streams: [a] }) => pool.allocate(1000, a, 8192),
    'a free': ({ uses }) => uses[0].buffer.free(),
    'a free on another stream': ({ uses, streams: [, b] }) => uses[0].buffer.free(b),
    'a use on another stream': ({ uses, streams: [, b] }) => uses[0].buffer.recordUse(b),
    'a buffer that is handed over': ({ pool, uses }) => pool.adopt(uses[0].buffer.transfer()),
    'a reset': ({ pool, streams: [a] }) => pool.reset(a),
    statistics: ({ pool }) => pool.stats(),
  },
  settle: system => {
    const {
      pool,
      streams: [, b, c],
    } = system
    system.useAgain()
    system.assertSafe(pool.allocate(ARENA_PART, c))
    system.assertSafe(pool.allocate(ARENA_PART, b))
    const { liveBuffers, liveBytes } = pool.stats()
    assert.ok(liveBuffers >= 2 && liveBytes >= 2 * ARENA_PART && liveBytes <= 4 * ARENA_PART)
    pool.reset(b)
    assert.deepEqual([pool.stats().liveBuffers, pool.stats().liveBytes], [0, 0])
    assert.equal(pool.availableBytes, 4 * ARENA_PART)
    system.assertSafe(pool.allocate(4 * ARENA_PART, c))
    system.forget()
  },
}

/** Programs on a pool that caches some blocks of 4 KiB for one stream. They run again after each cut. */
const PROGRAMS: Readonly<Record<string, (system: System) => void>> = {
  'a hit and its free': ({ pool, streams: [a] }) => pool.allocate(4096, a).free(),
  'a hit of the next class': ({ pool, streams: [a] }) => pool.allocate(3800, a).free(),
  "another stream's block": ({ device, pool, streams: [a, b] }) => {
    const event = device.createEvent()
    event.record(a)
    b.wait(event)
    event.close()
    pool.allocate(4096, b).free(a)
  },
  'a block out of the heap': ({ pool, streams: [a] }) => pool.allocate(200_000, a).free(),
  'a block that the pool server finds': ({ pool, streams: [a] }) => pool.allocate(40 * MiB, a).free(),
  'a free on another stream': ({ pool, streams: [a, b] }) => pool.allocate(4096, a).free(b),
  'a use on another stream': ({ pool, streams: [a, b] }) => {
    const buffer = pool.allocate(4096, a)
    buffer.recordUse(b)
    buffer.free()
  },
  'a buffer that is handed over': ({ pool, streams: [a] }) => pool.adopt(pool.allocate(4096, a).transfer()).free(),
  'questions to the pool server': ({ pool }) => {
    pool.processDeferred()
    pool.trimTo(32 * MiB)
  },
}

function withPool(work: (system: System) => void): void {
  const driver = new SimulatedDriver({ capacityBytes: LIMIT })
  const device = openDevice(driver)
  const pool = device.createSharedPool({ maxPoolBytes: LIMIT })
  pool.allocate(32 * MiB).free()
  for (const buffer of Array.from({ length: 512 }, () => pool.allocate(32 * KiB))) buffer.free()
  work({ device, pool, streams: [device.createStream(), device.createStream()] })
  pool.trimTo(0)
  device.synchronize()
  pool.trimTo(0)
  assert.equal(pool.stats().reservedBytes, 0)
  pool.allocate(48 * MiB).free()
  assert.deepEqual(pool.close(), { heldBuffers: 0, heldBytes: 0 })
  device.close()
  assert.equal(driver.usedBytes(), 0)
}

function withBlocks(work: (system: System) => void): void {
  const driver = new SimulatedDriver({ capacityBytes: LIMIT })
  const device = openDevice(driver)
  const pool = device.createSharedBlockPool({ blockBytes: 64 * KiB, count: BLOCKS / 3, maxCount: BLOCKS })
  const takeAll = () => {
    const all = Array.from({ length: BLOCKS }, () => pool.allocate(64 * KiB))
    assert.equal(pool.tryAllocate(1), null)
    for (const buffer of all) buffer.free()
  }
  takeAll()
  work({ device, pool, streams: [device.createStream(), device.createStream()] })
  takeAll()
  pool.check()
  assert.deepEqual(pool.close(), { heldBuffers: 0, heldBytes: 0 })
  device.close()
  assert.equal(driver.usedBytes(), 0)
}

/** Frees buffers that a cut call left live, and asserts that the rest is intact. */
function settle(pool: SharedPool): void {
  pool.processDeferred()
  if (pool.live().some(({ thread }) => thread === 0)) pool.reclaim(0) // cut short between transfer and adopt
  for (const { ptr } of pool.live()) pool.deallocate(ptr)
  pool.check()
  assert.deepEqual([pool.stats().liveBuffers, pool.stats().liveBytes], [0, 0])
}

/**
 * Steps repeated until the cut: single pairs, or bursts larger than a thread's cache, which hold the lock much of the
 * time.
 */
const STEPS: Readonly<Record<(typeof CUTS)[number], (pool: SharedPool, random: Random) => () => void>> = {
  'a stopped script': (pool, random) => {
    const held: DeviceBuffer[] = []
    return () => {
      const bytes = 4096 + 512 * random.below(64)
      for (let count = random.below(MOST_BURST); count >= 0; count--) held.push(pool.allocate(bytes))
      while (held.length > 0) held.pop()!.free()
    }
  },
  'a full stack': (pool, random) => () => pool.allocate(4096 + 256 * random.below(64)).free(),
}

describe(`calls on shared pools that are cut short (CUTS_SEED=${SEED} CUTS_ROUNDS=${ROUNDS} CUTS_POINTS=${MOST_POINTS})`, () => {
  for (const cut of CUTS) {
    it(`${cut} leaves a shared pool whole, by chance`, () => {
      withPool(({ pool }) => {
        const random = new Random(SEED)
        for (let round = 0; round < ROUNDS; round++) {
          CUT_BY_CHANCE[cut](STEPS[cut](pool, random), random)
          settle(pool)
          pool.allocate(1 * MiB).free()
        }
      })
    })

    for (const [kind, programs, withEach] of [
      ['pool', PROGRAMS, withPool],
      ['block pool', BLOCK_PROGRAMS, withBlocks],
    ] as const) {
      it(`${cut} leaves a shared ${kind} whole, where any method begins`, () => {
        withEach(system => {
          const points = new CutPoints(CLASSES, cut)
          try {
            for (const [name, program] of Object.entries(programs)) cutProgramAtEach(points, name, program, system)
          } finally {
            points.restore()
          }
        })
      })
    }

    it(`${cut} leaves a shared arena whole, where any method begins`, () => {
      assert.equal(cutAtEach(cut, ARENA, SEED), 0)
    })
  }
})

/**
 * Cuts a program short at each point, and runs it again after each cut. The number of polls for an answer varies
 * between runs.
 */
function cutProgramAtEach(points: CutPoints, name: string, program: (system: System) => void, system: System): void {
  const { pool, streams } = system
  const prepare = () => {
    const held = Array.from({ length: CACHED }, () => pool.allocate(4096, streams[0]))
    for (const buffer of held) buffer.free()
  }
  prepare()
  const count = points.count(() => program(system))
  for (const nth of choosePoints(count, MOST_POINTS, SEED)) {
    prepare()
    points.run(nth, () => program(system))
    try {
      settle(pool)
      program(system)
    } catch (error) {
      throw new Error(`${name} was cut short where method ${nth} begins`, { cause: error })
    }
  }
}
