// Arenas that stand on a buffer of another pool.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { MiB } from '../../base/bytes.js'
import { CudaError, PoolError } from '../../base/errors.js'
import type { DeviceArray } from '../array.js'
import type { DeviceBuffer } from '../buffer.js'
import { TestDevice } from '../pool.fixture.js'

const BYTES = 4 * MiB

function setUp() {
  const device = new TestDevice()
  const [a, b, c] = [device.createStream(), device.createStream(), device.createStream()]
  const pool = device.createPool()
  const region = pool.allocate(BYTES, a)
  return { device, pool, region, arena: device.createArenaPool({ region }), a, b, c }
}

/** A buffer of each kind of memory. */
const regions: Record<string, (device: TestDevice) => DeviceArray | DeviceBuffer> = {
  'a caching pool': device => device.createPool().allocate(BYTES),
  'a debug pool': device => device.createPool({ debug: true }).allocate(BYTES),
  'a shared pool, in another thread': device => device.createSharedPool().attach().allocate(BYTES),
  'a shared block pool': device => device.createSharedBlocks({ blockBytes: BYTES, count: 2 }).attach().allocate(BYTES),
  'a shared arena': device =>
    device
      .createSharedArena({ bytes: 2 * BYTES })
      .attach()
      .allocate(BYTES),
  'an arena': device => device.createArenaPool({ bytes: 2 * BYTES }).allocate(BYTES),
  'an arena on a buffer': device =>
    device.createArenaPool({ region: device.createPool().allocate(2 * BYTES) }).allocate(BYTES),
  'a block pool': device => device.createBlockPool({ blockBytes: BYTES, count: 1 }).allocate(BYTES),
  'a plain pool': device => device.createPlainPool().allocate(BYTES),
  'a caching pool, as an array': device => device.createPool().zeros(Float32Array, BYTES / 4),
  'a growable buffer': device => device.createGrowableBuffer({ bytes: BYTES }),
}

