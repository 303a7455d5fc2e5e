// The front of the caching pool: blocks freed on a stream, kept whole, a few for each size class. To take one is an
// allocation, to put one is a free; the heap behind is touched when a class has none, or no place left.

import { type RecordTable, Stride, Word } from '../heap/records.js'
import { CLASSES } from '../heap/size-classes.js'
import { MOST_STREAMS } from '../order/clocks.js'

const PLACES = 7
const STRIDE = 1 + PLACES // a count, then the blocks
const STREAM_STRIDE = CLASSES * STRIDE

export class SlotCache {
  /** units cached for each stream slot */
  readonly cachedUnits = new Float64Array(MOST_STREAMS)
  private readonly slots = new Int32Array(MOST_STREAMS * STREAM_STRIDE)

  constructor(
    private readonly records: RecordTable,
    /** what the cache of one stream may hold */
    private readonly mostUnits: number,
    /** from this size on only a block of exactly the size asked for is taken: a larger one would waste too much */
    private readonly exactUnits: number,
  ) {}

  /** A cached block of at least `units` within the class of that size, exactly `units` if there is one; 0 for none. */
  take(slot: number, sizeClass: number, units: number): number {
    const slots = this.slots
    const base = slot * STREAM_STRIDE + sizeClass * STRIDE
    const count = slots[base]
    if (count === 0) return 0
    const words = this.records.words
    let place = 0
    for (let index = base + count; index > base; index--) {
      const size = words[slots[index] * Stride.words + Word.units]
      if (size === units) {
        place = index
        break
      }
      if (size > units && place === 0) place = index
    }
    if (place === 0) return 0
    const record = slots[place]
    const size = words[record * Stride.words + Word.units]
    if (size !== units && units >= this.exactUnits) return 0
    slots[place] = slots[base + count]
    slots[base] = count - 1
    this.cachedUnits[slot] -= size
    return record
  }

  /** Keeps a block of `units` for its stream; false when its class or the stream's share is full. */
  put(slot: number, sizeClass: number, units: number, record: number): boolean {
    const slots = this.slots
    const base = slot * STREAM_STRIDE + sizeClass * STRIDE
    const count = slots[base] + 1
    const cached = this.cachedUnits[slot] + units
    if (count > PLACES || cached > this.mostUnits) return false
    slots[base + count] = record
    slots[base] = count
    this.cachedUnits[slot] = cached
    return true
  }

  /** Empties the cache of one stream; returns its blocks. */
  drain(slot: number): number[] {
    const drained: number[] = []
    if (this.cachedUnits[slot] === 0) return drained
    const end = (slot + 1) * STREAM_STRIDE
    for (let base = slot * STREAM_STRIDE; base < end; base += STRIDE) {
      for (let index = 1; index <= this.slots[base]; index++) drained.push(this.slots[base + index])
      this.slots[base] = 0
    }
    this.cachedUnits[slot] = 0
    return drained
  }

  /** Every cached block with the stream slot and class it is kept under. */
  *entries(): Generator<{ slot: number; sizeClass: number; record: number }> {
    for (let base = 0; base < this.slots.length; base += STRIDE) {
      const slot = Math.floor(base / STREAM_STRIDE)
      if (this.cachedUnits[slot] === 0) {
        base = (slot + 1) * STREAM_STRIDE - STRIDE
        continue
      }
      const sizeClass = base / STRIDE - slot * CLASSES
      for (let index = 1; index <= this.slots[base]; index++)
        yield { slot, sizeClass, record: this.slots[base + index] }
    }
  }
}
