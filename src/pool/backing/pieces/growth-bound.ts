// Whether a pool takes new memory or stitches what it has. New memory is a little cheaper, and is taken up to a bound
// near the most that was ever in use. The bound is wider while the pool has stitched much lately.

/** New memory is taken up to this multiple of the most that was ever in use. */
const BOUND = 1.02
/** The same while more was stitched than the pool should stitch. */
const WIDE_BOUND = 1.05
/** Mappings that a pool may make for each of its pieces. */
const MAPPINGS_OF_PIECE = 2
/** Mappings may take this share of the time; the seconds of one mapping. */
const STITCHING_TIME_SHARE = 0.005
const MAPPING_SECONDS = 28e-6
/** New memory is at least this share of the most in use, within the bound. */
const LEAST_GROWTH = 1 / 128

export class GrowthBound {
  /** the most bytes that were in use, a request that is being served included */
  peakBytes = 0
  /** pieces that stitching has mapped */
  private mapped = 0
  private readonly startSeconds: number

  /** `clock` returns seconds; a clock that stands still lets no time count. */
  constructor(private readonly clock: () => number) {
    this.startSeconds = clock()
  }

  /** Notes that `usedBytes` are in use. */
  noteUse(usedBytes: number): void {
    this.peakBytes = Math.max(this.peakBytes, usedBytes)
  }

  noteMappings(count: number): void {
    this.mapped += count
  }

  /** The most bytes that a pool of `pieces` pieces should reserve before it stitches. */
  mostBytes(pieces: number): number {
    const earned = ((this.clock() - this.startSeconds) * STITCHING_TIME_SHARE) / MAPPING_SECONDS
    const hasStitchedMuch = this.mapped > MAPPINGS_OF_PIECE * pieces + earned
    return this.peakBytes * (hasStitchedMuch ? WIDE_BOUND : BOUND)
  }

  /** Bytes to add to a pool that needs less: growing seldom is cheaper. */
  get leastGrowthBytes(): number {
    return this.peakBytes * LEAST_GROWTH
  }
}
