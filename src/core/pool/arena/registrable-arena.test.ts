// Arenas whose memory libraries register, and what arenas tell observers of their segments.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { KiB, MiB } from '../../base/bytes.js'
import type { PoolSegment, SegmentObserver } from '../backing/segment-watch.js'
import { TestDevice } from '../pool.fixture.js'
import { ArenaQueue } from './arena-queue.js'

/** Notes each call, and uses the memory then. */
class Notes implements SegmentObserver {
  readonly told: string[] = []

  constructor(private readonly device: TestDevice) {}

  ready(segment: PoolSegment): void {
    this.note('ready', segment)
  }

  leaving(segment: PoolSegment): void {
    this.note('leaving', segment)
  }

  private note(what: string, { ptr, bytes }: PoolSegment): void {
    this.told.push(`${what} ${bytes / KiB} KiB`)
    this.device.context.activate().cuMemsetD8Async(ptr, 1, bytes, 0)
    this.device.context.finishWork()
  }
}

describe('registrable arena', () => {
  it('is one mapping of whole granules, which it hands out and gives back', () => {
    const device = new TestDevice()
    const before = device.calls('cuMemMap')
    const arena = device.createArenaPool({ bytes: 3 * MiB, backing: 'registrable' })
    const probes = 1 // whether virtual memory works
    assert.equal(device.calls('cuMemMap') - before - probes, 1)
    assert.deepEqual([arena.isRegistrable, arena.maxPoolBytes, arena.stats().reservedBytes], [true, 4 * MiB, 4 * MiB])
    const whole = arena.allocate(4 * MiB)
    assert.deepEqual(arena.segments(), [{ ptr: whole.ptr, bytes: 4 * MiB }])
    assert.equal(arena.tryAllocate(1), null)
    whole.fill(7)
    assert.equal(whole.readSync(4 * MiB - 1)[0], 7)
    arena.check()
    assert.deepEqual(arena.close(), { heldBuffers: 1, heldBytes: 4 * MiB })
    assert.equal(device.freeBytes(), 64 * MiB)
    assert.throws(() => arena.segments(), { name: 'PoolError', message: /segments: the pool is closed/ })
  })

  it('does not grow, and says so', () => {
    const device = new TestDevice()
    for (const [options, name, message] of [
      [
        { bytes: MiB, maxPoolBytes: 2 * MiB, backing: 'registrable' },
        'TypeError',
        /maxPoolBytes above bytes and backing 'registrable' exclude each other.*give bytes all/,
      ],
      [{ bytes: MiB, backing: 'virtual' }, 'TypeError', /backing must be 'auto' or 'registrable', not 'virtual'/],
      [{ bytes: 65 * MiB, backing: 'registrable' }, 'OutOfMemoryError', /createArenaPool: no room for 65 MiB/],
    ] as const) {
      assert.throws(() => device.createArenaPool(options as never), { name, message })
      assert.equal(device.freeBytes(), 64 * MiB)
    }
    device.createArenaPool({ bytes: MiB, maxPoolBytes: MiB, backing: 'registrable' }).close()
  })

  it('is shared by threads, and given back by the last', () => {
    for (const makerLeaves of [false, true]) {
      const device = new TestDevice()
      const { pool, attach } = device.createSharedArena({ bytes: 3 * MiB, backing: 'registrable' })
      const other = attach()
      const buffer = other.allocate(4 * MiB)
      buffer.fill(3)
      assert.deepEqual([pool.isRegistrable, other.isRegistrable, pool.maxPoolBytes], [true, true, 4 * MiB])
      assert.deepEqual(other.segments(), [{ ptr: buffer.ptr, bytes: 4 * MiB }])
      const [mine, its] = [new Notes(device), new Notes(device)]
      pool.observeSegments(mine)
      other.observeSegments(its)
      if (makerLeaves) {
        // As if its thread had died.
        ;(pool as unknown as { leave(): void }).leave()
        other.close()
      } else {
        other.close()
        pool.close()
        assert.deepEqual(mine.told, ['ready 4096 KiB', 'leaving 4096 KiB'])
      }
      assert.deepEqual(its.told, ['ready 4096 KiB', 'leaving 4096 KiB'])
      assert.equal(device.freeBytes(), 64 * MiB)
    }
  })

  it('of a shared arena is given back later, if the driver refuses a part of that', () => {
    for (const call of ['cuMemUnmap', 'cuMemAddressFree'] as const) {
      const device = new TestDevice()
      const { pool } = device.createSharedArena({ bytes: 2 * MiB, backing: 'registrable' })
      device.driver.failCall({ call, code: 999 })
      assert.throws(() => pool.close(), { name: 'CudaError', message: new RegExp(call) })
      pool.close()
      assert.equal(device.freeBytes(), 64 * MiB)
    }
  })

  it('is what a queue lends', async () => {
    const device = new TestDevice()
    const queue = new ArenaQueue(device.clocks, device.defaultStream, { bytes: MiB, backing: 'registrable', count: 2 })
    await queue.use(arena => {
      assert.deepEqual([arena.isRegistrable, arena.maxPoolBytes], [true, 2 * MiB])
    })
    queue.closeNow()
    assert.equal(device.freeBytes(), 64 * MiB)
  })
})

