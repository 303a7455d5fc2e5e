// The slot cache of a pool that several threads share: for each thread, stream and class four places of its own. Only that
// thread puts blocks into them; it takes them out again by one atomic operation each, and so may the thread that keeps the
// pool. No link can be followed into the wrong block, and nothing needs to be locked on the way.
//
// An empty place is changed by its thread alone, so that putting a block there is a plain store where stores are seen in
// the order they were made.

import { assert } from '../base/assert.js'
import { MOST_WORKERS } from '../base/roster.js'
import { holderOf, Phase, phaseOf } from '../heap/holder.js'
import { Double, type RecordTable, Word } from '../heap/records.js'
import type { Region } from '../heap/region.js'
import { CLASSES, classOf } from '../heap/size-classes.js'
import { MOST_STREAMS } from '../order/clocks.js'
import type { Slots } from './slots.js'

const enum Shift {
  class = 2,
  stream = 11,
  thread = 17,
}
const PLACES = 1 << Shift.class
const STREAM_WORDS = 1 << Shift.stream
assert(
  CLASSES * PLACES <= STREAM_WORDS && MOST_STREAMS << Shift.stream === 1 << Shift.thread,
  'every place has its index',
)

/** Stores of one thread are seen by the others in their order, and a plain one is enough to publish what was written before. */
const STORES_IN_ORDER = process.arch === 'x64'

/** Float64s between what two threads write: processors fetch lines of 64 bytes in pairs. */
const LINE = 16

/** Blocks of one thread on their way back to it; a power of two. */
export const INBOX_PLACES = 1024
/** Places of an inbox that are looked at before it is taken for full, or for having nothing that fits. */
const MOST_LOOKS = 64
/** int32 words between what two threads write. */
const LINE_WORDS = 32

/** Cached by all threads together: 1 GiB. */
const LITTLE_UNITS = 2 ** 22

const enum Total {
  handedUnits,
  handedBlocks,
  peakUnits,
  slotLimit,
  count,
}

export class SharedSlots implements Slots {
  private readonly places: Int32Array
  /**
   * by thread, a ring: blocks that it allocated and another one freed, which are cached by that one until they are taken out.
   * A thread that died may leave an empty place in between.
   */
  readonly inboxes: Int32Array
  /** by thread: how many were ever sent to its inbox */
  private readonly sent: Int32Array
  /** how many of those this thread knows to be taken out */
  private taken = 0
  private readonly totals: Float64Array
  /** by thread: bytes asked for of the blocks it handed out, less those of the blocks it gave back */
  private readonly requested: Float64Array
  private readonly words: Int32Array
  private readonly doubles: Float64Array
  /** the number of this thread; 0 before it has one */
  thread = 0

  /** Takes what it needs from `region`; `records` are of a fixed size. */
  constructor(records: RecordTable, region: Region) {
    this.places = region.int32((MOST_WORKERS + 1) << Shift.thread)
    this.inboxes = region.int32((MOST_WORKERS + 1) * INBOX_PLACES)
    this.sent = region.int32((MOST_WORKERS + 1) * LINE_WORDS)
    this.totals = region.float64(Total.count)
    this.requested = region.float64((MOST_WORKERS + 1) * LINE)
    this.words = records.words
    this.doubles = records.doubles
  }

  /** A block of at least `units` in their class, out of this thread's own places; 0 for none. */
  pop(slot: number, sizeClass: number, units: number): number {
    const { places, words } = this
    const first = (this.thread << Shift.thread) | (slot << Shift.stream) | (sizeClass << Shift.class)
    for (let place = first; place < first + PLACES; place++) {
      const record = places[place]
      if (record === 0 || words[(record << 4) | Word.units] < units) continue
      if (Atomics.exchange(places, place, 0) === record) return record
    }
    return 0
  }

