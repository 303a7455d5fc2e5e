import { isDriverError } from '../../base/thrown.js'
import type { Clocks } from '../../order/clocks.js'
import type { Stream } from '../../order/stream.js'
import { CachingPool } from '../caching/caching-pool.js'
import type { DebugOptions } from '../caching/debug-options.js'
import { type PoolOptions, parsePoolExtras, parsePoolOptions } from '../caching/options.js'
import { DebugPool } from './debug-pool.js'

/** Options of a caching pool in debug mode. */
export type WithDebug = PoolOptions & { readonly debug: true | DebugOptions }

/**
 * The caching pool that `options` describe, on a device of `deviceBytes`. `keep` gets the pool before
 * it has memory: its caller closes the pool later if the driver refuses that memory, and then the close as well. Debug
 * mode is a class of its own, so that the ordinary pool pays nothing for it.
 */
export function makeCachingPool(
  clocks: Clocks,
  defaultStream: Stream,
  options: PoolOptions,
  deviceBytes: number,
  keep = (_pool: CachingPool) => {},
): CachingPool {
  const config = parsePoolOptions(options, deviceBytes, 'createPool', clocks.context.memoryLimit)
  const { initialBytes, watch, warnOnHeld } = parsePoolExtras(options, config.maxPoolBytes, deviceBytes)
  const { debug } = config
  const pool =
    debug === null
      ? new CachingPool(clocks, defaultStream, config)
      : new DebugPool(clocks, defaultStream, { ...config, debug })
  pool.watch = watch
  pool.warnOnHeld = warnOnHeld
  keep(pool)
  reserveFirst(pool, initialBytes)
  return pool
}

/**
 * Takes the memory of the option `initialBytes` for a new pool. Without it the pool is closed; a refused close is left
 * to that of the device.
 */
export function reserveFirst(pool: { reserve(bytes: number): number; close(): unknown }, bytes: number): void {
  if (bytes === 0) return
  try {
    pool.reserve(bytes)
  } catch (error) {
    try {
      pool.close()
    } catch (second) {
      if (!isDriverError(second)) throw second // the first error says more
    }
    throw error
  }
}
