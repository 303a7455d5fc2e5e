/**
 * Seeded random numbers: the same seed gives the same sequence on every machine.
 * The generator is mulberry32 (Tommy Ettinger's mixing of a Weyl sequence): 32 bits of state, enough for tests and workloads.
 */
export class Random {
  constructor(private state: number) {}

  /** a whole number from 0 to 2^32 - 1 */
  next(): number {
    this.state = (this.state + 0x6d2b79f5) | 0
    let mixed = Math.imul(this.state ^ (this.state >>> 15), 1 | this.state)
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed
    return (mixed ^ (mixed >>> 14)) >>> 0
  }

  /** from 0, below 1 */
  fraction(): number {
    return this.next() / 2 ** 32
  }

  /** a whole number from 0, below `limit` */
  below(limit: number): number {
    return Math.floor(this.fraction() * limit)
  }

  /** a whole number between the two, inclusive, whose logarithm is uniform: as many of each order of magnitude */
  logUniform(least: number, most: number): number {
    return Math.min(most, Math.floor(least * Math.exp(this.fraction() * Math.log((most + 1) / least))))
  }
}
