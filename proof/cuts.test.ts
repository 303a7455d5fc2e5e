// Calls on pools that the engine cuts short while their thread lives on, wherever in the call: a script that is stopped runs
// no `finally`, and a full stack may show at any function. A cut call may leave a live buffer that the program has no handle of, which
// `live()` lists; all else of a shared pool is intact afterwards.
// The memory is taken from the device beforehand: the simulated device, whose calls this thread answers while it waits for the keeper, is no
// part of what must survive.
//
// CUTS_SEED and CUTS_ROUNDS replay and lengthen; the names of the tests say them. By chance, where a script is stopped is up to the time.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { Script } from 'node:vm'
import { Bell } from '../src/base/bell.js'
import { KiB, MiB } from '../src/base/bytes.js'
import { PoolError } from '../src/base/errors.js'
import { Mailbox } from '../src/base/mailbox.js'
import { Random } from '../src/base/random.js'
import { RobustLock } from '../src/base/robust-lock.js'
import { type Device, openDevice } from '../src/device.js'
import { SimulatedDriver } from '../src/driver/simulated/simulated-driver.js'
import { RecordTable } from '../src/heap/records.js'
import { SegregatedFit } from '../src/heap/segregated-fit.js'
import type { Stream } from '../src/order/stream.js'
import type { DeviceBuffer } from '../src/pool/buffer.js'
import { CachingPool } from '../src/pool/caching-pool.js'
import { Door } from '../src/pool/door.js'
import { FreeMemory } from '../src/pool/free-memory.js'
import { Inboxes } from '../src/pool/inboxes.js'
import { KeeperWatch } from '../src/pool/keeper-watch.js'
import { Reserve } from '../src/pool/reserve.js'
import { SharedPool } from '../src/pool/shared-pool.js'
import { SharedSlots } from '../src/pool/shared-slots.js'
import { SharedState } from '../src/pool/shared-state.js'
import { SlotCache } from '../src/pool/slot-cache.js'
import { ThreadCache } from '../src/pool/thread-cache.js'
import { CUTS, CutPoints } from './cut-points.js'

const SEED = Number(process.env['CUTS_SEED'] ?? 1)
const ROUNDS = Number(process.env['CUTS_ROUNDS'] ?? 60)
const LIMIT = 64 * MiB
const MOST_BURST = 24
const CACHED = 6
/** All that a thread runs of a shared pool; the keeper has a thread, and classes, of its own. */
const CLASSES = [
  SharedPool,
  ThreadCache,
  SlotCache,
  Door,
  SharedSlots,
  Inboxes,
  SharedState,
  FreeMemory,
  SegregatedFit,
  RecordTable,
  RobustLock,
  Mailbox,
  Bell,
  KeeperWatch,
]

interface World {
  readonly device: Device
  readonly pool: SharedPool
  readonly streams: readonly Stream[]
}

/** What is done to a pool that caches some blocks of 4 KiB for one stream, and then again where it was cut short. */
const PROGRAMS: Readonly<Record<string, (world: World) => void>> = {
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
  'a block that the keeper finds': ({ pool, streams: [a] }) => pool.allocate(40 * MiB, a).free(),
  'a free on another stream': ({ pool, streams: [a, b] }) => pool.allocate(4096, a).free(b),
  'a use on another stream': ({ pool, streams: [a, b] }) => {
    const buffer = pool.allocate(4096, a)
    buffer.recordUse(b)
    buffer.free()
  },
  'a buffer that is handed over': ({ pool, streams: [a] }) => pool.adopt(pool.allocate(4096, a).transfer()).free(),
  'questions to the keeper': ({ pool }) => {
    pool.processDeferred()
    pool.trimTo(32 * MiB)
  },
}

function withPool(work: (world: World) => void): void {
  const driver = new SimulatedDriver({ capacityBytes: LIMIT })
  const device = openDevice(driver)
  const pool = device.createPool({ shared: true, maxPoolBytes: LIMIT })
  pool.allocate(32 * MiB).free()
  for (const buffer of Array.from({ length: 512 }, () => pool.allocate(32 * KiB))) buffer.free()
  work({ device, pool, streams: [device.createStream(), device.createStream()] })
  pool.trimTo(0)
  device.synchronize()
  pool.trimTo(0)
  assert.equal(pool.stats().reservedBytes, 0)
  pool.allocate(48 * MiB).free()
  assert.deepEqual(pool.close(), { lostBuffers: 0, lostBytes: 0 })
  device.close()
  assert.equal(driver.usedBytes(), 0)
}

/** Frees what a call that was cut short left live, and asserts that all else is as it should be. */
function settle(pool: SharedPool): void {
  pool.processDeferred()
  if (pool.live().some(({ thread }) => thread === 0)) pool.reclaim(0) // cut short between transfer and adopt
  for (const { ptr } of pool.live()) pool.deallocate(ptr)
  pool.check()
  assert.deepEqual([pool.stats().liveBuffers, pool.stats().liveBytes], [0, 0])
}

