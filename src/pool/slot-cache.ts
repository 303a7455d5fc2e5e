// The front of the caching pool: blocks freed on a stream, kept whole, a few for each size class. To take one is an
// allocation, to put one is a free; the heap behind is touched when a class has none, or no place left.
//
// It lies in the words that the record table leaves to its owner: for each stream slot and class a stack of records, its
// height first, and behind the last class the units that the stream caches. The top of the stack is tried first, because
// a program mostly asks for the size that it freed last. Indices are put together by shifts and ors, which unlike sums
// need no check for overflow; for the same reason of speed the hot methods are handed the words that their caller has.

import { assert } from '../base/assert.js'
import { Double, type RecordTable, Word } from '../heap/records.js'
import { CLASSES, classOf, roundUpToClass } from '../heap/size-classes.js'
import { MOST_STREAMS } from '../order/clocks.js'

// Const enums are written out as numbers, which keeps the hot methods small enough to be inlined where they are called.
const enum Shift {
  stream = 12,
  class = 3,
}

const enum Limit {
  /** more would keep too much of large sizes from the heap */
  places = 4,
  /** units from which on sizes are exact, not whole classes: 1 MiB */
  large = 4096,
}

/** Where in the words of a stream a counter lies: all bits set, so that any stack's index leads to it, and one bit apart. */
const enum Slot {
  /** units that the stream caches */
  cached = 4095,
  /** as long as that much is cached, no more can be live than ever before */
  watched = 4094,
}

const CLASS_WORDS = 1 << Shift.class
const STREAM_WORDS = 1 << Shift.stream
/** The size of the block that serves `units`: below 1 MiB whole classes, which wastes little and makes all blocks of a class alike. */
export function classUnits(units: number): number {
  return units < Limit.large ? roundUpToClass(units) : units
}

/** Words of a record table that the slots take, from word 0 on. */
export const OWNER_WORDS = MOST_STREAMS * STREAM_WORDS

/** Counters of every call, as float64s between the classes and the counters of the first stream. */
export const enum Counter {
  /** sum of the bytes asked for, of live and of cached blocks */
  requested = 2000,
  allocations,
  misses,
}

/** A class whose stack is always full: a block of it is never cached, but comes to the reserve when it is freed. */
export const FULL_CLASS = CLASSES + 1

assert((FULL_CLASS + 1) * CLASS_WORDS <= 2 * Counter.requested, 'an empty and the full class lie before the counters')
assert(2 * Counter.misses + 1 < Slot.watched, 'every counter has a place of its own')

export class SlotCache {
  readonly isWorthDraining = true
  /** stream slots that have or had blocks are below this */
  slotLimit = 0
  /** taken from the heaps and not given back: live or cached */
  handedUnits = 0
  handedBlocks = 0
  /** most units that were live at a time */
  peakUnits = 0

  constructor(
    private readonly records: RecordTable,
    /** what the cache of one stream may hold */
    private readonly mostUnits: number,
  ) {
    // An empty stack's record is 0, whose size is none that is ever asked for.
    records.words[Word.units] = -1
    for (let slot = 0; slot < MOST_STREAMS; slot++) {
      records.words[(slot << Shift.stream) | (FULL_CLASS << Shift.class)] = Limit.places
    }
  }

  /** A stream slot that has blocks from now on. */
  meet(slot: number): void {
    if (slot >= this.slotLimit) this.slotLimit = slot + 1
  }

  /**
   * The block on top of the class of `units`, if it has that size and no more is live then than ever before; 0 otherwise,
   * and `takeAny` may find one. Calls nothing, so that what the compiler knows of its caller holds behind it. The class is
   * that of `classUnits`, worked out here together with it (see heap/size-classes.ts).
   */
  take(words: Int32Array, slot: number, units: number): number {
    const shift = 27 - Math.clz32(units | 16)
    if (units < Limit.large) units = (((units - 1) >> shift) + 1) << shift
    const stack = (slot << Shift.stream) | (((shift << 4) + (units >>> shift)) << Shift.class)
    const record = words[stack | words[stack]]
    const left = words[stack | Slot.cached] - units
    if (words[(record << 4) | Word.units] !== units || left < words[stack | Slot.watched]) return 0
    words[stack]--
    words[stack | Slot.cached] = left
    return record
  }

