// The front of the caching pool: blocks freed on a stream, kept whole, a few for each size class. To take one is an
// allocation, to put one is a free; the heap behind is touched when a class has none, or no place left.
//
// It lies in the words that the record table leaves to its owner: for each stream slot and class a stack of records, its
// height first, and behind the last class the units that the stream caches. The top of the stack is tried first, because
// a program mostly asks for the size that it freed last. Indices are put together by shifts and ors, which unlike sums
// need no check for overflow; for the same reason of speed the hot methods are handed the words that their caller has.

import { assert } from '../base/assert.js'
import { type RecordTable, Word } from '../heap/records.js'
import { CLASSES } from '../heap/size-classes.js'
import { MOST_STREAMS } from '../order/clocks.js'

const CLASS_SHIFT = 3
const CLASS_WORDS = 1 << CLASS_SHIFT
const PLACES = 4 // more would keep too much of large sizes from the heap
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
   * A cached block that wastes little: of the class of `units` or of the next, so at most an eighth or one unit too large.
   * 0 for none.
   */
  take(words: Int32Array, slot: number, sizeClass: number, units: number): number {
    const stack = (slot << STREAM_SHIFT) | (sizeClass << CLASS_SHIFT)
    const height = words[stack]
    let record = words[stack | height]
    if (height === 0 || words[(record << 4) | Word.units] !== units) {
      record = this.search(words, stack, units)
      if (record === 0) return 0
    } else words[stack] = height - 1
    const counter = (slot << STREAM_SHIFT) | CACHED_UNITS
    words[counter] = (words[counter] - words[(record << 4) | Word.units]) | 0
    return record
  }

  /** Keeps a block of `units` for its stream; false when its class or the stream's share is full. */
  put(words: Int32Array, slot: number, sizeClass: number, units: number, record: number): boolean {
    const counter = (slot << STREAM_SHIFT) | CACHED_UNITS
    const cached = (words[counter] + units) | 0
    const stack = (slot << STREAM_SHIFT) | (sizeClass << CLASS_SHIFT)
    const height = words[stack]
    if (height >= PLACES || cached > this.mostUnits) return false
    words[stack] = height + 1
    words[stack | (height + 1)] = record
    words[counter] = cached
    return true
  }

  /** Units cached for one stream. */
  cachedUnits(slot: number): number {
    return this.records.words[(slot << STREAM_SHIFT) | CACHED_UNITS]
  }

  /** Takes out a block of a class above `sizeClass` and below `end`, the smallest there is; 0 for none. */
  takeLarger(slot: number, sizeClass: number, end: number): number {
    const words = this.records.words
    const counter = (slot << STREAM_SHIFT) | CACHED_UNITS
    for (let larger = sizeClass + 1; larger < end; larger++) {
      const record = this.pop(words, (slot << STREAM_SHIFT) | (larger << CLASS_SHIFT))
      if (record === 0) continue
      words[counter] -= words[(record << 4) | Word.units]
      return record
    }
    return 0
  }

  /** Takes out what one stream caches in the classes from `first` to before `end`; returns the blocks. */
  drain(slot: number, first = 0, end = CLASSES): number[] {
    const drained: number[] = []
    const slots = this.records.words
    const counter = (slot << STREAM_SHIFT) | CACHED_UNITS
    if (slots[counter] === 0) return drained
    for (let sizeClass = first; sizeClass < end; sizeClass++) {
      const stack = (slot << STREAM_SHIFT) | (sizeClass << CLASS_SHIFT)
      for (; slots[stack] > 0; slots[stack]--) {
        const record = slots[stack | slots[stack]]
        slots[counter] -= slots[(record << 4) | Word.units]
        drained.push(record)
      }
    }
    return drained
  }

  /** Every block cached for one stream, with the class it is kept under. */
  *entries(slot: number): Generator<{ sizeClass: number; record: number; units: number }> {
    if (this.cachedUnits(slot) === 0) return
    const words = this.records.words
    for (let sizeClass = 0; sizeClass < CLASSES; sizeClass++) {
      const stack = (slot << STREAM_SHIFT) | (sizeClass << CLASS_SHIFT)
      for (let place = 1; place <= words[stack]; place++) {
        const record = words[stack | place]
        yield { sizeClass, record, units: words[(record << 4) | Word.units] }
      }
    }
  }

  /**
   * Takes out a record of the class with exactly `units`, or a larger one; 0 for none. Of a large size the exact one is
   * looked for first; for a small one any block of the next class will do at once, since what it wastes is not worth a search.
   */
  private search(words: Int32Array, stack: number, units: number): number {
    if (units < LARGE_UNITS) {
      const next = this.pop(words, stack + CLASS_WORDS)
      if (next !== 0) return next
    }
    let larger = 0
    for (let place = words[stack]; place > 0; place--) {
      const size = words[(words[stack | place] << 4) | Word.units]
      if (size === units) return this.remove(words, stack, place)
      if (size > units) larger = place
    }
    if (larger !== 0) return this.remove(words, stack, larger)
    return units < LARGE_UNITS ? 0 : this.pop(words, stack + CLASS_WORDS)
  }

  private pop(words: Int32Array, stack: number): number {
    const height = words[stack]
    if (height === 0) return 0
    words[stack] = height - 1
    return words[stack | height]
  }

  private remove(words: Int32Array, stack: number, place: number): number {
    const record = words[stack | place]
    words[stack | place] = words[stack | words[stack]]
    words[stack]--
    return record
  }
}
