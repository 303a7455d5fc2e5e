// Adopted blocks that were freed, on their way to the thread on whose page their record is (remote frees). Producer
// and consumer in two threads need no lock for them: each thread has a ring of batches. A batch is one cache line
// with fifteen blocks, since the transport of a line between cores is the cost. One thread at a time fills it.
//
// The filling thread only puts blocks into empty entries. The receiver takes them out behind its biased lock
// (biased-lock.ts); the pool server may do so too. Until then a block belongs to the thread that freed it. If a
// thread dies, each block is in an entry, or in no entry and sent by one thread: the pool server finds both.

import { Phase, phaseOf, workerOf } from '../../heap/owner-word.js'
import { type RecordTable, Word } from '../../heap/records.js'
import { loadAcquire, storeRelease, storeReleaseBoth } from '../../threads/memory-order.js'
import type { Region } from '../../threads/region.js'
import { MOST_WORKERS } from '../../threads/thread-registry.js'

const BATCH_SHIFT = 4
/**
 * The first word: the number of the filling thread, and whether the batch is complete; 0 for an empty batch. The
 * others are entries.
 */
export const BATCH_WORDS = 1 << BATCH_SHIFT
/**
 * Batches of one thread, a power of two. More than the number of threads, since each thread may leave one half full.
 */
const BATCHES = 128
const QUEUE_WORDS = BATCHES * BATCH_WORDS
/** Bit of a batch's first word: no thread puts blocks into it any more. */
const COMPLETE = 1 << 8
/** Batches that `begin` tries before it takes a queue for full. */
const MOST_LOOKS = 64
/** int32 words from one thread's word to the next, so that no two share a cache line. */
const LINE_WORDS = 32

export class RemoteFrees {
  /** by thread, its batches */
  readonly words: Int32Array
  /** by thread: how many batches were ever begun for it, skipped ones included; wraps around */
  private readonly begun: Int32Array
  /** by receiver: the entry for this thread's next block; at the first word of a batch this thread fills none */
  private readonly next = new Int32Array(MOST_WORKERS + 1)
  /**
   * positions in this thread's ring: the end of the batches it has seen, and the oldest one not emptied; both wrap
   * around
   */
  seen = 0
  oldest = 0
  private readonly ownerWords: Int32Array
  /** the number of this thread; 0 before it has one */
  private thread = 0

  /** Takes its memory from `region`; `records` have a fixed size. */
  constructor(records: RecordTable, region: Region) {
    this.words = region.int32((MOST_WORKERS + 1) * QUEUE_WORDS)
    this.begun = region.int32((MOST_WORKERS + 1) * LINE_WORDS)
    this.ownerWords = records.words
  }

  /** Sets the number of this thread, which inherits the queue of the last thread of that number. */
  enter(thread: number): void {
    this.thread = thread
    this.oldest = (Atomics.load(this.begun, thread * LINE_WORDS) - BATCHES) | 0
  }

  /**
   * Sends a block to another thread, with the owner word `sent`. False, and nothing is changed, when the queue is
   * full.
   */
  send(record: number, sent: number, thread: number): boolean {
    const { words, next } = this
    let entry = next[thread]
    if ((entry & (BATCH_WORDS - 1)) === 0) {
      entry = this.begin(thread)
      if (entry === 0) return false
    }
    storeReleaseBoth(this.ownerWords, (record << 4) | Word.owner, sent, words, entry, record)
    next[thread] = entry + 1
    if (((entry + 1) & (BATCH_WORDS - 1)) === 0) storeRelease(words, entry + 1 - BATCH_WORDS, this.thread | COMPLETE)
    return true
  }

  /** Claims an empty batch of a receiver for this thread to fill. Returns its first entry; 0 for none. */
  private begin(thread: number): number {
    const { words } = this
    const from = Atomics.load(this.begun, thread * LINE_WORDS)
    for (let looks = 0; looks < MOST_LOOKS; looks++) {
      const index = (from + looks) & (BATCHES - 1)
      const batch = thread * QUEUE_WORDS + (index << BATCH_SHIFT)
      if (Atomics.compareExchange(words, batch, 0, this.thread) !== 0) continue
      this.announce(thread, index)
      return batch + 1
    }
    return 0
  }