  /** A cached block that wastes little: of `sizeClass`, that of `units`, or of the next, so at most an eighth or one unit too large; 0 for none. */
  takeAny(slot: number, sizeClass: number, units: number): number {
    const { words } = this.records
    const stack = (slot << Shift.stream) | (sizeClass << Shift.class)
    if ((words[stack] | words[stack + CLASS_WORDS]) === 0) return 0
    const record = this.search(words, stack, units)
    if (record === 0) return 0
    const counter = stack | Slot.cached
    words[counter] -= words[(record << 4) | Word.units]
    if (words[counter] < words[counter ^ 1]) this.notePeak()
    return record
  }

  /** Keeps a block for its stream; false when its class or the stream's share is full. */
  put(words: Int32Array, slot: number, record: number): boolean {
    const stack = (slot << Shift.stream) | (words[(record << 4) | Word.sizeClass] << Shift.class)
    const counter = stack | Slot.cached
    const cached = words[counter] + words[(record << 4) | Word.units]
    const height = words[stack] + 1
    if (height > Limit.places || cached > this.mostUnits) return false
    words[stack] = height
    words[stack | height] = record
    words[counter] = cached
    return true
  }

  /** A heap has handed out a block for the stream; how many bytes of it are asked for is yet to be noted. */
  handOut(slot: number, record: number): void {
    const { words, doubles } = this.records
    const units = words[(record << 4) | Word.units]
    this.handedUnits += units
    this.handedBlocks++
    doubles[(record << 3) | Double.requested] = 0
    const watched = (slot << Shift.stream) | Slot.watched
    words[watched] += units
    if (words[(slot << Shift.stream) | Slot.cached] < words[watched]) this.notePeak()
  }

  /** A block is about to go back to a heap, or to wait for that. */
  handBack(record: number): void {
    const { words, doubles } = this.records
    this.handedUnits -= words[(record << 4) | Word.units]
    this.handedBlocks--
    doubles[Counter.requested] -= doubles[(record << 3) | Double.requested]
  }

  /** Units that are live now. */
  get liveUnits(): number {
    let units = this.handedUnits
    for (let slot = 0; slot < this.slotLimit; slot++) units -= this.cachedUnits(slot)
    return units
  }

  /** Forgets everything, the blocks themselves included. */
  clear(): void {
    this.records.words.fill(0)
    this.handedUnits = 0
    this.handedBlocks = 0
  }

  /** Sets the peak to what is live. */
  resetPeak(): void {
    this.peakUnits = this.liveUnits
    this.notePeak()
  }

  /** Looks whether more is live than ever, and shares out among the streams by how much that may rise unseen. */
  notePeak(): void {
    const { words } = this.records
    const live = this.liveUnits
    if (live > this.peakUnits) this.peakUnits = live
    const share = Math.floor((this.peakUnits - live) / this.slotLimit)
    for (let slot = 0; slot < this.slotLimit; slot++) {
      words[(slot << Shift.stream) | Slot.watched] = this.cachedUnits(slot) - share
    }
  }

  /** Units cached for one stream. */
  cachedUnits(slot: number): number {
    return this.records.words[(slot << Shift.stream) | Slot.cached]
  }

  /** Takes out a block of a class above `sizeClass` and below `end`, the smallest there is; 0 for none. */
  takeLarger(slot: number, sizeClass: number, end: number): number {
    const words = this.records.words
    const counter = (slot << Shift.stream) | Slot.cached
    for (let larger = sizeClass + 1; larger < end; larger++) {
      const record = this.pop(words, (slot << Shift.stream) | (larger << Shift.class))
      if (record === 0) continue
      words[counter] -= words[(record << 4) | Word.units]
      this.handBack(record)
      return record
    }
    return 0
  }

