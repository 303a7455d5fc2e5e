/** A quantity: its value now, its highest value, and the sum of all additions. */
export class Counter {
  /** the value now */
  current = 0
  /** the highest value of `current` */
  peak = 0
  /** the sum of all additions */
  total = 0

  /** For wrappers: adds `amount`. */
  add(amount: number): void {
    this.current += amount
    this.total += amount
    if (this.current > this.peak) this.peak = this.current
  }

  /** For wrappers: subtracts `amount`. */
  subtract(amount: number): void {
    this.current -= amount
  }
}

/** Counts of allocations and frees since the counters started at zero. */
export class Counters {
  /** requested bytes */
  readonly bytes = new Counter()
  /** buffers */
  readonly allocations = new Counter()

  /** For wrappers: notes that a buffer of `bytes` was handed out. */
  noteAllocation(bytes: number): void {
    this.bytes.add(bytes)
    this.allocations.add(1)
  }

  /** For wrappers: notes that a buffer of `bytes` was freed. */
  noteFree(bytes: number): void {
    this.bytes.subtract(bytes)
    this.allocations.subtract(1)
  }
}
