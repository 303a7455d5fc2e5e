// Seeded random numbers for the simulated device, tests and workloads.

/**
 * The same seed gives the same sequence on each machine. The generator is mulberry32 by Tommy Ettinger, which mixes a
 * Weyl sequence and has 32 bits of state.
 */
export class Random {
  constructor(private state: number) {}

  /** A whole number from 0 to 2^32 - 1. */
  next(): number {
    this.state = (this.state + 0x6d2b79f5) | 0
    let mixed = Math.imul(this.state ^ (this.state >>> 15), 1 | this.state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return (mixed ^ (mixed >>> 14)) >>> 0
  }

  /** A number from 0, below 1. */
  fraction(): number {
    return this.next() / 2 ** 32
  }

  /** A whole number from 0, below `limit`. */
  below(limit: number): number {
    return Math.floor(this.fraction() * limit)
  }

  /** A whole number from `least` to `most` with a uniform logarithm: each order of magnitude is equally likely. */
  logUniform(least: number, most: number): number {
    return Math.min(most, Math.floor(least * Math.exp(this.fraction() * Math.log((most + 1) / least))))
  }
}
