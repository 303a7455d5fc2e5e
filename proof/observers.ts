// Observers of segments that call the pool although they must not, and that throw.

import assert from 'node:assert/strict'
import { PoolError } from '../src/core/base/errors.js'
import type { PoolSegment } from '../src/core/pool/backing/segment-watch.js'
import type { CachingPool } from '../src/core/pool/caching/caching-pool.js'
import { Thrown } from './refusal.js'

export class Observers {
  private readonly stops = new Map<CachingPool, () => void>()

  has(pool: CachingPool): boolean {
    return this.stops.has(pool)
  }

  /** The observer throws at its nth call; with 0 never. */
  start(pool: CachingPool, throwsAt: number): void {
    if (this.stops.has(pool) || pool.asleep) {
      assert.throws(() => pool.observeSegments({ ready: () => {}, leaving: () => {} }), PoolError)
      return
    }
    const known = new Map<number, number>()
    let calls = 0
    const callBack = () => {
      if (this.stops.has(pool)) assert.throws(() => pool.trimTo(0), PoolError)
      if (++calls === throwsAt) throw new Thrown('an observer throws')
    }
    const stop = pool.observeSegments({
      ready: ({ ptr, bytes }: PoolSegment) => {
        assert.ok(!known.has(ptr), 'a segment is ready once')
        callBack()
        known.set(ptr, bytes)
      },
      leaving: ({ ptr, bytes }) => {
        assert.equal(known.get(ptr), bytes, 'a segment leaves as it was ready')
        callBack()
        known.delete(ptr)
      },
    })
    this.stops.set(pool, stop)
  }

  stop(pool: CachingPool): void {
    this.stops.get(pool)?.()
    this.stops.delete(pool)
  }
}
