// Buffers leave an arena by a reset or a rewind, a shared pool by a transfer, and every pool by a close. Wrappers that
// count notice it.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { KiB, MiB } from '../../base/bytes.js'
import { PoolError } from '../../base/errors.js'
import { TestDevice } from '../pool.fixture.js'
import type { Pool } from '../pool.js'
import { fallback } from './fallback.js'
import { limited } from './limited.js'
import { statistics } from './statistics.js'
import { tagged } from './tagged.js'

/** All wrappers that count, around one pool, and what each counts as live. */
function counting(pool: Pool) {
  const limit = limited(pool, 8 * MiB)
  const counted = statistics(limit)
  const outer = tagged(counted, { limits: { untagged: 8 * MiB } })
  const held = () => {
    const { requestedBytes, liveBuffers } = outer.statsByTag()['untagged']
    const { bytes, allocations } = counted.counters
    assert.deepEqual([limit.handedOutBytes, bytes.current], [requestedBytes, requestedBytes])
    assert.equal(allocations.current, liveBuffers)
    return [requestedBytes, liveBuffers]
  }
  return { outer, counted, held }
}

describe('wrappers that count', () => {
  it('give the limit back at each reset of an arena, and keep the peaks of each round', () => {
    const arena = new TestDevice().createArenaPool({ bytes: 16 * MiB })
    const { outer, counted, held } = counting(arena)
    for (let round = 0; round < 5; round++) {
      outer.allocate(5 * MiB)
      outer.allocate(1 * MiB).free()
      assert.deepEqual(held(), [5 * MiB, 1])
      assert.equal(outer.tryAllocate(4 * MiB), null)
      arena.reset()
      if (round % 2 === 0) assert.deepEqual(held(), [0, 0])
    }
    assert.equal(counted.counters.bytes.peak, 6 * MiB)
    assert.equal(outer.statsByTag()['untagged'].peakRequestedBytes, 6 * MiB)
    assert.equal(counted.counters.bytes.total, 30 * MiB)
  })

  it('notice a rewind, which drops the newer buffers only, and buffers of others', () => {
    const arena = new TestDevice().createArenaPool({ bytes: 16 * MiB })
    const { outer, held } = counting(arena)
    const kept = outer.allocate(1 * MiB)
    const mark = arena.mark()
    outer.allocate(2 * MiB)
    arena.allocate(3 * MiB)
    arena.rewind(mark)
    assert.deepEqual(held(), [1 * MiB, 1])
    outer.allocate(7 * MiB)
    kept.free()
    assert.deepEqual(held(), [7 * MiB, 1])
  })

  it('notice a reset by another thread of a shared arena', () => {
    const { pool, attach } = new TestDevice().createSharedArena({ bytes: 16 * MiB })
    const { outer, held } = counting(pool)
    outer.allocate(5 * MiB)
    attach().reset()
    assert.deepEqual(held(), [0, 0])
    outer.allocate(8 * MiB)
    assert.deepEqual(held(), [8 * MiB, 1])
  })

  it('no longer count a buffer that was transferred to another thread', () => {
    const device = new TestDevice()
    const pools = [
      device.createSharedPool().pool,
      device.createSharedBlocks({ blockBytes: 4 * MiB, count: 8 }).pool,
      device.createSharedArena({ bytes: 16 * MiB }).pool,
    ]
    for (const pool of pools) {
      const { outer, held } = counting(fallback(pool, device.createPlainPool()))
      const buffer = outer.allocate(4 * MiB)
      outer.allocate(3 * MiB)
      const sent = buffer.transfer()
      assert.deepEqual(held(), [3 * MiB, 1], pool.constructor.name)
      assert.throws(() => buffer.transfer(), { name: 'PoolError', message: /^transfer: / })
      assert.throws(() => buffer.free(), PoolError)
      assert.equal(pool.stats().liveBuffers, 2, 'it is on its way')
      const adopted = pool.adopt(sent)
      assert.equal(adopted.pool, pool)
      adopted.free()
      outer.allocate(4 * MiB)
      assert.deepEqual(held(), [7 * MiB, 2], pool.constructor.name)
    }
  })

  it('keep counting a buffer whose transfer is refused', () => {
    const { outer, held } = counting(new TestDevice().createPool())
    const buffer = outer.allocate(1 * MiB)
    assert.throws(() => buffer.transfer(), { name: 'PoolError', message: /one of this thread; make it with/ })
    assert.deepEqual(held(), [1 * MiB, 1])
    buffer.free()
    assert.deepEqual(held(), [0, 0])
  })

  it('count nothing as live after the close of a pool of any kind', () => {
    const device = new TestDevice()
    const pools = [
      device.createPool(),
      device.createPlainPool(),
      device.createArenaPool({ bytes: 1 * MiB }),
      device.createBlockPool({ blockBytes: 64 * KiB, count: 8 }),
      device.createSharedPool().pool,
      device.createPool({ debug: true }),
    ]
    for (const pool of pools) {
      const { outer, counted, held } = counting(pool)
      outer.allocate(3 * KiB)
      using scope = counted.scope()
      outer.allocate(5 * KiB)
      assert.deepEqual(held(), [8 * KiB, 2])
      pool.close()
      assert.deepEqual(held(), [0, 0], pool.constructor.name)
      assert.equal(counted.counters.bytes.peak, 8 * KiB)
      assert.equal(scope.bytes.current, -3 * KiB, 'of the scope, less the older buffer')
    }
  })

  it('know which of two pools was emptied', () => {
    const device = new TestDevice()
    const [arena, plain] = [device.createArenaPool({ bytes: 1 * MiB }), device.createPlainPool()]
    const { outer, held } = counting(fallback(arena, plain))
    outer.allocate(1 * MiB)
    const other = outer.allocate(2 * MiB)
    arena.reset()
    assert.deepEqual(held(), [2 * MiB, 1])
    outer.allocate(512 * KiB)
    plain.close()
    assert.equal(other.freed, true)
    assert.deepEqual(held(), [512 * KiB, 1])
  })

  it('leave a closed scope as it was', () => {
    const arena = new TestDevice().createArenaPool({ bytes: 1 * MiB })
    const pool = statistics(arena)
    const scope = pool.scope()
    pool.allocate(1 * KiB)
    arena.reset()
    pool.allocate(2 * KiB)
    scope.close()
    arena.reset()
    assert.deepEqual([scope.bytes.current, scope.bytes.peak], [2 * KiB, 2 * KiB])
    assert.equal(pool.counters.bytes.current, 0)
  })
})