describe('arena on a buffer', () => {
  for (const [name, make] of Object.entries(regions)) {
    it(`hands out a buffer of ${name}, which stays the caller's`, () => {
      const device = new TestDevice()
      const b = device.createStream()
      const region = make(device)
      const arena = device.createArenaPool({ region })
      for (let round = 0; round < 2; round++) {
        const whole = arena.allocate(BYTES, b)
        assert.deepEqual([whole.ptr, whole.byteLength, arena.tryAllocate(1)], [region.ptr, BYTES, null])
        whole.fill(round)
        arena.reset()
      }
      assert.equal(arena.stats().reservedBytes, BYTES)
      assert.deepEqual(arena.close(), { heldBuffers: 0, heldBytes: 0 })
      assert.equal(new Uint8Array(region.readSync().buffer)[BYTES - 1], 1)
      region.free()
    })
  }

  it('has the whole units of the buffer', () => {
    const { device, pool } = setUp()
    const arena = device.createArenaPool({ region: pool.allocate(1000) })
    assert.deepEqual([arena.maxPoolBytes, arena.availableBytes], [768, 768])
    assert.throws(() => arena.allocate(1000), {
      name: 'OutOfMemoryError',
      message: /the arena has 768 B in all: make it larger/,
    })
    arena.check()
  })

  it('waits for the work on the buffer, and the stream of the buffer for the work in the arena', () => {
    const { device, region, arena, a, b, c } = setUp()
    const first = device.hold(a)
    region.fill(1)
    arena.allocate(1000, b)
    assert.equal(b.query(), false, 'the buffer is not ready')
    first()
    device.hold(b)
    arena.close()
    assert.deepEqual([a.query(), b.query(), c.query()], [false, false, true], 'the host does not wait')
  })

  it('tells the pool once of each stream, so that a buffer freed too early waits for their work', () => {
    for (const use of [
      ({ arena, b }) => arena.allocate(1000, b),
      ({ arena, a, b }) => arena.allocate(1000, a).recordUse(b),
      ({ arena, a, b }) => arena.allocate(1000, a).free(b),
    ] satisfies ((world: ReturnType<typeof setUp>) => void)[]) {
      const world = setUp()
      const { device, pool, region, arena, a, b } = world
      let told = 0
      const { allocation } = region
      const recordUse = allocation.recordUse.bind(allocation)
      allocation.recordUse = (...args) => {
        told++
        recordUse(...args)
      }
      for (let round = 0; round < 3; round++) {
        use(world)
        arena.reset(a)
      }
      assert.equal(told, 1)
      const { ptr } = region
      device.hold(b)
      region.free()
      assert.ok(pool.allocate(BYTES, a).ptr !== ptr || !a.query(), 'another stream still works on the memory')
      arena.close()
    }
  })

  it('names a buffer that was freed before the arena was closed', () => {
    const { pool, region, arena, a, b } = setUp()
    const [held, next] = [arena.allocate(1000, a), arena.allocate(1000, a)]
    region.free()
    for (const use of [() => held.ptr, () => held.fill(0), () => arena.allocate(1, b)]) {
      assert.throws(use, {
        name: 'PoolError',
        message: /^\w+: the region of the arena was freed; close the arena before its region$/,
      })
    }
    assert.throws(() => arena.allocate(1, a).ptr, PoolError)
    const before = arena.stats().liveBuffers
    held.free()
    next.free(b)
    assert.equal(arena.stats().liveBuffers, before - 2)
    arena.reset()
    arena.close()
    const second = new TestDevice()
    const closed = second.createPool()
    const other = second.createArenaPool({ region: closed.allocate(1000) })
    closed.close()
    assert.throws(() => other.allocate(1).ptr, { name: 'PoolError', message: /the region of the arena was freed/ })
    other.close()
    pool.close()
  })

  it('names a buffer that was made shorter, and one whose pool sleeps', async () => {
    const { device, pool, arena, a } = setUp()
    const region = device.createGrowableBuffer({ bytes: BYTES })
    const growing = device.createArenaPool({ region })
    const held = growing.allocate(1000)
    region.shrink(1000)
    assert.throws(() => held.ptr, { name: 'PoolError', message: /^ptr: the region of the arena was made shorter/ })
    const asleep = arena.allocate(1000, a)
    await pool.sleep()
    assert.throws(() => asleep.fill(0), { name: 'PoolError', message: /^fill: the pool is asleep/ })
    await pool.wake()
    asleep.fill(0)
  })

  it('passes on to a pool in debug mode which work uses the memory', () => {
    const { device, a, b } = setUp()
    const region = device.createPool({ debug: true }).allocate(BYTES, a)
    const arena = device.createArenaPool({ region })
    const noted: string[] = []
    region.noteUse = (_, call) => noted.push(call)
    arena.allocate(1000, b).fill(0)
    assert.deepEqual(noted, ['fill'])
  })

  it('a refused wait leaves the arena open', () => {
    const { device, arena, a, b } = setUp()
    const held = arena.allocate(1000, b)
    device.hold(b)
    device.driver.failCall({ call: 'cuStreamWaitEvent', code: 999 })
    assert.throws(() => arena.close(), CudaError)
    assert.deepEqual([arena.closed, held.freed], [false, false])
    arena.close()
    assert.equal(a.query(), false)
  })

  it('refuses bad regions by name', () => {
    const { device, region } = setUp()
    const stale = device.createPool().allocate(1000)
    stale.free()
    const bad: readonly [unknown, string, RegExp][] = [
      [
        { region: 5 },
        'TypeError',
        /createArenaPool: region must be a DeviceBuffer or a DeviceArray, such as .*, not 5/,
      ],
      [{ region: null }, 'TypeError', /region must be a DeviceBuffer/],
      [{ region: new Uint8Array(1000) }, 'TypeError', /region must be a DeviceBuffer or a DeviceArray/],
      [
        { region: device.createPool().zeros(Uint8Array, 1000).subarray(0) },
        'PoolError',
        /this is a view made by subarray/,
      ],
      [{ region: stale }, 'PoolError', /createArenaPool: the buffer was already freed/],
      [{ region: device.createPool().allocate(255) }, 'RangeError', /the region must have 256 bytes at least, not 255/],
      [{ region: new TestDevice().createPool().allocate(1000) }, 'PoolError', /the region belongs to another device/],
      [{ region, bytes: 1000 }, 'TypeError', /region and bytes exclude each other/],
      [{ region, maxPoolBytes: 1000 }, 'TypeError', /region and maxPoolBytes exclude each other/],
      [
        { region, bytes: 1000, shared: true },
        'TypeError',
        /unknown option 'shared'.*call createSharedArenaPool for that/,
      ],
      [
        { region, size: 1 },
        'TypeError',
        /unknown option 'size'; the options are bytes, maxPoolBytes, backing, region, over/,
      ],
    ]
    for (const [options, name, message] of bad) {
      assert.throws(() => device.createArenaPool(options as never), { name, message }, `${message}`)
    }
    device.createArenaPool({ bytes: 1000, region: undefined } as never).close()
    const first = new TestDevice({ devices: 2 })
    const arena = first.createArenaPool({ region: first.createPool().allocate(1000) })
    assert.throws(() => arena.setAccess(new TestDevice(first.driver, 1), 'readWrite'), {
      name: 'PoolError',
      message: 'setAccess: the arena stands on a buffer of another pool; set the access of that pool',
    })
  })
})
