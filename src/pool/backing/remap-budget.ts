// Mapping memory elsewhere saves memory and costs time. A leaky bucket limits it: the bucket holds twice the reserved granules, and drains at
// a fixed share of the time that passes. When it is full, the pool takes new memory as far as it may. Where it must not or cannot,
// memory moves whatever that costs.

const MOST_MOVES = 2
const MOVING_TIME_SHARE = 1 / 20
const MOST_DRAIN_SECONDS = 0.05 // a pause longer than this counts as this, so that idling earns no long burst of moves
const MOVE_SECONDS = 40e-6 // unmap, map and access of 2 MiB on an H200

export class RemapBudget {
  /** granules in the bucket */
  private recent = 0
  private drainedAtSeconds: number

  /** `clock` tells seconds; one that stands still drains nothing. */
  constructor(private readonly clock: () => number) {
    this.drainedAtSeconds = clock()
  }

  /** Some granules have moved. */
  note(granules: number): void {
    this.recent += granules
  }

  /** Whether more has moved than a pool of so many granules should. */
  tooMany(granules: number): boolean {
    const now = this.clock()
    const elapsed = Math.min(now - this.drainedAtSeconds, MOST_DRAIN_SECONDS)
    this.recent = Math.max(0, this.recent - (elapsed * MOVING_TIME_SHARE) / MOVE_SECONDS)
    this.drainedAtSeconds = now
    return this.recent > MOST_MOVES * granules
  }
}
