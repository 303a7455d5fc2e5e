import { OutOfRangeError } from '../base/argument-errors.js'
import { Region } from '../threads/region.js'

/** A heap over mapped memory has one range, 0 or 1, and every walk of a heap visits all. */
const FIRST_CAPACITY = 2

/**
 * The ranges of a heap, by number: the first record of each, which leads to all others, and its length. They are kept
 * as numbers, so that several threads can share them.
 */
export class Ranges {
  /** by range number: the first record, 0 for a range of another heap, and the units of the range */
  private pairs: Int32Array

  /** With a `region` there is room for the range numbers below `capacity`; without one it grows. */
  constructor(
    private readonly region: Region | null = null,
    capacity = FIRST_CAPACITY,
  ) {
    this.pairs = (region ?? new Region(new ArrayBuffer(capacity * 8))).int32(capacity * 2)
  }

  /** Adds a range, or changes its first record; the last store makes the change. */
  set(range: number, first: number, units: number): void {
    if (range * 2 >= this.pairs.length) this.grow(range + 1)
    this.pairs[range * 2 + 1] = units
    this.pairs[range * 2] = first
  }

  delete(range: number): void {
    this.pairs[range * 2] = 0
  }

  /** The first record of a range, in address order. */
  get(range: number): number {
    return this.pairs[range * 2]
  }

  /** Whether a range belongs to this heap. */
  has(range: number): boolean {
    return this.pairs[range * 2] > 0
  }

  unitsOf(range: number): number {
    return this.pairs[range * 2 + 1]
  }

  /** The number of ranges that there is room for. */
  get most(): number {
    return this.region === null ? Infinity : this.limit
  }

  /** All range numbers are below this. */
  get limit(): number {
    return this.pairs.length / 2
  }

  /** The number and first record of each range. */
  *[Symbol.iterator](): Generator<[number, number]> {
    for (let range = 0; range * 2 < this.pairs.length; range++) {
      if (this.pairs[range * 2] !== 0) yield [range, this.pairs[range * 2]]
    }
  }

  private grow(capacity: number): void {
    if (this.region !== null)
      throw new OutOfRangeError(`a shared heap has ${this.pairs.length / 2} ranges, which is the limit`)
    const larger = new Int32Array(Math.max(capacity, this.pairs.length) * 2)
    larger.set(this.pairs)
    this.pairs = larger
  }
}
