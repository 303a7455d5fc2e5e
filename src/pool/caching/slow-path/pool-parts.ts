import type { Clocks } from '../../../order/clocks.js'
import type { Backing } from '../../backing/backing.js'
import type { BlockCache } from '../block-cache.js'
import type { CrossStreamReuse } from '../cross-stream.js'
import type { Deferred } from '../deferred.js'
import type { FreeMemory } from '../free-memory.js'
import type { PoolConfig } from '../options.js'
import type { Settling } from '../settling.js'
import type { CacheDrain } from './cache-drain.js'

/** The parts of a pool that the steps work with. */
export interface PoolParts {
  readonly memory: FreeMemory
  readonly caches: BlockCache
  readonly drain: CacheDrain
  readonly settling: Settling
  readonly crossStream: CrossStreamReuse
  readonly deferred: Deferred
  readonly backing: Backing
  readonly clocks: Clocks
  /** by stream slot: the latest stamp that the host has seen complete */
  readonly seen: Float64Array
  readonly config: PoolConfig
}
