/** Streams that one device can have open at a time. */
export const MOST_STREAMS = 64

/**
 * A vector timestamp of a mark: for each stream slot, its latest mark that is complete once this one is. Missing entries are 0. It is an
 * array, because an array is made in half the time of a Float64Array.
 */
export type VectorTime = readonly number[]

/** Which marks of which streams come before what is submitted to a stream from now on: of work that runs, or of a capture. */
export class KnownOrder {
  constructor(
    /** by stream slot: marks placed so far */
    readonly marked: Float64Array = new Float64Array(MOST_STREAMS),
    /** at `later * MOST_STREAMS + earlier`: the latest mark of one slot that everything submitted to the other from now on comes after */
    readonly known: Float64Array = new Float64Array(MOST_STREAMS * MOST_STREAMS),
    private readonly limit: Int32Array = new Int32Array(1),
  ) {}

  /** slots that are or were in use are below this */
  get slotLimit(): number {
    return this.limit[0]
  }

  /** A slot is in use. */
  meet(slot: number): void {
    if (slot >= this.limit[0]) this.limit[0] = slot + 1
  }

  /** The clock ticks; the vector time of a mark that is placed now. To be called before the driver is. */
  tick(slot: number): VectorTime {
    this.marked[slot]++
    return this.vectorTimeOf(slot)
  }

  /** The stream of a slot has been made to wait for a mark of this vector time. */
  follow(later: number, vectorTime: VectorTime): void {
    const { known } = this
    const row = later * MOST_STREAMS
    for (let slot = 0; slot < vectorTime.length; slot++) {
      if (vectorTime[slot] > known[row + slot]) known[row + slot] = vectorTime[slot]
    }
  }

  protected vectorTimeOf(slot: number): number[] {
    const vectorTime = firstOf(this.known, this.slotLimit, slot * MOST_STREAMS)
    vectorTime[slot] = this.marked[slot]
    return vectorTime
  }
}

/** `length` stamps from index `start` on. */
export function firstOf(stamps: Float64Array, length: number, start = 0): number[] {
  const first = new Array<number>(length)
  for (let index = 0; index < length; index++) first[index] = stamps[start + index]
  return first
}
