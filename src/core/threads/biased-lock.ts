// A biased lock between a thread and the pool server, around the blocks that the thread caches. The thread enters for
// a few loads and stores; the pool server shuts all biased locks before it takes blocks away. Each side sets its flag
// before it reads the other's (Dekker), so that at most one proceeds. This needs a memory barrier on both sides. The
// thread enters very often, so the pool server makes the barriers of all threads (process-barrier.ts) where the
// system can. Otherwise each thread makes its own.

import { PoolError } from '../base/errors.js'
import { loadAcquire, storeRelease } from './memory-order.js'
import { openProcessBarrier } from './process-barrier.js'
import type { Region } from './region.js'
import { MOST_WORKERS, type ThreadRegistry } from './thread-registry.js'

/** int32 words from one thread's word to the next, so that no two share a cache line. */
const LINE_WORDS = 32
/** Reads of a thread's word before `shut` checks whether that thread has ended, and sleeps. */
const SPINS = 1000
const PATIENCE_MS = 1
/** Sleeps of that length before a living thread inside counts as stuck, and keeps its blocks. */
const MOST_WAITS = 20

export class BiasedLock {
  /** word 0: whether the pool server has shut the biased locks; by thread, a cache line each: whether it is inside */
  private readonly words: Int32Array
  /** index of this thread's word */
  private index = 0
  /** shut, and no thread is inside any more */
  private hasShut = false
  /** by thread: 1 if the thread was stuck inside when the biased locks were last shut */
  private readonly stuck = new Uint8Array(MOST_WORKERS + 1)
  private barrier: (() => void) | null = null

  constructor(
    region: Region,
    private readonly registry: ThreadRegistry,
    /** whether threads make their own barriers; the same in all threads */
    private readonly isFenced: boolean,
  ) {
    this.words = region.int32((MOST_WORKERS + 1) * LINE_WORDS)
  }

  /** Sets the number of this thread. */
  assign(thread: number): void {
    this.index = thread * LINE_WORDS
    Atomics.store(this.words, this.index, 0) // an earlier thread of that number may have died inside
  }

  /**
   * This thread will shut biased locks. Loads the system call now: Node aborts the process if a thread is terminated,
   * or the process exits, while native code is loaded.
   */
  prepare(): void {
    if (this.isFenced || this.barrier !== null) return
    this.barrier = openProcessBarrier()
    if (this.barrier === null) {
      throw new PoolError('this thread has no membarrier, unlike the one that made the pool', 'ERR_NOT_SUPPORTED')
    }
  }

  /**
   * Until `leave`, the pool server takes no block away. False while it does. The caller must not wait before `leave`.
   */
  enter(): boolean {
    const { words, index } = this
    if (this.isFenced) {
      Atomics.store(words, index, 1)
      if (Atomics.load(words, 0) === 0) return true
    } else {
      words[index] = 1
      if (loadAcquire(words, 0) === 0) return true // owner words are read after this load
    }
    this.leave()
    return false
  }

  leave(): void {
    storeRelease(this.words, this.index, 0)
  }

  get isShut(): boolean {
    return Atomics.load(this.words, 0) === 1
  }

  /**
   * Keeps threads out until `open`, and waits for those inside, within limits: see `isOut`. Under the lock of the
   * pool.
   */
  shut(): void {
    if (this.hasShut) return
    const { stuck } = this
    this.prepare()
    Atomics.store(this.words, 0, 1)
    this.barrier?.()
    for (let thread = 1; thread <= MOST_WORKERS; thread++) {
      stuck[thread] = this.staysInside(thread, stuck[thread] === 1 ? 0 : MOST_WAITS) ? 1 : 0
    }
    this.hasShut = true
  }

  /** Whether a thread is outside since the biased locks were shut, or dead. Its blocks may be taken then. */
  isOut(thread: number): boolean {
    return this.stuck[thread] === 0 || !this.staysInside(thread, 0)
  }

  private staysInside(thread: number, waits: number): boolean {
    const { words, registry } = this
    const index = thread * LINE_WORDS
    for (let looks = 0; Atomics.load(words, index) === 1; looks++) {
      if (!registry.isAlive(thread)) return false
      if (looks < SPINS) continue
      if (registry.hasDied(thread)) return false
      if (looks >= SPINS + waits) return true
      Atomics.wait(words, index, 1, PATIENCE_MS)
    }
    return false
  }

  /** Opens the biased locks if this thread has shut them, or was about to. */
  open(): void {
    if (this.words[0] !== 0) this.mend()
  }

  /** The same after the thread that shut them has died. */
  mend(): void {
    this.hasShut = false
    Atomics.store(this.words, 0, 0)
  }
}
