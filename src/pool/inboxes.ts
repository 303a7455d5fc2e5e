// Blocks that one thread allocated and another one freed, on their way back: for each thread a ring that any other puts
// blocks into, so that producer and consumer in two threads need no lock. A block in there is cached by the thread that freed it,
// until the one that gets it, or the keeper of the pool, makes it its own by one atomic operation.

import { publish } from '../base/publish.js'
import { MOST_WORKERS, type Roster } from '../base/roster.js'
import { holderOf, isGenerationOf, NOBODY, Phase, phaseOf, workerOf } from '../heap/holder.js'
import { type RecordTable, Word } from '../heap/records.js'
import type { Region } from '../heap/region.js'

/** Blocks of one thread on their way back to it; a power of two. */
const INBOX_PLACES = 1024
/**
 * An entry of an inbox is a record, and above it the low bits of its generation: whoever reads it late does not take the block
 * for what it was.
 */
const RECORD_BITS = 20
const RECORD_MASK = (1 << RECORD_BITS) - 1
const GENERATION_MASK = (1 << (31 - RECORD_BITS)) - 1
/** Places of an inbox that are looked at before it is taken for full, or for having nothing that fits. */
const MOST_LOOKS = 64
/** int32 words between what two threads write. */
const LINE_WORDS = 32

export class Inboxes {
  /**
   * by thread, a ring: blocks that it allocated and another one freed, which are cached by that one until they are taken out.
   * A thread that died may leave an empty place in between.
   */
  private readonly entries: Int32Array
  /** by thread: how many were ever sent to its inbox */
  private readonly sent: Int32Array
  /** how many this thread has seen to be sent to its own, and how many of those it has taken out; both wrap around */
  private known = 0
  private taken = 0
  /** whether so many blocks were returned to this thread that do not fit what it asks for */
  isCrowded = false
  private readonly words: Int32Array
  /** the number of this thread; 0 before it has one */
  thread = 0

  /** Takes what it needs from `region`; `records` are of a fixed size. */
  constructor(records: RecordTable, region: Region) {
    this.entries = region.int32((MOST_WORKERS + 1) * INBOX_PLACES)
    this.sent = region.int32((MOST_WORKERS + 1) * LINE_WORDS)
    this.words = records.words
  }

  /** Sends a block, cached by this thread, to the inbox of another one; false when that is full, or the other thread gone. */
  send(record: number, thread: number, roster: Roster): boolean {
    const entry = (((this.words[record << 4] >> 3) & GENERATION_MASK) << RECORD_BITS) | record
    for (let looks = 0; looks < MOST_LOOKS; looks++) {
      const place = Atomics.add(this.sent, thread * LINE_WORDS, 1) & (INBOX_PLACES - 1)
      const index = thread * INBOX_PLACES + place
      if (Atomics.compareExchange(this.entries, index, 0, entry) !== 0) continue
      if (roster.isAlive(thread)) return true
      // Whoever buried that thread has found the block there, or did so before; then it is this thread's own again.
      const cached = holderOf(this.words[record << 4], this.thread, Phase.cached)
      const live = cached ^ Phase.cached ^ Phase.live
      if (Atomics.compareExchange(this.words, (record << 4) | Word.holder, cached, live) !== cached) return true
      Atomics.store(this.entries, index, 0)
      return false
    }
    return false
  }

  /** A block for the stream, of that class and at least `units`, out of this thread's inbox; 0 for none. It is cached by this thread then. */
  take(slot: number, sizeClass: number, units: number): number {
    const { entries, words, thread } = this
    if (this.taken === this.known) {
      this.known = Atomics.load(this.sent, thread * LINE_WORDS)
      if (((this.known - this.taken) | 0) > INBOX_PLACES) this.taken = (this.known - INBOX_PLACES) | 0
    }
    const looks = Math.min((this.known - this.taken) | 0, MOST_LOOKS)
    for (let look = 0, index = this.taken; look < looks; look++, index = (index + 1) | 0) {
      const place = thread * INBOX_PLACES + (index & (INBOX_PLACES - 1))
      const entry = entries[place]
      const base = (entry & RECORD_MASK) << 4
      if (entry !== 0) {
        if (words[base | Word.key] !== slot + 1 || words[base | Word.sizeClass] !== sizeClass) continue
        if (words[base | Word.units] < units || !this.pass(entry, thread, thread)) continue
        publish(entries, place, 0)
      }
      if (index === this.taken) this.taken = (this.taken + 1) | 0
      if (entry !== 0) return base >> 4
    }
    this.isCrowded = looks === MOST_LOOKS
    return 0
  }

  /** Every block in the inbox of this thread; they are cached by it then. */
  takeAll(): number[] {
    const { thread } = this
    this.known = Atomics.load(this.sent, thread * LINE_WORDS)
    this.taken = this.known
    this.isCrowded = false
    return this.empty(thread, thread)
  }

  /** Takes all out of the inbox of a thread, which are held by `holder` then: the thread itself, or nobody. */
  empty(thread: number, holder: number): number[] {
    const { entries } = this
    const records: number[] = []
    for (let place = thread * INBOX_PLACES; place < (thread + 1) * INBOX_PLACES; place++) {
      const entry = entries[place]
      if (entry === 0 || !this.pass(entry, thread, holder)) continue
      Atomics.store(entries, place, 0)
      records.push(entry & RECORD_MASK)
    }
    return records
  }

  /** Makes the block of an entry in the inbox of `home` one that `holder` has; false when somebody was faster. */
  private pass(entry: number, home: number, holder: number): boolean {
    const { words } = this
    const base = (entry & RECORD_MASK) << 4
    const held = words[base | Word.holder]
    const generation = words[base] >> 3
    const isThis = (generation & GENERATION_MASK) === entry >>> RECORD_BITS && isGenerationOf(held, words[base])
    if (!isThis || phaseOf(held) !== Phase.cached || workerOf(held) === home) return false
    const next = holder === NOBODY ? 0 : holderOf(words[base], holder, Phase.cached)
    return Atomics.compareExchange(words, base | Word.holder, held, next) === held
  }

  /** Makes a block that a thread has cached nobody's; false when another one was faster. */
  claim(record: number, thread: number): boolean {
    const { words } = this
    const index = (record << 4) | Word.holder
    const held = words[index]
    const isIts = phaseOf(held) === Phase.cached && workerOf(held) === thread
    return isIts && Atomics.compareExchange(words, index, held, 0) === held
  }

  /** Whether a block is in an inbox. */
  has(record: number): boolean {
    return this.entries.some(entry => (entry & RECORD_MASK) === record && entry !== 0)
  }

  /** Takes all blocks of a stream out, of classes from `first` to before `end`; they are nobody's then. */
  takeOf(slot: number, first: number, end: number): number[] {
    const { entries, words } = this
    const records: number[] = []
    for (let place = 0; place < entries.length; place++) {
      const entry = entries[place] // once: its thread may take it, and another one fill the place
      const base = (entry & RECORD_MASK) << 4
      const sizeClass = words[base | Word.sizeClass]
      if (base === 0 || words[base | Word.key] !== slot + 1 || sizeClass < first || sizeClass >= end) continue
      if (!this.pass(entry, Math.floor(place / INBOX_PLACES), NOBODY)) continue
      Atomics.store(entries, place, 0)
      records.push(base >> 4)
    }
    return records
  }
}
