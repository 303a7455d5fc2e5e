// The cached blocks that a request takes out of the caches when it finds no free memory.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { KiB, MiB } from '../../../base/bytes.js'
import { TestDevice } from '../../pool.fixture.js'
import type { CachingPool } from '../caching-pool.js'

/** A pool whose caches hold blocks of these sizes, and which gathers what it has before it grows. */
function poolThatCaches(...sizes: readonly number[]): CachingPool {
  const pool = new TestDevice({ capacityBytes: 256 * MiB }).createPool({ releaseThresholdBytes: 0 })
  const held = sizes.map(bytes => pool.allocate(bytes))
  for (const buffer of held) buffer.free()
  return pool
}

/** Whether a cache has a block for a request. */
function isCached(pool: CachingPool, bytes: number): boolean {
  const { cacheMisses } = pool.stats()
  pool.allocate(bytes).free()
  return pool.stats().cacheMisses === cacheMisses
}

describe('a small request that finds no free memory', () => {
  it('drains cached blocks of at least half its size first', () => {
    const pool = poolThatCaches(4 * KiB, 80 * KiB, 80 * KiB)
    pool.allocate(112 * KiB).free()
    assert.ok(isCached(pool, 4 * KiB))
    assert.ok(!isCached(pool, 80 * KiB))
  })

  it('drains smaller blocks as well if these do not suffice', () => {
    const pool = poolThatCaches(...Array.from({ length: 8 }, () => 12 * KiB))
    pool.allocate(112 * KiB).free()
    assert.ok(!isCached(pool, 12 * KiB))
  })
})