  /**
   * A block of exactly `units`, of `sizeClass`, on top of another stream's stack, handed to the stream of `slot`; 0 for none.
   * It is safe there if its stamp is at most what `known` or `seen`, as of the clocks, says of the stream that it is from.
   */
  takeTop(slot: number, sizeClass: number, units: number, known: Float64Array, seen: Float64Array): number {
    const { words, doubles } = this.records
    for (let other = 0; other < this.slotLimit; other++) {
      const stack = (other << Shift.stream) | (sizeClass << Shift.class)
      const height = words[stack]
      if (height === 0 || other === slot) continue
      const record = words[stack | height]
      if (words[(record << 4) | Word.units] !== units) continue
      const stamp = doubles[(record << 3) | Double.stamp]
      if (known[slot * MOST_STREAMS + other] < stamp && seen[other] < stamp) continue
      words[stack] = height - 1
      words[stack | Slot.cached] -= units
      if (words[stack | Slot.cached] < words[stack | Slot.watched]) this.notePeak()
      this.meet(slot)
      words[(record << 4) | Word.key] = slot + 1
      return record
    }
    return 0
  }

  /** Takes out a block of at least `units` in their class that waits for at most `stamp`; 0 for none. For other streams than its own. */
  takeOlder(slot: number, units: number, stamp: number): number {
    const { words, doubles } = this.records
    const stack = (slot << Shift.stream) | (classOf(units) << Shift.class)
    for (let place = words[stack]; place > 0; place--) {
      const record = words[stack | place]
      const size = words[(record << 4) | Word.units]
      if (size < units || doubles[(record << 3) | Double.stamp] > stamp) continue
      this.remove(words, stack, place)
      words[(slot << Shift.stream) | Slot.cached] -= size
      this.handBack(record)
      return record
    }
    return 0
  }

  /** Takes out what one stream caches in the classes from `first` to before `end`; returns the blocks. */
  drain(slot: number, first = 0, end = CLASSES): number[] {
    const drained: number[] = []
    const slots = this.records.words
    const counter = (slot << Shift.stream) | Slot.cached
    if (slots[counter] === 0) return drained
    for (let sizeClass = first; sizeClass < end; sizeClass++) {
      const stack = (slot << Shift.stream) | (sizeClass << Shift.class)
      for (; slots[stack] > 0; slots[stack]--) {
        const record = slots[stack | slots[stack]]
        slots[counter] -= slots[(record << 4) | Word.units]
        this.handBack(record)
        drained.push(record)
      }
    }
    return drained
  }

  /** How many blocks are cached, and how many bytes were asked for in the last use of each. */
  cached(): { blocks: number; requestedBytes: number } {
    const { words, doubles } = this.records
    let blocks = 0
    let requestedBytes = 0
    for (let slot = 0; slot < this.slotLimit; slot++) {
      if (this.cachedUnits(slot) === 0) continue
      const end = (slot << Shift.stream) | (CLASSES << Shift.class)
      for (let stack = slot << Shift.stream; stack < end; stack += CLASS_WORDS) {
        blocks += words[stack]
        for (let place = words[stack]; place > 0; place--) {
          requestedBytes += doubles[(words[stack | place] << 3) | Double.requested]
        }
      }
    }
    return { blocks, requestedBytes }
  }

  /** Every block cached for one stream, with the class it is kept under. */
  *entries(slot: number): Generator<{ sizeClass: number; record: number; units: number }> {
    if (this.cachedUnits(slot) === 0) return
    const words = this.records.words
    for (let sizeClass = 0; sizeClass < CLASSES; sizeClass++) {
      const stack = (slot << Shift.stream) | (sizeClass << Shift.class)
      for (let place = 1; place <= words[stack]; place++) {
        const record = words[stack | place]
        yield { sizeClass, record, units: words[(record << 4) | Word.units] }
      }
    }
  }

  /** Takes out a block: of a large size the exact one, or a larger one, or one of the next class; 0 for none. */
  private search(words: Int32Array, stack: number, units: number): number {
    if (units === 0) return 0
    let larger = 0
    if (units >= Limit.large) {
      for (let place = words[stack]; place > 0; place--) {
        const size = words[(words[stack | place] << 4) | Word.units]
        if (size === units) return this.remove(words, stack, place)
        if (size > units) larger = place
      }
    }
    if (larger !== 0) return this.remove(words, stack, larger)
    return (units < Limit.large && this.pop(words, stack)) || this.pop(words, stack + CLASS_WORDS)
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
