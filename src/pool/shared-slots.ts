// The slot cache of a pool that several threads share: for each thread, stream and class up to sixteen places of its own. Only that
// thread puts blocks into them; it takes them out again, and so may the thread that keeps the pool, behind a door
// (door.ts) that lets in one of both. No link can be followed into the wrong block, and nothing needs to be locked on the way.
//
// An empty place is changed by its thread alone, so that putting a block there is a plain store where stores are seen in
// the order they were made.

import { assert } from '../base/assert.js'
import { publish } from '../base/publish.js'
import { MOST_WORKERS, type Roster } from '../base/roster.js'
import { holderOf, Phase, phaseOf } from '../heap/holder.js'
import { Double, type RecordTable, Word } from '../heap/records.js'
import type { Region } from '../heap/region.js'
import { CLASSES, classOf } from '../heap/size-classes.js'
import { MOST_STREAMS } from '../order/clocks.js'
import { Door } from './door.js'
import { Inboxes, PARCEL_WORDS } from './inboxes.js'
import type { Slots } from './slots.js'

const enum Shift {
  class = 4,
  stream = 13,
  thread = 19,
  /** of the index of a stream and class */
  stack = 9,
}
const PLACES = 1 << Shift.class
const STREAM_WORDS = 1 << Shift.stream
assert(
  CLASSES * PLACES <= STREAM_WORDS && MOST_STREAMS << Shift.stream === 1 << Shift.thread,
  'every place has its index',
)

/** Blocks that were sent back and do not fit into places: so many are too many. */
const CROWD = 64

/** Cached by all threads together: 1 GiB. */
const LITTLE_UNITS = 2 ** 22

/** Classes below these are of less than 64 KiB, and of less than 1 MiB. */
const enum Below {
  medium = 80,
  large = 144,
}

/** Places of a class: the more, the less they hold. Without a branch, since sizes vary. */
function placesOf(sizeClass: number): number {
  return PLACES >> (((Below.medium - 1 - sizeClass) >>> 31) + ((Below.large - 1 - sizeClass) >>> 31))
}
assert(
  classOf(2 ** 8) === Number(Below.medium) && classOf(2 ** 12) === Number(Below.large),
  'classes of 64 KiB and 1 MiB',
)

const enum Total {
  handedUnits,
  handedBlocks,
  /** as of the last look */
  cachedUnits,
  peakUnits,
  slotLimit,
  count,
}

export class SharedSlots implements Slots {
  readonly isEmpty = false // blocks come and go meanwhile
  private readonly places: Int32Array
  /** blocks on their way back to the threads on whose pages their records are */
  readonly inboxes: Inboxes
  /** by stream and class of this thread: up to which place there may be blocks; no more than a hint, since the keeper takes some away */
  private readonly tops = new Uint8Array(MOST_STREAMS << Shift.stack)
  private readonly totals: Float64Array
  private readonly words: Int32Array
  private readonly doubles: Float64Array
  /** whether so many blocks were sent back to this thread that do not fit what it asks for */
  isCrowded = false
  /** blocks for which the last look into the inbox found no place */
  private left = 0
  /** the number of this thread; 0 before it has one */
  private thread = 0
  /** to take blocks out of places: of this thread by it, of all by the keeper */
  readonly door: Door

  /** Takes what it needs from `region`; `records` are of a fixed size. */
  constructor(
    private readonly records: RecordTable,
    region: Region,
    roster: Roster,
    isFenced: boolean,
  ) {
    this.door = new Door(region, roster, isFenced)
    this.places = region.int32((MOST_WORKERS + 1) << Shift.thread)
    this.inboxes = new Inboxes(records, region)
    this.totals = region.float64(Total.count)
    this.words = records.words
    this.doubles = records.doubles
  }

  /** This thread has got its number. */
  enter(thread: number): void {
    this.thread = thread
    this.inboxes.enter(thread)
    this.door.assign(thread)
  }

  /** A block of at least `units` in their class, out of this thread's own places; 0 for none. */
  pop(slot: number, sizeClass: number, units: number): number {
    const { places, words, tops, door } = this
    const first = (this.thread << Shift.thread) | (slot << Shift.stream) | (sizeClass << Shift.class)
    const stack = (slot << Shift.stack) | sizeClass
    const top = tops[stack]
    if (!door.enter()) return 0
    let record = top === 0 ? 0 : places[first + top - 1]
    if (record !== 0 && words[(record << 4) | Word.units] >= units) {
      places[first + top - 1] = 0
      tops[stack] = top - 1
    } else record = this.search(first, stack, units)
    door.leave()
    return record
  }

