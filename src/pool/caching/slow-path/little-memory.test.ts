// A pool that has little memory takes more of it, rather than gather what its streams cache.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { GiB, KiB, MiB } from '../../../base/bytes.js'
import { Random } from '../../../base/random.js'
import type { CachingPool } from '../caching-pool.js'
import { orderCalls, setUp } from '../cross-stream.fixture.js'
import type { PoolOptions } from '../options.js'

const LEAST = 4 * KiB
const MOST = 4 * MiB

/** Two streams take memory of random sizes by turns, as two models with batches of any size do. */
function runByTurns(pool: CachingPool, streams: Parameters<CachingPool['allocate']>[1][], rounds: number): void {
  const random = new Random(1)
  for (let round = 0; round < rounds; round++) {
    const stream = streams[round % streams.length]
    const bytes = random.logUniform(LEAST, MOST)
    const input = pool.allocate(bytes, stream)
    const result = pool.allocate(bytes, stream)
    input.free()
    result.free()
  }
}

function setUpWith(options: PoolOptions) {
  return setUp({ maxPoolBytes: 8 * GiB, ...options }, 16 * GiB)
}

describe('a pool with little memory', () => {
  it('asks the driver about no work once it has seen the sizes', () => {
    const { device, pool, a, b } = setUpWith({})
    runByTurns(pool, [a, b], 2000)
    const calls = orderCalls(device, () => runByTurns(pool, [a, b], 2000))
    assert.equal(calls['cuEventQuery'], undefined)
  })

  for (const [maxPoolBytes, mostBytes] of [
    [1 * GiB, 16 * MiB],
    [16 * GiB, 128 * MiB],
  ] as const) {
    it(`gathers its memory from ${mostBytes / MiB} MiB on, with a limit of ${maxPoolBytes / GiB} GiB`, () => {
      const { device, pool, a, b } = setUpWith({ maxPoolBytes })
      const held = []
      while (pool.stats().reservedBytes < mostBytes) held.push(pool.allocate(2 * MiB, a))
      for (const buffer of held) buffer.free()
      const { reservedBytes } = pool.stats()
      const calls = orderCalls(device, () => pool.allocate(3 * MiB, b))
      assert.ok(calls['cuEventQuery'] > 0)
      assert.equal(pool.stats().reservedBytes, reservedBytes)
    })

    it(`takes new memory up to ${mostBytes / MiB} MiB, with a limit of ${maxPoolBytes / GiB} GiB`, () => {
      const { device, pool, a, b } = setUpWith({ maxPoolBytes })
      const held = []
      while (pool.stats().reservedBytes < mostBytes - 4 * MiB) held.push(pool.allocate(2 * MiB, a))
      for (const buffer of held) buffer.free()
      const { growths, reservedBytes } = pool.stats()
      assert.deepEqual(
        orderCalls(device, () => pool.allocate(3 * MiB, b)),
        {},
      )
      assert.equal(pool.stats().reservedBytes, reservedBytes + 4 * MiB)
      assert.equal(pool.stats().growths, growths + 1)
    })
  }

  for (const [slabs, slabCount, keepsCaches] of [
    ['less', 2, true],
    ['more', 40, false],
  ] as const) {
    it(`${keepsCaches ? 'keeps' : 'empties'} small caches beyond that, while slabs have ${slabs} than a sixth of it`, () => {
      const { pool, a } = setUpWith({ maxPoolBytes: 8 * GiB })
      const large = pool.allocate(160 * MiB, a)
      const held = Array.from({ length: slabCount * 4 }, () => pool.allocate(480 * KiB, a))
      large.free()
      for (const buffer of held.slice(-4)) buffer.free()
      pool.allocate(900 * KiB, a)
      const { cacheMisses } = pool.stats()
      pool.allocate(480 * KiB, a)
      assert.equal(pool.stats().cacheMisses === cacheMisses, keepsCaches)
    })
  }

  it('gathers its memory from the release threshold on', () => {
    const { device, pool, a, b } = setUpWith({ releaseThresholdBytes: 4 * MiB })
    for (const buffer of [pool.allocate(2 * MiB, a), pool.allocate(2 * MiB, a)]) buffer.free()
    const calls = orderCalls(device, () => pool.allocate(3 * MiB, b))
    assert.ok(calls['cuEventQuery'] > 0)
    assert.equal(pool.stats().reservedBytes, 4 * MiB)
  })

  it("with 'wait-before-grow' a stream waits first", () => {
    const { pool, a, b } = setUpWith({ crossStreamReuse: 'wait-before-grow' })
    pool.allocate(2 * MiB, a).free()
    const { reservedBytes } = pool.stats()
    pool.allocate(2 * MiB, b)
    assert.equal(pool.stats().reservedBytes, reservedBytes)
  })
})