  /**
   * Raises the count of begun batches up to the one at `index` of the ring. Comes after the batch has its sender's
   * number, since the receiver skips an empty batch for good.
   */
  private announce(thread: number, index: number): void {
    const { begun } = this
    for (;;) {
      const count = Atomics.load(begun, thread * LINE_WORDS)
      const next = (count + ((index - count) & (BATCHES - 1)) + 1) | 0
      if (Atomics.compareExchange(begun, thread * LINE_WORDS, count, next) === count) return
    }
  }

  /** Under the lock: takes back the block that this thread has just sent, if it is still in the queue. */
  takeBack(record: number, thread: number): boolean {
    const entry = this.next[thread] - 1
    return Atomics.compareExchange(this.words, entry, record, 0) === record
  }

  /** Notes the batches begun for this thread: positions `oldest` to before `seen`. Some may be empty. */
  noteArrivals(): void {
    this.seen = Atomics.load(this.begun, this.thread * LINE_WORDS)
    if (((this.seen - this.oldest) | 0) > BATCHES) this.oldest = (this.seen - BATCHES) | 0
    this.skipEmpty()
  }

  /** The index in `words` of a batch of this thread. */
  batchAt(position: number): number {
    return this.thread * QUEUE_WORDS + ((position & (BATCHES - 1)) << BATCH_SHIFT)
  }

  /** Whether no thread puts blocks into a batch any more. */
  isComplete(batch: number): boolean {
    return (loadAcquire(this.words, batch) & COMPLETE) !== 0
  }

  /** Frees a complete batch that this thread has emptied: any thread may begin it again. */
  finish(position: number): void {
    storeRelease(this.words, this.batchAt(position), 0)
    this.skipEmpty()
  }

  private skipEmpty(): void {
    const { words, seen } = this
    while (this.oldest !== seen && words[this.batchAt(this.oldest)] === 0) this.oldest = (this.oldest + 1) | 0
  }

  /**
   * Takes all blocks out of this thread's queue; they have no owner then. Under the lock, which keeps the pool server
   * out.
   */
  takeAll(): number[] {
    return this.drain(this.thread, () => true)
  }

  /**
   * Takes the blocks that `isWanted` accepts out of the queue of a thread; they have no owner then. Under the lock.
   * The thread is the caller, or outside its shut biased lock.
   */
  drain(thread: number, isWanted: (record: number) => boolean): number[] {
    const { words, ownerWords } = this
    const records: number[] = []
    for (const entry of this.filled(thread)) {
      const record = words[entry]
      const isSent = this.isSent(record)
      if (isSent && !isWanted(record)) continue
      if (isSent) {
        Atomics.store(ownerWords, (record << 4) | Word.owner, 0)
        records.push(record)
      }
      Atomics.store(words, entry, 0)
    }
    return records
  }

  /**
   * Whether the block of an entry is on its way. Otherwise its thread was stopped after it had taken the block out.
   */
  isSent(record: number): boolean {
    return phaseOf(loadAcquire(this.ownerWords, (record << 4) | Word.owner)) === Phase.sent
  }

  /** Completes all batches that an ended or leaving thread has begun. */
  completeOf(thread: number): void {
    const { words } = this
    for (let batch = 0; batch < words.length; batch += BATCH_WORDS) {
      if (words[batch] === thread) Atomics.store(words, batch, thread | COMPLETE)
    }
  }

  /** Takes a block that a thread has sent and that is in no queue; false when another thread was first. */
  claim(record: number, thread: number): boolean {
    const { ownerWords } = this
    const index = (record << 4) | Word.owner
    const held = ownerWords[index]
    const isIts = phaseOf(held) === Phase.sent && workerOf(held) === thread
    return isIts && Atomics.compareExchange(ownerWords, index, held, 0) === held
  }

  /** All blocks in the queues. */
  all(): Set<number> {
    const records = new Set<number>()
    for (let thread = 1; thread <= MOST_WORKERS; thread++) {
      for (const entry of this.filled(thread)) records.add(this.words[entry])
    }
    return records
  }

  /** The entries of a thread's queue with blocks. */
  private *filled(thread: number): Generator<number> {
    const { words } = this
    for (let batch = thread * QUEUE_WORDS; batch < (thread + 1) * QUEUE_WORDS; batch += BATCH_WORDS) {
      if (words[batch] === 0) continue
      for (let entry = batch + 1; entry < batch + BATCH_WORDS; entry++) if (words[entry] !== 0) yield entry
    }
  }
}