  /**
   * The smallest block of a class above `sizeClass` and below `end`, out of this thread's own places; 0 for none. A class where
   * the keeper has left holes below the others may be passed over.
   */
  popLarger(slot: number, sizeClass: number, end: number): number {
    if (!this.door.enter()) return 0
    let record = 0
    for (let larger = sizeClass + 1; larger < end && record === 0; larger++) {
      const stack = (slot << Shift.stack) | larger
      const first = (this.thread << Shift.thread) | (slot << Shift.stream) | (larger << Shift.class)
      if (this.tops[stack] > 0) record = this.search(first, stack, 0)
    }
    this.door.leave()
    return record
  }

  /** An empty place of this thread for a block of `sizeClass`, which is put there now; 0 when none is left. */
  placeFor(slot: number, sizeClass: number): number {
    const { places, tops } = this
    const first = (this.thread << Shift.thread) | (slot << Shift.stream) | (sizeClass << Shift.class)
    const stack = (slot << Shift.stack) | sizeClass
    const top = tops[stack]
    if (top === 0) places[first & -STREAM_WORDS] = 1 // no block is of class 0: its first word says that the stream's places are used
    if (top < placesOf(sizeClass) && places[first + top] === 0) {
      tops[stack] = top + 1
      return first + top
    }
    return this.searchEmpty(first, stack, placesOf(sizeClass))
  }

  /**
   * Puts what other threads have freed and sent back into this thread's places, a parcel at a time, until there is a block among it
   * for the stream, of that class and at least `units`.
   */
  receive(slot: number, sizeClass: number, units: number): void {
    if (!this.door.enter()) return
    this.inboxes.look()
    this.left = 0
    // What is being filled comes last: whoever fills it fetches the line again then.
    const found = this.unpackThose(true, slot, sizeClass, units) || this.unpackThose(false, slot, sizeClass, units)
    this.isCrowded = !found && this.left >= CROWD
    this.door.leave()
  }

  private unpackThose(complete: boolean, slot: number, sizeClass: number, units: number): boolean {
    const { inboxes } = this
    for (let position = inboxes.oldest; position !== inboxes.seen; position = (position + 1) | 0) {
      const parcel = inboxes.parcelAt(position)
      if (inboxes.isComplete(parcel) !== complete) continue
      const left = this.left
      const found = this.unpack(parcel, slot, sizeClass, units)
      if (complete && this.left === left) inboxes.finish(position)
      if (found) return true
    }
    return false
  }

  /** Says whether what was looked for is among it. In a row without waiting, since each record's line is fetched from another core. */
  private unpack(parcel: number, slot: number, sizeClass: number, units: number): boolean {
    const { thread, words } = this
    const entries = this.inboxes.words
    let found = false
    for (let entry = parcel + 1; entry < parcel + PARCEL_WORDS; entry++) {
      if (entries[entry] !== 0) words[(entries[entry] << 4) | Word.touched] = 1
    }
    for (let entry = parcel + 1; entry < parcel + PARCEL_WORDS; entry++) {
      const record = entries[entry]
      if (record === 0) continue
      const base = record << 4
      const key = words[base | Word.key]
      const classOfBlock = words[base | Word.sizeClass]
      const place = this.placeFor(key - 1, classOfBlock)
      if (place === 0) {
        this.left++
        continue
      }
      publish(words, base | Word.holder, holderOf(words[base], thread, Phase.cached))
      publish(entries, entry, 0)
      this.put(place, record)
      if (key === slot + 1 && classOfBlock === sizeClass && words[base | Word.units] >= units) found = true
    }
    return found
  }

  /** The keeper has taken what was on top, or it is too small. */
  private search(first: number, stack: number, units: number): number {
    const { places, words } = this
    for (let index = PLACES - 1; index >= 0; index--) {
      const record = places[first + index]
      if (record === 0 || words[(record << 4) | Word.units] < units) continue
      places[first + index] = 0
      this.tops[stack] = index
      return record
    }
    return 0
  }

  /** The keeper has taken what was below. */
  private searchEmpty(first: number, stack: number, count: number): number {
    for (let index = 0; index < count; index++) {
      if (this.places[first + index] !== 0) continue
      this.tops[stack] = index + 1
      return first + index
    }
    return 0
  }

  /** Puts a block, of which everything is written, into an empty place. */
  put(place: number, record: number): void {
    publish(this.places, place, record)
  }

  get slotLimit(): number {
    return this.totals[Total.slotLimit]
  }

  meet(slot: number): void {
    if (slot >= this.totals[Total.slotLimit]) this.totals[Total.slotLimit] = slot + 1
  }

