// Calls on pools of one thread that the engine cuts short: a caching pool is whole afterwards or says that it is not, arenas and block
// pools are whole. No memory is handed out before the work that used it, as the simulated device knows it, and none is lost.
//
// CUTS_SEED, CUTS_ROUNDS and CUTS_POINTS replay and lengthen; the names of the tests say them. By chance, where a script is stopped is up to the time.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { KiB, MiB } from '../src/base/bytes.js'
import { PoolError } from '../src/base/errors.js'
import { Random } from '../src/base/random.js'
import { type Device, openDevice } from '../src/device.js'
import { SimulatedDriver } from '../src/driver/simulated/simulated-driver.js'
import { Bump } from '../src/heap/bump.js'
import { RecordTable } from '../src/heap/records.js'
import { SegregatedFit } from '../src/heap/segregated-fit.js'
import type { Stream } from '../src/order/stream.js'
import { ArenaLane } from '../src/pool/arena-lane.js'
import { type ArenaMark, ArenaPool } from '../src/pool/arena-pool.js'
import { BlockPool } from '../src/pool/block-pool.js'
import { BlockRings } from '../src/pool/block-rings.js'
import type { DeviceBuffer } from '../src/pool/buffer.js'
import { CachingPool } from '../src/pool/caching-pool.js'
import { Deferred } from '../src/pool/deferred.js'
import { FixedBlock, Ring } from '../src/pool/fixed-block.js'
import { FreeMemory } from '../src/pool/free-memory.js'
import { GrowableRange } from '../src/pool/growable-range.js'
import type { Pool } from '../src/pool/pool.js'
import { Reserve } from '../src/pool/reserve.js'
import { Slabs } from '../src/pool/slabs.js'
import { SlotCache } from '../src/pool/slot-cache.js'
import { Turns } from '../src/pool/turns.js'
import { CUT_BY_CHANCE } from './chance-cuts.js'
import { CUTS, CutPoints, choosePoints } from './cut-points.js'

const SEED = Number(process.env['CUTS_SEED'] ?? 1)
const ROUNDS = Number(process.env['CUTS_ROUNDS'] ?? 20)
/** At how many points a program is cut short, if it has more; chosen by the seed. */
const MOST_POINTS = Number(process.env['CUTS_POINTS'] ?? 40)
const CAPACITY = 512 * MiB
const BLOCK_BYTES = 4 * KiB
/** More than is ever live in a program on an arena, its growth aside. */
const ARENA_BYTES = 64 * KiB

type Work = ReturnType<SimulatedDriver['submitted']>

/** A buffer, and the latest work on it; work of stream `a` or `b` that has not run. */
interface Use {
  readonly buffer: DeviceBuffer
  readonly ptr: number
  readonly stream: Stream
  work: Work
}

class World<P extends Pool> {
  readonly driver = new SimulatedDriver({ capacityBytes: CAPACITY, progress: 'eager' })
  readonly device: Device = openDevice(this.driver)
  readonly streams = [this.device.createStream(), this.device.createStream(), this.device.createStream()] as const
  readonly pool: P
  readonly uses: Use[] = []
  /** what a program has allocated, noted before anything else is called */
  readonly held: DeviceBuffer[] = []
  readonly marks: ArenaMark[] = []

  constructor(open: (device: Device) => P) {
    this.pool = open(this.device)
  }

  /** Lets work on a stream use a buffer, which is to be allocated there or announced. */
  use(buffer: DeviceBuffer, stream: Stream = buffer.stream): DeviceBuffer {
    this.uses.push({ buffer, ptr: buffer.ptr, stream, work: this.submit(stream) })
    return buffer
  }

  /** What is still live is used again. */
  useAgain(): void {
    for (const use of this.uses) if (!use.buffer.freed) use.work = this.submit(use.stream)
  }

  private submit(stream: Stream): Work {
    this.driver.holdOperation(stream.handle)
    return this.driver.submitted(stream.handle)
  }

  /** Asserts that a buffer just allocated is not in use, and that work on its stream comes after all that was. */
  judge({ ptr, byteLength, stream }: DeviceBuffer): void {
    for (const use of this.uses) {
      if (use.ptr < ptr || use.ptr >= ptr + byteLength) continue
      assert.ok(use.buffer.freed, 'live memory is not handed out')
      assert.ok(this.driver.happensBefore(use.work, stream.handle), 'work on new memory comes after all that used it')
    }
  }

