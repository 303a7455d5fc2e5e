// Finds the event at which most bytes were in use, in any range of events, by a pyramid of such events: one for each
// 64 events, one for each 128, and so on.

const FIRST_SHIFT = 6

export class Pyramid {
  /** level `i` has the event with most bytes of each 64 · 2^i events */
  private readonly levels: Int32Array[] = []

  constructor(private readonly values: Float64Array) {
    let below: Int32Array | null = null
    for (let shift = FIRST_SHIFT; below === null || below.length > 1; shift++) {
      const level: Int32Array = new Int32Array(Math.ceil(values.length / 2 ** shift))
      for (let i = 0; i < level.length; i++) {
        level[i] =
          below === null
            ? this.scan(i << FIRST_SHIFT, Math.min(values.length, (i + 1) << FIRST_SHIFT))
            : this.greater(below[2 * i], below[Math.min(2 * i + 1, below.length - 1)])
      }
      this.levels.push(level)
      below = level
    }
  }

  /** The first event from `from` to `to` - 1 with the greatest value; -1 for an empty range. */
  most(from: number, to: number): number {
    let best = -1
    let at = Math.max(0, from)
    const end = Math.min(to, this.values.length)
    while (at < end) {
      let level = -1
      let step = 1
      while (
        level + 1 < this.levels.length &&
        at % 2 ** (FIRST_SHIFT + level + 1) === 0 &&
        at + 2 ** (FIRST_SHIFT + level + 1) <= end
      ) {
        level++
        step = 2 ** (FIRST_SHIFT + level)
      }
      const found = level < 0 ? at : this.levels[level][at / step]
      best = best < 0 ? found : this.greater(best, found)
      at += step
    }
    return best
  }

  private scan(from: number, to: number): number {
    let best = from
    for (let event = from + 1; event < to; event++) if (this.values[event] > this.values[best]) best = event
    return best
  }

  private greater(first: number, second: number): number {
    return this.values[second] > this.values[first] ? second : first
  }
}
