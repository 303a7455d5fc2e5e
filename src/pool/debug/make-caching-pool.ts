import type { Clocks } from '../../order/clocks.js'
import type { Stream } from '../../order/stream.js'
import { CachingPool } from '../caching/caching-pool.js'
import type { DebugOptions } from '../caching/debug-options.js'
import { type PoolOptions, parsePoolOptions } from '../caching/options.js'
import { DebugPool } from './debug-pool.js'

/** Options of a caching pool in debug mode. */
export type WithDebug = PoolOptions & { readonly debug: true | DebugOptions }

/**
 * The caching pool that `options` describe, on a device of `deviceBytes`. Debug mode is a class of its own, so that
 * the ordinary pool pays nothing for it.
 */
export function makeCachingPool(
  clocks: Clocks,
  defaultStream: Stream,
  options: PoolOptions,
  deviceBytes: number,
): CachingPool {
  const config = parsePoolOptions(options, deviceBytes)
  const { debug } = config
  if (debug === null) return new CachingPool(clocks, defaultStream, config)
  return new DebugPool(clocks, defaultStream, { ...config, debug })
}
