import type { SegregatedFit } from '../../../heap/segregated-fit.js'

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
