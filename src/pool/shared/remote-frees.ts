// Blocks that one thread has adopted and freed, on their way to the one on whose page their record is, so that producer and
// consumer in two threads need no lock: for each thread a ring of batches. A batch is a cache line, which one thread at a time
// fills: what costs is the way of a line from core to core, and so fifteen blocks share one.
//
// The thread that fills a batch only puts blocks into empty entries. The one that it is for takes them out behind its biased lock
// (biased-lock.ts), and so may the pool server of the pool. A block in there is cached by the thread that freed it; whoever dies leaves
// each block in an entry, or in none and cached by one thread, which is where the pool server looks for it.

import type { Region } from '../../base/region.js'
import { Phase, phaseOf, workerOf } from '../../heap/owner-word.js'
import { type RecordTable, Word } from '../../heap/records.js'
import { loadAcquire, storeRelease, storeReleaseBoth } from '../../threads/memory-order.js'
import { MOST_WORKERS } from '../../threads/thread-registry.js'

const BATCH_SHIFT = 4
/** The first says who fills the batch, and whether that is done; 0 for nobody: it is empty. The others are entries. */
export const BATCH_WORDS = 1 << BATCH_SHIFT
/** Batches of one thread: more than there are threads, each of which may leave one half full. A power of two. */
const BATCHS = 128
const QUEUE_WORDS = BATCHS * BATCH_WORDS
/** Beside the number of who filled it: nobody puts anything into the batch any more. */
const COMPLETE = 1 << 8
/** Batches that are looked at before a queue is taken for full. */
const MOST_LOOKS = 64
/** int32 words between what two threads write. */
const LINE_WORDS = 32

export class RemoteFrees {
  /** by thread, its batches */
  readonly words: Int32Array
  /** by thread: how many batches were ever begun for it, counting those that were passed over; wraps around */
  private readonly begun: Int32Array
  /** by thread: where this one puts the next block for it; at the first word of a batch there is none that it fills */
  private readonly next = new Int32Array(MOST_WORKERS + 1)
  /** of the batches begun for this thread, how many it has seen, and up to which one it is done with all; both wrap around */
  seen = 0
  oldest = 0
  private readonly ownerWords: Int32Array
  /** the number of this thread; 0 before it has one */
  private thread = 0

  /** Takes what it needs from `region`; `records` are of a fixed size. */
  constructor(records: RecordTable, region: Region) {
    this.words = region.int32((MOST_WORKERS + 1) * QUEUE_WORDS)
    this.begun = region.int32((MOST_WORKERS + 1) * LINE_WORDS)
    this.ownerWords = records.words
  }

  /** This thread has got its number, and with it what was sent to another one that had it. */
  enter(thread: number): void {
    this.thread = thread
    this.oldest = (Atomics.load(this.begun, thread * LINE_WORDS) - BATCHS) | 0
  }

  /** Sends a block to another thread, and makes its owner word `sent`; false, and nothing is changed, when that one's queue is full. */
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

  /** The first entry of an empty batch of a thread, which this one fills from now on; 0 for none. */
  private begin(thread: number): number {
    const { words } = this
    const from = Atomics.load(this.begun, thread * LINE_WORDS)
    for (let looks = 0; looks < MOST_LOOKS; looks++) {
      const index = (from + looks) & (BATCHS - 1)
      const batch = thread * QUEUE_WORDS + (index << BATCH_SHIFT)
      if (Atomics.compareExchange(words, batch, 0, this.thread) !== 0) continue
      this.announce(thread, index)
      return batch + 1
    }
    return 0
  }

  /**
   * Counts on until the last batch begun is the one at `index` of the ring. The receiver skips an empty batch for good, so
   * this comes after the batch has got its number.
   */
  private announce(thread: number, index: number): void {
    const { begun } = this
    for (;;) {
      const count = Atomics.load(begun, thread * LINE_WORDS)
      const next = (count + ((index - count) & (BATCHS - 1)) + 1) | 0
      if (Atomics.compareExchange(begun, thread * LINE_WORDS, count, next) === count) return
    }
  }

  /** Takes out what this thread has just sent, if it is there still; the block is in no queue then. Under the lock. */
  takeBack(record: number, thread: number): boolean {
    const entry = this.next[thread] - 1
    return Atomics.compareExchange(this.words, entry, record, 0) === record
  }

  /** Looks how many batches were begun for this thread: those from `oldest` to before `seen` are to be looked at, some of them empty. */
  look(): void {
    this.seen = Atomics.load(this.begun, this.thread * LINE_WORDS)
    if (((this.seen - this.oldest) | 0) > BATCHS) this.oldest = (this.seen - BATCHS) | 0
    this.skipEmpty()
  }

  /** Where in `words` a batch of this thread begins. */
  batchAt(position: number): number {
    return this.thread * QUEUE_WORDS + ((position & (BATCHS - 1)) << BATCH_SHIFT)
  }

  /** Whether nothing more comes into a batch. */
  isComplete(batch: number): boolean {
    return (loadAcquire(this.words, batch) & COMPLETE) !== 0
  }

  /** This thread has taken everything out of a complete batch, which any thread may begin anew. */
  finish(position: number): void {
    storeRelease(this.words, this.batchAt(position), 0)
    this.skipEmpty()
  }

  private skipEmpty(): void {
    const { words, seen } = this
    while (this.oldest !== seen && words[this.batchAt(this.oldest)] === 0) this.oldest = (this.oldest + 1) | 0
  }

  /** Takes every block out of the queue of this thread; they have no owner then. Under the lock, so that the pool server is not there. */
  takeAll(): number[] {
    return this.drain(this.thread, () => true)
  }

  /**
   * Takes blocks that `isWanted` out of the queue of a thread; they have no owner then. Under the lock, when the thread is
   * outside its shut biased lock or is the caller.
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

  /** Whether the block of an entry is on its way. If not, its thread was stopped after it had taken the block out. */
  isSent(record: number): boolean {
    return phaseOf(loadAcquire(this.ownerWords, (record << 4) | Word.owner)) === Phase.sent
  }

  /** A thread has ended, or is about to: what it has begun is complete. */
  completeOf(thread: number): void {
    const { words } = this
    for (let batch = 0; batch < words.length; batch += BATCH_WORDS) {
      if (words[batch] === thread) Atomics.store(words, batch, thread | COMPLETE)
    }
  }

  /** Takes a block that a thread has sent, and that is in no queue; false when another thread has it meanwhile. */
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