describe('the observer of an arena', () => {
  it('hears of its memory, of each growth, and at the close', () => {
    for (const [options, told] of [
      [{ bytes: 1000 }, ['ready 1 KiB']],
      [{ bytes: MiB, backing: 'registrable' }, ['ready 2048 KiB']],
      [{ bytes: 1000, maxPoolBytes: 32 * MiB }, ['ready 2048 KiB', 'ready 10240 KiB']],
    ] as const) {
      const device = new TestDevice()
      const arena = device.createArenaPool(options)
      const notes = new Notes(device)
      arena.observeSegments(notes)
      arena.tryAllocate(12 * MiB)
      assert.deepEqual(notes.told, told)
      assert.throws(() => arena.observeSegments(notes), { name: 'PoolError', message: /there is an observer/ })
      arena.close()
      assert.deepEqual(notes.told.slice(told.length).sort(), told.map(text => text.replace('ready', 'leaving')).sort())
    }
  })

  it('that refuses keeps the memory, until a later close', () => {
    for (const backing of ['auto', 'registrable'] as const) {
      const device = new TestDevice()
      const arena = device.createArenaPool({ bytes: 2 * MiB, backing })
      const stop = arena.observeSegments({
        ready() {},
        leaving() {
          throw new RangeError('it is in use')
        },
      })
      assert.throws(() => arena.close(), { name: 'RangeError', message: 'it is in use' })
      assert.equal(device.freeBytes(), 62 * MiB)
      stop()
      arena.close()
      assert.equal(device.freeBytes(), 64 * MiB)
    }
  })

  it('must not use the arena', () => {
    const device = new TestDevice()
    const arena = device.createArenaPool({ bytes: 1000, maxPoolBytes: 32 * MiB })
    const message = /an observer of segments is being called/
    arena.observeSegments({
      ready() {
        assert.throws(() => arena.allocate(20 * MiB), { name: 'PoolError', message })
        assert.throws(() => arena.close(), { name: 'PoolError', message })
      },
      leaving() {},
    })
    arena.allocate(4 * MiB)
    arena.check()
  })

  it('of an arena on a buffer is that of the pool', () => {
    const device = new TestDevice()
    const pool = device.createPool({ backing: 'registrable' })
    const region = pool.allocate(2 * MiB)
    const arena = device.createArenaPool({ region })
    const message = /observeSegments: the arena stands on a buffer of another pool; observe that pool/
    assert.throws(() => arena.observeSegments(new Notes(device)), { name: 'PoolError', message })
    assert.deepEqual(arena.segments(), [{ ptr: region.ptr, bytes: 2 * MiB }])
    assert.equal(arena.isRegistrable, false)
  })
})
