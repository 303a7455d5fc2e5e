// The front of the caching pool: blocks freed on a stream, kept whole, a few for each size class. To take one is an
// allocation, to put one is a free; the heap behind is touched when a class has none, or no place left.
//
// One int32 array holds it all: for each stream slot the units it caches, then for each class PLACES pairs of record and
// units, where 0 units is an empty place. The first place is tried before the others are searched, because a program
// mostly asks for the size that it freed last.

import { CLASSES } from '../heap/size-classes.js'
import { MOST_STREAMS } from '../order/clocks.js'

const PLACES = 4
const CLASS_STRIDE = PLACES * 2
const STREAM_STRIDE = (CLASSES + 1) * CLASS_STRIDE // the units cached take the room of one class

export class SlotCache {
  private readonly slots = new Int32Array(MOST_STREAMS * STREAM_STRIDE)

  constructor(
    /** what the cache of one stream may hold */
    private readonly mostUnits: number,
    /** from this size on only a block of exactly the size asked for is taken: a larger one would waste too much */
    private readonly exactUnits: number,
  ) {}

  /** A cached block of at least `units` within the class of that size, exactly `units` if there is one; 0 for none. */
  take(slot: number, sizeClass: number, units: number): number {
    const slots = this.slots
    const header = slot * STREAM_STRIDE
    let place = header + CLASS_STRIDE + sizeClass * CLASS_STRIDE
    if (slots[place + 1] !== units) {
      place = this.search(place, units)
      if (place === 0) return 0
    }
    slots[header] -= slots[place + 1]
    slots[place + 1] = 0
    return slots[place]
  }

  /** Keeps a block of `units` for its stream; false when its class or the stream's share is full. */
  put(slot: number, sizeClass: number, units: number, record: number): boolean {
    const slots = this.slots
    const header = slot * STREAM_STRIDE
    const cached = slots[header] + units
    if (cached > this.mostUnits) return false
    let place = header + CLASS_STRIDE + sizeClass * CLASS_STRIDE
    if (slots[place + 1] !== 0) {
      place = this.search(place, 0)
      if (place === 0) return false
    }
    slots[place] = record
    slots[place + 1] = units
    slots[header] = cached
    return true
  }

  /** Units cached for one stream. */
  cachedUnits(slot: number): number {
    return this.slots[slot * STREAM_STRIDE]
  }

  /** Empties the cache of one stream; returns its blocks. */
  drain(slot: number): number[] {
    const drained = [...this.entries(slot)].map(entry => entry.record)
    if (drained.length > 0) this.slots.fill(0, slot * STREAM_STRIDE, (slot + 1) * STREAM_STRIDE)
    return drained
  }

  /** Every block cached for one stream, with the class it is kept under. */
  *entries(slot: number): Generator<{ sizeClass: number; record: number; units: number }> {
    const header = slot * STREAM_STRIDE
    if (this.slots[header] === 0) return
    for (let place = CLASS_STRIDE; place < STREAM_STRIDE; place += 2) {
      const units = this.slots[header + place + 1]
      const sizeClass = Math.floor(place / CLASS_STRIDE) - 1
      if (units !== 0) yield { sizeClass, record: this.slots[header + place], units }
    }
  }

  /** The place with exactly `units` (0: an empty one), else one with more if that is allowed; 0 for none. */
  private search(first: number, units: number): number {
    const slots = this.slots
    let larger = 0
    for (let place = first; place < first + CLASS_STRIDE; place += 2) {
      const size = slots[place + 1]
      if (size === units) return place
      if (size > units) larger = place
    }
    return units !== 0 && units < this.exactUnits ? larger : 0
  }
}
