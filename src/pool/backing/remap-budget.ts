// Moving memory saves memory and costs time. What has moved counts against a limit, twice all that is reserved, and is
// forgiven at the rate of a share of the time that passes. Beyond the limit the pool takes new memory, as far as it may; where
// it must not or cannot, memory moves whatever that costs.

const MOST_MOVES = 2
const MOVING_TIME_SHARE = 1 / 20
const MOST_FORGIVING_SECONDS = 0.05 // a pause longer than this counts as this, so that idling earns no long burst of moves
const MOVE_SECONDS = 40e-6 // unmap, map and access of 2 MiB on an H200

export class RemapBudget {
  /** granules moved and not forgiven yet */
  private recent = 0
  private forgivenAtSeconds: number

  /** `clock` tells seconds; one that stands still forgives nothing. */
  constructor(private readonly clock: () => number) {
    this.forgivenAtSeconds = clock()
  }

  /** Some granules have moved. */
  note(granules: number): void {
    this.recent += granules
  }

  /** Whether more has moved than a pool of so many granules should. */
  tooMany(granules: number): boolean {
    const now = this.clock()
    const elapsed = Math.min(now - this.forgivenAtSeconds, MOST_FORGIVING_SECONDS)
    this.recent = Math.max(0, this.recent - (elapsed * MOVING_TIME_SHARE) / MOVE_SECONDS)
    this.forgivenAtSeconds = now
    return this.recent > MOST_MOVES * granules
  }
}
