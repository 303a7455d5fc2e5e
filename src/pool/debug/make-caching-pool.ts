import type { Clocks } from '../../order/clocks.js'
import type { Stream } from '../../order/stream.js'
import { CachingPool } from '../caching/caching-pool.js'
import type { DebugOptions } from '../caching/debug-options.js'
import { type PoolOptions, parsePoolOptions } from '../caching/options.js'
import { DebugPool } from './debug-pool.js'

/** What makes a caching pool one that looks for mistakes. */
export type WithDebug = PoolOptions & { readonly debug: true | DebugOptions }

/** The caching pool that `options` describe, on a device of `deviceBytes`: in debug mode another class, so that the ordinary one pays nothing. */
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