/** Allocates and frees bursts without end: more than a thread caches, so that the lock is held much of the time. */
function churn(pool: SharedPool, random: Random): void {
  const held: DeviceBuffer[] = []
  for (;;) {
    const bytes = 4096 + 512 * random.below(64)
    for (let count = random.below(MOST_BURST); count >= 0; count--) held.push(pool.allocate(bytes))
    while (held.length > 0) held.pop()!.free()
  }
}

/** Fills the stack, and allocates and frees on so many levels on the way back, at first without room for the call. */
function overflow(pool: SharedPool, random: Random, levels: number): void {
  try {
    overflow(pool, random, levels)
  } catch (error) {
    if (!(error instanceof RangeError) || random.below(levels) === 0) throw error
    pool.allocate(4096 + 256 * random.below(64)).free()
    throw error
  }
}

const BY_CHANCE: Readonly<Record<(typeof CUTS)[number], (pool: SharedPool, random: Random) => void>> = {
  'a stopped script': (pool, random) => {
    Object.assign(globalThis, { churnUntilCut: () => churn(pool, random) })
    const script = new Script('churnUntilCut()')
    assert.throws(() => script.runInThisContext({ timeout: 2 + random.below(5) }), {
      code: 'ERR_SCRIPT_EXECUTION_TIMEOUT',
    })
  },
  'a full stack': (pool, random) => assert.throws(() => overflow(pool, random, 50), RangeError),
}

describe(`calls that are cut short (CUTS_SEED=${SEED} CUTS_ROUNDS=${ROUNDS})`, () => {
  for (const cut of CUTS) {
    it(`${cut} leaves a shared pool whole, by chance`, () => {
      withPool(({ pool }) => {
        const random = new Random(SEED)
        for (let round = 0; round < ROUNDS; round++) {
          BY_CHANCE[cut](pool, random)
          settle(pool)
          pool.allocate(1 * MiB).free()
        }
      })
    })

    it(`${cut} leaves a pool of one thread whole, or the next call says so, where any method begins`, () => {
      for (const [name, program] of Object.entries(OWN_PROGRAMS)) cutOwnAtEach(cut, name, program)
    })

    it(`${cut} leaves a shared pool whole, where any method begins`, () => {
      withPool(world => {
        const points = new CutPoints(CLASSES, cut)
        try {
          for (const [name, program] of Object.entries(PROGRAMS)) cutAtEach(points, name, program, world)
        } finally {
          points.restore()
        }
      })
    })
  }
})

/** What a pool of one thread runs behind and before its cached path. */
const OWN_CLASSES = [CachingPool, SlotCache, Reserve, FreeMemory, SegregatedFit, RecordTable]

const OWN_PROGRAMS: Readonly<Record<string, (pool: CachingPool) => void>> = {
  'a hit and its free': pool => pool.allocate(4096).free(),
  'a hit of the next class': pool => pool.allocate(3800).free(),
  'a block out of the heap': pool => pool.allocate(200_000).free(),
  'new memory': pool => pool.allocate(40 * MiB).free(),
  'idle memory': pool => {
    pool.processDeferred()
    pool.trimTo(0)
  },
}

/** Cuts a program short at each point on a new pool: that is whole afterwards, or says that it is not; it can be closed in any case. */
function cutOwnAtEach(cut: (typeof CUTS)[number], name: string, program: (pool: CachingPool) => void): void {
  for (let nth = 1, count = 1; nth <= count; nth++) {
    const driver = new SimulatedDriver({ capacityBytes: LIMIT })
    const device = openDevice(driver)
    const pool = device.createPool({ maxPoolBytes: LIMIT })
    for (const buffer of Array.from({ length: CACHED }, () => pool.allocate(4096))) buffer.free()
    const points = new CutPoints(OWN_CLASSES, cut)
    try {
      if (nth === 1) {
        count = points.count(() => program(pool))
        pool.trimTo(LIMIT)
      }
      points.run(nth, () => program(pool))
    } finally {
      points.restore()
    }
    try {
      for (const { ptr } of pool.live()) pool.deallocate(ptr)
      pool.check()
      pool.allocate(1 * MiB).free()
      assert.equal(pool.stats().liveBuffers, 0)
    } catch (error) {
      const isSaid = error instanceof PoolError && error.message.includes('close the pool and create another')
      if (!isSaid) throw new Error(`${name} was cut short where method ${nth} begins`, { cause: error })
    }
    pool.close()
    device.close()
    assert.equal(driver.usedBytes(), 0)
  }
}

/** Cuts a program short at each point, and runs it again each time. How often it looks for an answer differs from run to run. */
function cutAtEach(points: CutPoints, name: string, program: (world: World) => void, world: World): void {
  const { pool, streams } = world
  const prepare = () => {
    const held = Array.from({ length: CACHED }, () => pool.allocate(4096, streams[0]))
    for (const buffer of held) buffer.free()
  }
  prepare()
  const count = points.count(() => program(world))
  for (let nth = 1; nth <= count; nth++) {
    prepare()
    points.run(nth, () => program(world))
    try {
      settle(pool)
      program(world)
    } catch (error) {
      throw new Error(`${name} was cut short where method ${nth} begins`, { cause: error })
    }
  }
}