  /** Asserts that nothing was used or is held any more. */
  forget(): void {
    this.device.synchronize()
    for (const list of [this.uses, this.held, this.marks]) list.length = 0
  }
}

interface Subject<P extends Pool & { check(): void; close(): unknown }> {
  readonly classes: readonly { readonly prototype: object }[]
  readonly open: (device: Device) => P
  /** what the programs find */
  readonly prepare: (world: World<P>) => void
  readonly programs: Readonly<Record<string, (world: World<P>) => void>>
  /** Asserts that the pool is whole, and that it has nothing live afterwards. */
  readonly settle: (world: World<P>) => void
}

const CACHING: Subject<CachingPool> = {
  classes: [CachingPool, SlotCache, Reserve, FreeMemory, SegregatedFit, RecordTable],
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
  classes: [ArenaPool, ArenaLane, Bump, Turns, GrowableRange],
  open: device => device.createArenaPool({ bytes: 2 * MiB, maxBytes: CAPACITY / 2 }),
  prepare: world => {
    const {
      pool,
      streams: [a, b],
    } = world
    pool.reset(a)
    world.use(pool.allocate(1000, a))
    world.use(pool.allocate(5000, b))
    world.marks.push(pool.mark())
    world.use(pool.allocate(1000, b))
    world.use(pool.allocate(300, b)).free()
    pool.rewind(pool.mark())
    world.use(pool.allocate(700, a, 4096))
    pool.rewind(pool.mark())
    world.use(pool.allocate(700, a))
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
  settle: world => {
    const {
      pool,
      streams: [, b, c],
    } = world
    pool.check()
    world.useAgain()
    world.judge(pool.allocate(ARENA_BYTES, c))
    world.judge(pool.allocate(ARENA_BYTES, b))
    pool.reset(b)
    pool.check()
    assert.deepEqual([pool.stats().liveBuffers, pool.stats().liveBytes], [0, 0])
    assert.equal(pool.availableBytes, CAPACITY / 2)
    world.judge(pool.allocate(2 * ARENA_BYTES, c))
    world.forget()
  },
}

const BLOCK: Subject<BlockPool> = {
  classes: [BlockPool, BlockRings, Ring, FixedBlock, Deferred, Slabs],
  open: device => device.createBlockPool({ blockBytes: BLOCK_BYTES, count: 6, maxCount: 12 }),
  prepare: world => {
    const {
      pool,
      streams: [a, b],
    } = world
    world.use(pool.allocate(BLOCK_BYTES, a))
    for (let count = 0; count < 2; count++) {
      const shared = world.use(pool.allocate(100, a))
      shared.recordUse(b)
      world.use(shared, b)
    }
    world.use(pool.allocate(200, b)).free()
    world.uses[1].buffer.free()
  },
  programs: {
    'a hit and its free': world => take(world, BLOCK_BYTES, world.streams[1]).free(),
    'a hit that is smaller, and its free': world => take(world, 100, world.streams[1]).free(),
    'a block that was never used': world => take(world, 100, world.streams[0]).free(),
    'a block of another stream': world => {
      const { device, pool, streams } = world
      device.synchronize()
      while (pool.available > 0) take(world, 100, streams[0])
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
  settle: world => {
    const { device, pool, uses, held, streams } = world
    pool.check()
    world.useAgain()
    const granted: DeviceBuffer[] = []
    while (pool.available > 0) {
      const buffer = pool.tryAllocate(1, streams[granted.length % 3])
      assert.ok(buffer !== null, `one of ${pool.available} free blocks can be had`)
      world.judge(buffer)
      granted.push(buffer)
    }
    for (const buffer of [...granted, ...held, ...uses.map(use => use.buffer)]) buffer[Symbol.dispose]()
    device.synchronize()
    pool.processDeferred()
    pool.check()
    const { liveBuffers, liveBytes, requestedBytes, pendingBytes } = pool.stats()
    assert.deepEqual([liveBuffers, liveBytes, requestedBytes, pendingBytes], [0, 0, 0, 0])
    world.forget()
  },
}

const FULL_BLOCK: Subject<BlockPool> = {
  ...BLOCK,
  open: device => device.createBlockPool({ blockBytes: BLOCK_BYTES, count: 1, maxCount: 10_000 }),
  prepare: world => {
    while (world.pool.available > 0) take(world, 100, world.streams[0])
  },
  programs: { growth: world => take(world, 100, world.streams[0]) },
}

/** The last thing that is called is the pool; so what it gives is known. */
function take({ pool, held }: World<BlockPool>, bytes: number, stream: Stream): DeviceBuffer {
  const buffer = pool.allocate(bytes, stream)
  held.push(buffer)
  return buffer
}

/** Cuts each program short at each point, and runs it again. */
function cutAtEach<P extends Pool & { check(): void; close(): unknown }>(
  cut: (typeof CUTS)[number],
  { classes, open, prepare, programs, settle }: Subject<P>,
): number {
  const points = new CutPoints(classes, cut)
  let said = 0
  try {
    for (const [name, program] of Object.entries(programs)) {
      let world = new World(open)
      const renew = () => {
        close(world)
        world = new World(open)
      }
      prepare(world)
      const count = points.count(() => program(world))
      assert.ok(count > 0)
      settle(world)
      for (const nth of choosePoints(count, MOST_POINTS, SEED)) {
        prepare(world)
        points.run(nth, () => program(world))
        try {
          settle(world)
          prepare(world)
          program(world)
          settle(world)
        } catch (error) {
          const isSaid = error instanceof PoolError && error.message.includes('close the pool and create another')
          if (!isSaid) throw new Error(`${name} was cut short where method ${nth} begins`, { cause: error })
          said++
          renew()
        }
        if (nth % 8 === 0) renew() // growth adds up
      }
      close(world)
    }
  } finally {
    points.restore()
  }
  return said
}

function close({ driver, device, pool }: World<Pool & { close(): unknown }>): void {
  pool.close()
  device.close()
  assert.equal(driver.usedBytes(), 0)
}

describe(`calls of one thread that are cut short (CUTS_SEED=${SEED} CUTS_ROUNDS=${ROUNDS} CUTS_POINTS=${MOST_POINTS})`, () => {
  for (const cut of CUTS) {
    it(`${cut} leaves a caching pool whole, or the next call says so, where any method begins`, () => {
      assert.ok(cutAtEach(cut, CACHING) > 0)
    })

    it(`${cut} leaves an arena whole where any method begins`, () => {
      assert.equal(cutAtEach(cut, ARENA), 0)
    })

    it(`${cut} leaves a block pool whole where any method begins`, () => {
      assert.equal(cutAtEach(cut, BLOCK), 0)
      assert.equal(cutAtEach(cut, FULL_BLOCK), 0)
    })

    it(`${cut} leaves an arena whole, by chance`, () => {
      const world = new World(ARENA.open)
      const {
        pool,
        streams: [a, b],
      } = world
      const random = new Random(SEED)
      const step = () => {
        const dice = random.below(32)
        const stream = dice & 1 ? a : b
        const buffer = pool.tryAllocate(1 + random.below(2 * KiB), stream, 2 ** random.below(12))
        if (dice < 8) buffer?.free()
        if (dice === 8) world.marks.push(pool.mark())
        if (dice === 9 && random.below(4) === 0) pool.reset(stream)
        if (dice === 10 && world.marks.length > 0) {
          const mark = world.marks.splice(random.below(world.marks.length))[0]
          if (mark.resets === pool.mark().resets && mark.entry <= mark.span.last) pool.rewind(mark, stream)
        }
      }
      for (let round = 0; round < ROUNDS; round++) {
        CUT_BY_CHANCE[cut](step, random)
        ARENA.settle(world)
      }
      close(world)
    })

    it(`${cut} leaves a block pool whole, by chance`, () => {
      const world = new World(BLOCK.open)
      const { pool, held, streams } = world
      const random = new Random(SEED)
      const step = () => {
        const dice = random.below(16)
        // Less than there is: the engine ends the process where an error's message needs a regular expression on a full stack.
        if (held.length < 12 && dice < 8) take(world, 1 + random.below(BLOCK_BYTES), streams[dice & 1])
        else if (held.length > 0) {
          const buffer = held[random.below(held.length)]
          if (buffer.freed) held.splice(held.indexOf(buffer), 1)
          else if (dice < 10) buffer.recordUse(streams[dice & 1])
          else if (dice < 12) buffer.free(streams[dice & 1])
          else buffer.free()
        }
        if (random.below(64) === 0) pool.processDeferred()
      }
      for (let round = 0; round < ROUNDS; round++) {
        CUT_BY_CHANCE[cut](step, random)
        BLOCK.settle(world)
      }
      close(world)
    })
  }
})
