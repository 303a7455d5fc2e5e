// Vector clocks over the streams of a device, as arithmetic.
//
// A stream's clock ticks at each mark: an event recorded on the stream, or a call that waits for the stream. A free
// stamps its block with the first mark that will cover the free, `marked + 1`. Another stream may use the block once
// that mark is known to come before the stream's next work (`known`), or the host has seen it complete.
//
// A mark has a vector time: for each stream, the latest mark that is complete once this mark is. A wait for a mark
// teaches the waiter the whole vector time, so order is passed on from stream to stream. Two rules keep this sound.
// The clock ticks, and the vector time is taken, before the driver is called for a mark. The waiter writes down the
// vector time after the driver was called. A mistake in timing then costs a reuse and never data.

/** Streams that one device can have open at a time, a power of two. */
export const MOST_STREAMS = 2048
/** Streams that the clocks of a capture have room for at first. */
const FEW_STREAMS = 8

/**
 * A vector timestamp of a mark: for each stream slot, its latest mark that is complete once this mark is. Slot and
 * stamp take turns in the array, and the mark's own slot comes first. Slots that are left out have stamp 0: most of a
 * thousand streams wait for few others. A plain array takes half the time of a Float64Array to make.
 */
export type VectorTime = readonly number[]

/**
 * Knows which marks come before the next work of each stream. A device has such clocks for work that runs, each
 * capture for its own work.
 */
export class VectorClocks {
  /** Without tables, makes its own, which grow with the slots in use. */
  constructor(
    /** by stream slot: marks placed so far */
    public marked: Float64Array = new Float64Array(FEW_STREAMS),
    /**
     * at `later * stride + earlier`: the latest mark of slot `earlier` that comes before the next work of slot `later`
     */
    public known: Float64Array = new Float64Array(FEW_STREAMS * FEW_STREAMS),
    private readonly limit: Int32Array = new Int32Array(1),
    /** slots that the tables have room for; MOST_STREAMS for the clocks of a device */
    public stride: number = FEW_STREAMS,
  ) {}

  /** All slots that were ever used are below this. */
  get slotLimit(): number {
    return this.limit[0]
  }

  /** A slot is in use. */
  includeSlot(slot: number): void {
    while (slot >= this.stride) this.grow()
    if (slot >= this.limit[0]) this.limit[0] = slot + 1
  }

  private grow(): void {
    const { marked, known, stride } = this
    this.stride = 2 * stride
    this.marked = new Float64Array(this.stride)
    this.marked.set(marked)
    this.known = new Float64Array(this.stride ** 2)
    for (let slot = 0; slot < stride; slot++) {
      this.known.set(known.subarray(slot * stride, (slot + 1) * stride), slot * this.stride)
    }
  }

  /**
   * Advances the clock for a mark, and returns the mark's vector time. The driver is called for the mark after this.
   */
  tick(slot: number): VectorTime {
    this.marked[slot]++
    return this.vectorTimeOf(slot)
  }

  /** The stream of slot `later` has been made to wait for a mark of this vector time. */
  follow(later: number, vectorTime: VectorTime): void {
    const { known } = this
    const row = later * this.stride
    for (let index = 0; index < vectorTime.length; index += 2) {
      const entry = row + vectorTime[index]
      const stamp = vectorTime[index + 1]
      if (stamp > known[entry]) known[entry] = stamp
    }
  }

  /** The vector time of a slot's latest mark, as a copy. */
  vectorTimeOf(slot: number): number[] {
    const { known, slotLimit } = this
    const row = slot * this.stride
    const vectorTime = [slot, this.marked[slot]]
    for (let other = 0; other < slotLimit; other++) {
      const stamp = known[row + other]
      if (stamp > 0 && other !== slot) vectorTime.push(other, stamp)
    }
    return vectorTime
  }
}
