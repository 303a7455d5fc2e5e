import { WrongTypeError } from '../core/base/argument-errors.js'
import { describe } from '../core/base/bytes.js'
import { PoolError } from '../core/base/errors.js'
import type { Context } from '../core/driver/context.js'
import { ArenaPool } from '../core/pool/arena/arena-pool.js'
import { CachingPool } from '../core/pool/caching/caching-pool.js'
import { Pool } from '../core/pool/pool.js'

/** A pool with `backing: 'registrable'`: a caching pool, or an arena. */
export type RegistrablePool = CachingPool | ArenaPool

/** Throws TypeError or PoolError unless NCCL can register the memory of `pool` for a rank of `context`. */
export function checkRegistrable(call: string, pool: unknown, context: Context): asserts pool is RegistrablePool {
  if (!(pool instanceof CachingPool || pool instanceof ArenaPool)) {
    const remedy =
      pool instanceof Pool ? 'pass the pool behind a wrapper; a shared pool is mapped by another thread' : ''
    throw new WrongTypeError(
      `${call}: pool must be of createPool({ backing: 'registrable' }) or of createArenaPool with it, not ${describe(pool)}${remedy === '' ? '' : `; ${remedy}`}`,
    )
  }
  if (pool.closed) throw new PoolError(`${call}: the pool is closed; create another`, 'ERR_POOL_CLOSED')
  if (!pool.isRegistrable) {
    throw new PoolError(
      `${call}: NCCL cannot register this pool's memory, which is not one mapping a segment, or not exportable; ` +
        "create it with backing: 'registrable'",
      'ERR_NOT_SUPPORTED',
    )
  }
  if (pool.context.sharesDevice(context)) return
  throw new PoolError(
    `${call}: the pool is of device ${pool.context.ordinal}, and this rank of device ${context.ordinal}; register a pool of its own device`,
    'ERR_OTHER_DEVICE',
  )
}
