/** How much of something there is now, was at most at one time, and came in all. */
export class Counter {
  /** the sum now */
  current = 0
  /** the largest sum so far */
  peak = 0
  /** the sum of all additions */
  total = 0

  /** For wrappers: there is more of it. */
  add(amount: number): void {
    this.current += amount
    this.total += amount
    if (this.current > this.peak) this.peak = this.current
  }

  /** For wrappers: there is less of it. */
  subtract(amount: number): void {
    this.current -= amount
  }
}

/** What was allocated and freed since the counters began at zero. */
export class Counters {
  /** as asked for */
  readonly bytes = new Counter()
  /** buffers */
  readonly allocations = new Counter()

  /** For wrappers: a buffer of `bytes` was handed out. */
  noteAllocation(bytes: number): void {
    this.bytes.add(bytes)
    this.allocations.add(1)
  }

  /** For wrappers: a buffer of `bytes` was taken back. */
  noteFree(bytes: number): void {
    this.bytes.subtract(bytes)
    this.allocations.subtract(1)
  }
}
