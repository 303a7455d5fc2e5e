// Mapping memory elsewhere saves memory and costs time, so a leaky bucket limits it. The bucket holds twice the
// reserved granules, and drains at a fixed share of the time that passes. When it is full, the pool takes new memory
// if it may. Otherwise memory moves at any cost.

const MOST_MOVES = 2
const MOVING_TIME_SHARE = 1 / 20
const MOST_DRAIN_SECONDS = 0.05 // longer pauses count as this, so that idling does not earn a long burst of moves
const MOVE_SECONDS = 40e-6 // unmap, map and access of 2 MiB on an H200

export class RemapBudget {
  /** granules in the bucket */
  private recent = 0
  private drainedAtSeconds: number

  /** `clock` returns seconds; a clock that stands still drains nothing. */
  constructor(private readonly clock: () => number) {
    this.drainedAtSeconds = clock()
  }

  /** Notes that `granules` have moved. */
  note(granules: number): void {
    this.recent += granules
  }

  /** Whether more has moved than a pool of `granules` granules should move. */
  tooMany(granules: number): boolean {
    const now = this.clock()
    const elapsed = Math.min(now - this.drainedAtSeconds, MOST_DRAIN_SECONDS)
    this.recent = Math.max(0, this.recent - (elapsed * MOVING_TIME_SHARE) / MOVE_SECONDS)
    this.drainedAtSeconds = now
    return this.recent > MOST_MOVES * granules
  }
}