  handOut(slot: number, record: number): void {
    this.meet(slot)
    this.totals[Total.handedUnits] += this.words[(record << 4) | Word.units]
    this.totals[Total.handedBlocks]++
    this.doubles[(record << 3) | Double.requested] = 0
  }

  handBack(record: number): void {
    this.totals[Total.handedUnits] -= this.words[(record << 4) | Word.units]
    this.totals[Total.handedBlocks]--
  }

  get handedUnits(): number {
    return this.totals[Total.handedUnits]
  }

  get peakUnits(): number {
    return this.totals[Total.peakUnits]
  }

  /** Looks at everything. */
  get liveUnits(): number {
    return this.sums().liveUnits
  }

  /** Looks how much is cached, and whether more is live than ever. */
  look(): void {
    const { cachedUnits, liveUnits } = this.sums()
    this.totals[Total.cachedUnits] = cachedUnits
    this.totals[Total.peakUnits] = Math.max(this.peakUnits, liveUnits)
  }

  /** Sets the peak to what is live. */
  resetPeak(): void {
    this.totals[Total.peakUnits] = this.liveUnits
  }

  /** Draining makes all threads miss, so it is put off until more was cached than live lately, and more than a little. */
  get isWorthDraining(): boolean {
    const cachedUnits = this.totals[Total.cachedUnits]
    return cachedUnits > Math.max(this.handedUnits - cachedUnits, LITTLE_UNITS)
  }

  /**
   * Counts again what is handed out, after a thread died in the middle of changing that. Under the lock. What nobody holds
   * the keeper has just taken out of a heap, and counts when it hands it out.
   */
  recount(): void {
    const { records } = this
    let units = 0
    let blocks = 0
    for (let record = records.first; record < records.used; record++) {
      if (!records.isLive(record) || this.words[(record << 4) | Word.holder] === 0) continue
      units += this.words[(record << 4) | Word.units]
      blocks++
    }
    this.totals[Total.handedUnits] = units
    this.totals[Total.handedBlocks] = blocks
  }

  cachedUnits(slot: number): number {
    let units = 0
    for (const record of this.recordsOf(slot, 0, CLASSES)) units += this.words[(record << 4) | Word.units]
    return units
  }

  /**
   * What is live and what is cached. Each block is looked at once while threads work, and counted as what it is then: so nothing is
   * ever less than none, nor more than was taken out of the heaps.
   */
  sums(): { liveBlocks: number; liveUnits: number; requestedBytes: number; cachedUnits: number } {
    const { records, words, doubles } = this
    const sums = { liveBlocks: 0, liveUnits: 0, requestedBytes: 0, cachedUnits: 0 }
    const [unitsBefore, blocksBefore] = this.totals.subarray(Total.handedUnits)
    for (let record = records.first; record < records.used; record++) {
      const tag = words[record << 4]
      const holder = words[(record << 4) | Word.holder]
      if (holder === 0 || !records.isLive(record)) continue
      const units = words[(record << 4) | Word.units]
      const requested = doubles[(record << 3) | Double.requested]
      if (words[record << 4] !== tag || words[(record << 4) | Word.holder] !== holder) {
        record-- // it has just changed hands: look again
      } else if (phaseOf(holder) === Phase.cached) sums.cachedUnits += units
      else {
        sums.liveBlocks++
        sums.liveUnits += units
        sums.requestedBytes += requested
      }
    }
    const mostUnits = Math.max(unitsBefore, this.handedUnits)
    sums.liveBlocks = Math.min(sums.liveBlocks, Math.max(blocksBefore, this.totals[Total.handedBlocks]))
    sums.liveUnits = Math.min(sums.liveUnits, mostUnits)
    sums.cachedUnits = Math.min(sums.cachedUnits, mostUnits)
    return sums
  }

  takeLarger(slot: number, sizeClass: number, end: number): number {
    for (let larger = sizeClass + 1; larger < end; larger++) {
      for (const place of this.filled(slot, larger, larger + 1)) {
        const record = this.takeFrom(place)
        if (record !== 0) return record
      }
    }
    return 0
  }

  takeOlder(slot: number, units: number, stamp: number): number {
    const { places, words, doubles } = this
    const sizeClass = classOf(units)
    this.door.shut()
    for (const place of this.filled(slot, sizeClass, sizeClass + 1)) {
      const record = places[place]
      const fits = words[(record << 4) | Word.units] >= units && doubles[(record << 3) | Double.stamp] <= stamp
      const taken = fits ? this.takeFrom(place) : 0
      if (taken !== 0) return taken
    }
    return 0
  }

