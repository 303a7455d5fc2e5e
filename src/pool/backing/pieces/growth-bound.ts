// Whether a pool takes new memory or stitches what it has. New memory comes first up to a bound near the most that was
// ever in use. A pool that must stitch often has too little memory for its requests, and a little more of it saves
// many mappings. So the bound rises with each stitched block, and falls as the pool is used. In its first requests a
// pool is loose, and it becomes tight while its peak still grows; a pool that seldom stitches is tight at once.

import type { Heaps } from '../backing.js'

/** New memory is taken up to this multiple of the most that was ever in use. */
const BOUND = 1.02
/** The bound while a pool stitches much. */
const MOST_BOUND = 1.2
/** A stitched block raises the bound by this, until it is earned. */
const BOUND_OF_STITCH = 0.0025
/** A stitched block is earned by so many large blocks given back to the heap, and by this time. */
const FREES_OF_STITCH = 80
const SECONDS_OF_STITCH = 0.022
/** New memory is at least this share of the most in use, within the bound. */
const LEAST_GROWTH = 1 / 64

export class GrowthBound {
  /** the most bytes that were in use, a request that is being served included */
  peakBytes = 0
  private readonly startSeconds: number

  /** `clock` returns seconds; a clock that stands still lets no time count. */
  constructor(
    private readonly heaps: Pick<Heaps, 'largeFrees'>,
    private readonly clock: () => number,
  ) {
    this.startSeconds = clock()
  }

  /** Notes that `usedBytes` are in use. */
  noteUse(usedBytes: number): void {
    this.peakBytes = Math.max(this.peakBytes, usedBytes)
  }

  /** The most bytes that a pool that has stitched so many blocks should reserve before it stitches another. */
  mostBytes(stitched: number): number {
    const seconds = this.clock() - this.startSeconds
    const earned = this.heaps.largeFrees / FREES_OF_STITCH + seconds / SECONDS_OF_STITCH
    const bound = BOUND + Math.max(0, stitched - earned) * BOUND_OF_STITCH
    return this.peakBytes * Math.min(bound, MOST_BOUND)
  }

  /** Bytes to add to a pool that needs less: growing seldom is cheaper. */
  get leastGrowthBytes(): number {
    return this.peakBytes * LEAST_GROWTH
  }
}
