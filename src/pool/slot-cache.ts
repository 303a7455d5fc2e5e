// The front of the caching pool: blocks freed on a stream, kept whole, a few for each size class. To take one is an
// allocation, to put one is a free; the heap behind is touched when a class has none, or no place left.
//
// It lies in the words that the record table leaves to its owner: for each stream slot and class PLACES pairs of record
// and units, where 0 units is an empty place, and behind the last class the units that the stream caches. The first place
// is tried before the others are searched, because a program mostly asks for the size that it freed last. Indices are put
// together by shifts and ors, which unlike sums need no check for overflow.

import { assert } from '../base/assert.js'
import type { RecordTable } from '../heap/records.js'
import { CLASSES } from '../heap/size-classes.js'
import { MOST_STREAMS } from '../order/clocks.js'

const PLACES = 4
const CLASS_SHIFT = 3 // 4 places of 2 words
const CLASS_WORDS = PLACES * 2
const STREAM_SHIFT = 12
const STREAM_WORDS = 1 << STREAM_SHIFT
const CACHED_UNITS = STREAM_WORDS - 1
const LARGE_UNITS = 4096 // 1 MiB
assert((CLASSES + 1) * CLASS_WORDS < STREAM_WORDS, 'an empty class lies between the last one and the counter')

/** Words of a record table that the slots take, from word 0 on. */
export const SLOT_WORDS = MOST_STREAMS * STREAM_WORDS

export class SlotCache {
  constructor(
    private readonly records: RecordTable,
    /** what the cache of one stream may hold */
    private readonly mostUnits: number,
  ) {}

  /**
   * A cached block that wastes little: of the class of `units` or of the next, at most an eighth too large. 0 for none.
   */
  take(slot: number, sizeClass: number, units: number): number {
    const slots = this.records.words
    let place = (slot << STREAM_SHIFT) | (sizeClass << CLASS_SHIFT)
    if (slots[place | 1] !== units) {
      place = this.search(place, units)
      if (place === 0) return 0
    }
    const counter = (slot << STREAM_SHIFT) | CACHED_UNITS
    slots[counter] = (slots[counter] - slots[place | 1]) | 0
    slots[place | 1] = 0
    return slots[place]
  }

  /** Keeps a block of `units` for its stream; false when its class or the stream's share is full. */
  put(slot: number, sizeClass: number, units: number, record: number): boolean {
    const slots = this.records.words
    const counter = (slot << STREAM_SHIFT) | CACHED_UNITS
    const cached = (slots[counter] + units) | 0
    if (cached > this.mostUnits) return false
    let place = (slot << STREAM_SHIFT) | (sizeClass << CLASS_SHIFT)
    if (slots[place | 1] !== 0) {
      place = this.emptyPlace(place)
      if (place === 0) return false
    }
    slots[place] = record
    slots[place | 1] = units
    slots[counter] = cached
    return true
  }

  /** Units cached for one stream. */
  cachedUnits(slot: number): number {
    return this.records.words[(slot << STREAM_SHIFT) | CACHED_UNITS]
  }

  /** Takes out what one stream caches in the classes from `first` to before `end`; returns the blocks. */
  drain(slot: number, first = 0, end = CLASSES): number[] {
    const drained: number[] = []
    const slots = this.records.words
    const counter = (slot << STREAM_SHIFT) | CACHED_UNITS
    if (slots[counter] === 0) return drained
    const stop = (slot << STREAM_SHIFT) | (end << CLASS_SHIFT)
    for (let place = (slot << STREAM_SHIFT) | (first << CLASS_SHIFT); place < stop; place += 2) {
      if (slots[place | 1] === 0) continue
      drained.push(slots[place])
      slots[counter] -= slots[place | 1]
      slots[place | 1] = 0
    }
    return drained
  }

  /** Every block cached for one stream, with the class it is kept under. */
  *entries(slot: number): Generator<{ sizeClass: number; record: number; units: number }> {
    if (this.cachedUnits(slot) === 0) return
    for (let place = 0; place < CLASSES * CLASS_WORDS; place += 2) {
      const record = this.records.words[(slot << STREAM_SHIFT) | place]
      const units = this.records.words[(slot << STREAM_SHIFT) | place | 1]
      if (units !== 0) yield { sizeClass: place >> CLASS_SHIFT, record, units }
    }
  }

  /**
   * A place of the class with at least `units`, else any of the next class; 0 for none. Of a large size it is the exact
   * one if there is one: what a small one wastes is not worth the search.
   */
  private search(first: number, units: number): number {
    const slots = this.records.words
    let larger = 0
    for (let place = first; place < first + CLASS_WORDS * 2; place += 2) {
      const size = slots[place | 1]
      if (size < units) continue
      if (size === units || units < LARGE_UNITS) return place
      if (larger === 0) larger = place
    }
    return larger
  }

  /** An empty place of the class; 0 for none (no block is of class 0). */
  private emptyPlace(first: number): number {
    for (let place = first; place < first + CLASS_WORDS; place += 2)
      if (this.records.words[place | 1] === 0) return place
    return 0
  }
}