  /** An empty place of this thread for a block of `sizeClass`; 0 when none is left. */
  placeFor(slot: number, sizeClass: number): number {
    const { places } = this
    const base = (this.thread << Shift.thread) | (slot << Shift.stream)
    // No block is of class 0; its first word says whether the stream's places were ever used.
    if (places[base] === 0) places[base] = 1
    const first = base | (sizeClass << Shift.class)
    for (let place = first; place < first + PLACES; place++) if (places[place] === 0) return place
    return 0
  }

  /** Puts a block, of which everything is written, into an empty place. */
  put(place: number, record: number): void {
    if (STORES_IN_ORDER) this.places[place] = record
    else Atomics.store(this.places, place, record)
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
    this.requested[this.thread * LINE] -= this.doubles[(record << 3) | Double.requested]
  }

  /** This thread asked for so many bytes more. */
  noteRequested(bytes: number): void {
    this.requested[this.thread * LINE] += bytes
  }

  get handedUnits(): number {
    return this.totals[Total.handedUnits]
  }

  get handedBlocks(): number {
    return this.totals[Total.handedBlocks]
  }

  /** Bytes asked for, of live and of cached blocks. */
  get requestedBytes(): number {
    return this.requested.reduce((sum, bytes) => sum + bytes, 0)
  }

  get peakUnits(): number {
    return this.totals[Total.peakUnits]
  }

  /** Looks at everything. */
  get liveUnits(): number {
    return this.handedUnits - this.cached().units
  }

  /** Looks whether more is live than ever. */
  notePeak(): void {
    this.totals[Total.peakUnits] = Math.max(this.peakUnits, this.liveUnits)
  }

  /** Sets the peak to what is live. */
  resetPeak(): void {
    this.totals[Total.peakUnits] = this.liveUnits
  }

  /** Draining makes all threads miss, so it is put off until more is cached than live, and more than a little. */
  get isWorthDraining(): boolean {
    const { units } = this.cached()
    return units > Math.max(this.handedUnits - units, LITTLE_UNITS)
  }

  cachedUnits(slot: number): number {
    let units = 0
    for (const record of this.recordsOf(slot, 0, CLASSES)) units += this.words[(record << 4) | Word.units]
    return units
  }

  /** What all threads have in their places and inboxes. */
  cached(): { blocks: number; units: number; requestedBytes: number } {
    const sum = { blocks: 0, units: 0, requestedBytes: 0 }
    const add = (record: number) => {
      if (record === 0) return
      sum.blocks++
      sum.units += this.words[(record << 4) | Word.units]
      sum.requestedBytes += this.doubles[(record << 3) | Double.requested]
    }
    for (let slot = 0; slot < this.slotLimit; slot++)
      for (const place of this.filled(slot, 0, CLASSES)) add(this.places[place])
    for (const record of this.inboxes) add(record)
    return sum
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
    const sizeClass = classOf(units)
    for (const place of this.filled(slot, sizeClass, sizeClass + 1)) {
      const record = this.places[place]
      if (this.words[(record << 4) | Word.units] < units || this.doubles[(record << 3) | Double.stamp] > stamp) continue
      if (this.takeFrom(place) !== 0) return record
    }
    return 0
  }

  takeTop(slot: number, sizeClass: number, units: number, known: Float64Array, seen: Float64Array): number {
    const { places, words, doubles } = this
    for (let other = 0; other < this.slotLimit; other++) {
      const base = (this.thread << Shift.thread) | (other << Shift.stream)
      if (other === slot || places[base] === 0) continue
      for (let place = base | (sizeClass << Shift.class), left = PLACES; left > 0; place++, left--) {
        const record = places[place]
        if (record === 0 || words[(record << 4) | Word.units] !== units) continue
        const stamp = doubles[(record << 3) | Double.stamp]
        if (known[slot * MOST_STREAMS + other] < stamp && seen[other] < stamp) continue
        if (Atomics.exchange(places, place, 0) !== record) continue
        words[(record << 4) | Word.key] = slot + 1
        return record
      }
    }
    return 0
  }

