// What the classes of the central heap share: the parts of their pool, a request on the slow path, and how it waits.

import type { RecordTable } from '../../../heap/records.js'
import type { SegregatedFit } from '../../../heap/segregated-fit.js'
import type { Clocks, Mark } from '../../../order/clocks.js'
import type { BlockCache } from '../block-cache.js'
import type { PoolConfig } from '../options.js'

/** The parts of a pool that its central heap works with. */
export interface PoolParts {
  readonly records: RecordTable
  readonly caches: BlockCache
  readonly clocks: Clocks
  /** see `seenBy` */
  readonly seen: Float64Array
  readonly config: PoolConfig
}

/** A class of the central heap, which works with all of them. */
export abstract class OfPool {
  protected readonly records: RecordTable
  protected readonly caches: BlockCache
  protected readonly clocks: Clocks
  readonly seen: Float64Array
  protected readonly config: PoolConfig

  constructor({ records, caches, clocks, seen, config }: PoolParts) {
    this.records = records
    this.caches = caches
    this.clocks = clocks
    this.seen = seen
    this.config = config
  }
}

/**
 * By stream slot: the latest stamp that the host has seen complete. A deterministic pool counts only the waits of its
 * own.
 */
export function seenBy(clocks: Clocks, config: Pick<PoolConfig, 'deterministic'>): Float64Array {
  return config.deterministic ? clocks.waited : clocks.completed
}

/** A request that neither the stream caches nor the heap could serve. */
export interface Miss {
  /** the heap for blocks of that size */
  readonly heap: SegregatedFit
  readonly units: number
  readonly alignUnits: number
  /** the slot of the stream that asks, or `ANY_STREAM` */
  readonly slot: number
  /** for a slab, which must not lie in a view */
  readonly isSlab?: boolean
}

/** In place of a slot: any stream may use the block at once, so the block must not depend on any work. */
export const ANY_STREAM = -1

/**
 * Work that may have to wait for the GPU. Before each wait it yields the marks that it is about to wait for. The
 * caller can do something else until those marks are complete; the wait that follows then takes no time.
 */
export type Waiting<R> = Generator<readonly Mark[], R, void>

/** Runs such work to its end. The work waits on the host itself. */
export function finish<R>(work: Waiting<R>): R {
  for (;;) {
    const step = work.next()
    if (step.done === true) return step.value
  }
}
