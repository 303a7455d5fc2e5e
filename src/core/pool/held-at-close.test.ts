// Buffers that are held when a `using` block closes their pool.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { KiB, MiB } from '../base/bytes.js'
import { TestDevice } from './pool.fixture.js'
import type { Pool } from './pool.js'

/** The warnings of the process while `work` runs. */
async function warningsOf(work: () => unknown): Promise<string[]> {
  const warnings: string[] = []
  const listener = (warning: Error) => warnings.push(`${warning.name}: ${warning.message}`)
  process.on('warning', listener)
  await work()
  await new Promise(resolve => setImmediate(resolve))
  process.off('warning', listener)
  return warnings
}

function loseIn(pool: Disposable & { allocate(bytes: number): unknown }): void {
  using closed = pool
  closed.allocate(1 * KiB)
  closed.allocate(2 * KiB)
}

describe('a using block that closes a pool with buffers held', () => {
  it('warns, with the number and the bytes', async () => {
    const device = new TestDevice()
    const pools = [
      device.createPool(),
      device.createBlockPool({ blockBytes: 4 * KiB, count: 2 }),
      device.createSharedPool().pool,
      device.createSharedBlocks({ blockBytes: 4 * KiB, count: 2 }).pool,
      device.createPlainPool(),
      device.createDriverPool(),
      device.createHostPool(),
      device.createSharedHost().pool,
    ]
    for (const pool of pools) {
      const [warning, ...others] = await warningsOf(() => loseIn(pool))
      assert.match(
        warning,
        /^PoolWarning: 2 buffers were held, 3 KiB in all, when their \w+ was closed; free them before/,
      )
      assert.deepEqual(others, [])
    }
  })

  it('counts no copies of sleeping memory', async () => {
    const device = new TestDevice()
    const lose = async (held: number) => {
      const pool = device.createPool()
      pool.allocate(1 * MiB)
      using host = device.createHostPool()
      await pool.sleep({ into: host })
      for (let count = 0; count < held; count++) host.allocate(1 * KiB)
    }
    assert.deepEqual(await warningsOf(() => lose(0)), [])
    assert.match((await warningsOf(() => lose(1)))[0], /^PoolWarning: 1 buffer was held, 1 KiB in all/)
  })

  it('names the places in debug mode', async () => {
    const [warning, ...others] = await warningsOf(() => loseIn(new TestDevice().createPool({ debug: true })))
    assert.match(warning, /2 buffers of 3 KiB were held .*: 1 from loseIn \(.*\); 1 from loseIn \(/)
    assert.deepEqual(others, [])
    const own = new TestDevice().createPool({ debug: { warnOnLeak: true } })
    assert.equal((await warningsOf(() => loseIn(own))).length, 1)
  })

  it('says nothing if asked to, without held buffers, of an arena, or by close()', async () => {
    const device = new TestDevice()
    const quiet = await warningsOf(() => {
      loseIn(device.createPool({ warnOnHeld: false }))
      for (const other of [device.createHostPool(), device.createPlainPool()]) {
        other.warnOnHeld = false
        loseIn(other)
      }
      loseIn(device.createArenaPool({ bytes: 1 * MiB }))
      const pool = device.createPool()
      pool.allocate(100)
      assert.equal(pool.close().heldBuffers, 1)
      pool[Symbol.dispose]()
      using _empty = device.createPool()
    })
    assert.deepEqual(quiet, [])
  })
})

it('the close of every pool reports the buffers that were held, once', () => {
  const device = new TestDevice()
  const pools = [
    device.createPool(),
    device.createBlockPool({ blockBytes: 4 * KiB, count: 3 }),
    device.createArenaPool({ bytes: 4 * KiB }),
    device.createPlainPool(),
    device.createDriverPool(),
    device.createHostPool(),
  ]
  for (const pool of pools) {
    const held = [pool.allocate(1 * KiB), pool.allocate(2 * KiB)]
    const freed = pool.allocate(1 * KiB)
    freed.free()
    assert.throws(() => freed.free(), { name: 'PoolError', message: /^free: the buffer was already freed[;,] / })
    assert.deepEqual(pool.close(), { heldBuffers: 2, heldBytes: 3 * KiB }, pool.constructor.name)
    assert.deepEqual(pool.close(), { heldBuffers: 0, heldBytes: 0 }, pool.constructor.name)
    assert.throws(() => held[0].free(), {
      name: 'PoolError',
      message: "free: the buffer's pool is closed; allocate from an open one",
    })
    assert.deepEqual([pool.closed, ...held.map(({ freed }) => freed)], [true, true, true])
  }
})

describe('call sites of several frames', () => {
  const inner = (pool: Pool) => pool.allocate(1 * KiB)
  const first = (pool: Pool) => inner(pool)
  const second = (pool: Pool) => inner(pool)

  it('tell callers of one helper apart', () => {
    const pool = new TestDevice().createPool({ debug: { frames: 2 } })
    for (const call of [first, first, second]) call(pool)
    const sites = pool.liveBySite()
    assert.deepEqual(
      sites.map(({ buffers, bytes }) => [buffers, bytes]),
      [
        [2, 2 * KiB],
        [1, 1 * KiB],
      ],
    )
    assert.match(sites[0].name, /^inner \([^)]*\) ← first \([^)]*\)$/)
    const plain = new TestDevice().createPool({ debug: true })
    for (const call of [first, second]) call(plain)
    assert.deepEqual(plain.liveBySite().length, 1)
  })

  it('are at least one and at most 16', () => {
    for (const frames of [0, 17, 1.5, '2' as never]) {
      const bad = () => new TestDevice().createPool({ debug: { frames } })
      assert.throws(bad, { name: 'RangeError', message: /debug: frames must be a whole number from 1 to 16/ })
    }
  })
})