  drain(slot: number, first: number, end: number): number[] {
    const drained: number[] = []
    for (const place of this.filled(slot, first, end)) {
      const record = this.takeFrom(place)
      if (record !== 0) drained.push(record)
    }
    for (let place = 0; place < this.inboxes.length; place++) {
      const base = this.inboxes[place] << 4
      if (base === 0 || this.words[base | Word.key] !== slot + 1) continue
      const sizeClass = this.words[base | Word.sizeClass]
      if (sizeClass >= first && sizeClass < end && this.takeFromInbox(place)) drained.push(base >> 4)
    }
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
    for (let place = thread * INBOX_PLACES; place < (thread + 1) * INBOX_PLACES; place++) {
      const record = this.inboxes[place]
      if (record !== 0 && this.takeFromInbox(place)) drained.push(record)
    }
    return drained
  }

  /** Makes a block that is cached by some thread nobody's; false when that thread, or the one it was sent to, was faster. */
  claim(record: number): boolean {
    const { words } = this
    const index = (record << 4) | Word.holder
    const held = words[index]
    return phaseOf(held) === Phase.cached && Atomics.compareExchange(words, index, held, 0) === held
  }

  /** Sends a block, cached by this thread, to the inbox of another one; false when that is full. */
  send(record: number, thread: number): boolean {
    for (let looks = 0; looks < MOST_LOOKS; looks++) {
      const place = Atomics.add(this.sent, thread * LINE_WORDS, 1) & (INBOX_PLACES - 1)
      if (Atomics.compareExchange(this.inboxes, thread * INBOX_PLACES + place, 0, record) === 0) return true
    }
    return false
  }

  /** A block for the stream, of that class and at least `units`, out of this thread's inbox; 0 for none. It is cached by this thread then. */
  takeReturned(slot: number, sizeClass: number, units: number): number {
    const { inboxes, words, thread } = this
    const sent = this.sent[thread * LINE_WORDS]
    if (sent - this.taken > INBOX_PLACES) this.taken = sent - INBOX_PLACES
    const end = Math.min(sent, this.taken + MOST_LOOKS)
    for (let index = this.taken; index < end; index++) {
      const place = thread * INBOX_PLACES + (index & (INBOX_PLACES - 1))
      const base = inboxes[place] << 4
      if (base !== 0) {
        if (words[base | Word.key] !== slot + 1 || words[base | Word.sizeClass] !== sizeClass) continue
        if (words[base | Word.units] < units || !this.pass(base >> 4)) continue
        Atomics.store(inboxes, place, 0)
      }
      if (index === this.taken) this.taken++
      if (base !== 0) return base >> 4
    }
    return 0
  }

  /** Every block in the inbox of this thread; they are cached by it then. */
  takeAllReturned(): number[] {
    const { inboxes, thread } = this
    const records: number[] = []
    this.taken = this.sent[thread * LINE_WORDS]
    for (let place = thread * INBOX_PLACES; place < (thread + 1) * INBOX_PLACES; place++) {
      const record = inboxes[place]
      if (record === 0 || !this.pass(record)) continue
      Atomics.store(inboxes, place, 0)
      records.push(record)
    }
    return records
  }

  /** Makes a block that another thread has cached one that this thread has; false when somebody was faster. */
  private pass(record: number): boolean {
    const { words } = this
    const index = (record << 4) | Word.holder
    const held = words[index]
    const mine = holderOf(words[record << 4], this.thread, Phase.cached)
    return phaseOf(held) === Phase.cached && Atomics.compareExchange(words, index, held, mine) === held
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

  private takeFromInbox(place: number): boolean {
    const record = this.inboxes[place]
    if (!this.claim(record)) return false
    Atomics.store(this.inboxes, place, 0)
    this.handBack(record)
    return true
  }

  private takeFrom(place: number): number {
    const record = Atomics.exchange(this.places, place, 0)
    if (record !== 0) this.handBack(record)
    return record
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