  /**
   * A block of exactly `units`, of `sizeClass`, that this thread caches for another stream, handed to that of `slot`; 0 for none.
   * It is safe there if its stamp is at most what `known` or `seen`, as of the clocks, says of the stream that it is from.
   */
  takeTop(slot: number, sizeClass: number, units: number, known: Float64Array, seen: Float64Array): number {
    const { places, words, doubles } = this
    if (!this.door.enter()) return 0
    let found = 0
    for (let other = 0; other < this.slotLimit && found === 0; other++) {
      const base = (this.thread << Shift.thread) | (other << Shift.stream)
      if (other === slot || places[base] === 0) continue
      const first = base | (sizeClass << Shift.class)
      for (let place = first; place < first + PLACES && found === 0; place++) {
        const record = places[place]
        if (record === 0 || words[(record << 4) | Word.units] !== units) continue
        const stamp = doubles[(record << 3) | Double.stamp]
        if (known[slot * MOST_STREAMS + other] < stamp && seen[other] < stamp) continue
        places[place] = 0
        words[(record << 4) | Word.key] = slot + 1
        found = record
      }
    }
    this.door.leave()
    return found
  }

  cachesMany(): boolean {
    return false // none are given back before there is no new memory, and then all
  }

  takeRoom(): number[] {
    return [] // blocks come and go meanwhile
  }

  drain(slot: number, first: number, end: number): number[] {
    const drained: number[] = []
    for (const place of this.filled(slot, first, end)) {
      const record = this.takeFrom(place)
      if (record !== 0) drained.push(record)
    }
    const { words } = this
    const isWanted = (record: number) => {
      const sizeClass = words[(record << 4) | Word.sizeClass]
      return words[(record << 4) | Word.key] === slot + 1 && sizeClass >= first && sizeClass < end
    }
    for (let thread = 1; thread <= MOST_WORKERS; thread++) drained.push(...this.drainInbox(thread, isWanted))
    return drained
  }

  /** Takes out what a thread, which has ended or is about to, has in its places. */
  drainThread(thread: number): number[] {
    const drained: number[] = []
    for (let slot = 0; slot < this.slotLimit; slot++) {
      for (const place of this.filledOf(thread, slot, 0, CLASSES)) {
        const record = this.takeFrom(place)
        if (record !== 0) drained.push(record)
      }
    }
    drained.push(...this.drainInbox(thread, () => true))
    this.inboxes.completeOf(thread)
    return drained
  }

  /** Every block in a place: the thread and class that it is kept for. */
  *entries(): Generator<{ thread: number; slot: number; sizeClass: number; record: number }> {
    for (let thread = 1; thread <= MOST_WORKERS; thread++) {
      for (let slot = 0; slot < this.slotLimit; slot++) {
        for (const place of this.filledOf(thread, slot, 0, CLASSES)) {
          yield { thread, slot, sizeClass: (place & (STREAM_WORDS - 1)) >> Shift.class, record: this.places[place] }
        }
      }
    }
  }

  /** For the keeper; 0 also where the place is of a thread that was stopped inside its door. */
  private takeFrom(place: number): number {
    this.door.shut()
    if (!this.door.isOut(place >>> Shift.thread)) return 0
    const record = Atomics.load(this.places, place)
    if (record !== 0) {
      Atomics.store(this.places, place, 0)
      this.handBack(record)
    }
    return record
  }

  /** Takes blocks that `isWanted` out of what was sent to a thread, as `takeFrom` does out of its places. */
  private drainInbox(thread: number, isWanted: (record: number) => boolean): number[] {
    this.door.shut()
    if (!this.door.isOut(thread)) return []
    const drained = this.inboxes.drain(thread, isWanted)
    for (const record of drained) this.handBack(record)
    return drained
  }

  private *recordsOf(slot: number, first: number, end: number): Generator<number> {
    for (const place of this.filled(slot, first, end)) {
      const record = this.places[place]
      if (record !== 0) yield record
    }
  }

  private *filled(slot: number, first: number, end: number): Generator<number> {
    for (let thread = 1; thread <= MOST_WORKERS; thread++) yield* this.filledOf(thread, slot, first, end)
  }

  /** The places of a thread and stream with blocks of the classes from `first` to before `end`. */
  private *filledOf(thread: number, slot: number, first: number, end: number): Generator<number> {
    const { places } = this
    const base = (thread << Shift.thread) | (slot << Shift.stream)
    if (places[base] === 0) return
    const from = base | (Math.max(first, 1) << Shift.class)
    for (let place = from; place < (base | (end << Shift.class)); place++) if (places[place] !== 0) yield place
  }
}
