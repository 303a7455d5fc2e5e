import type { SegregatedFit } from '../../heap/segregated-fit.js'

/** A request that the slot caches could not serve. */
export interface Miss {
  /** where its block comes from, by its size */
  readonly heap: SegregatedFit
  readonly units: number
  readonly alignUnits: number
  /** of the stream that asks, or ANYBODY */
  readonly slot: number
}

/** Instead of a slot: memory for whoever it may be, so that only what depends on nothing will do. */
export const ANYBODY = -1
