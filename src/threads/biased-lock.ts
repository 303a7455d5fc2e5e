// A biased lock between a thread and the pool server, around the blocks that the thread caches. The thread goes in for a few loads
// and stores; the pool server shuts all biased locks before it takes blocks away. Each side sets its flag before it reads the other's
// (Dekker), so that at most one goes on. For the thread, which goes in all the time, that would be a barrier each time; where the system can
// make one in all threads at once, the pool server asks for that, and the thread just stores and loads.

import { PoolError } from '../base/errors.js'
import type { Region } from '../base/region.js'
import { loadAcquire, storeRelease } from './memory-order.js'
import { openProcessBarrier } from './process-barrier.js'
import { MOST_WORKERS, type ThreadRegistry } from './thread-registry.js'

/** int32 words between what two threads write. */
const LINE_WORDS = 32
/** Looks at a thread that is inside before it is taken for one that does not run, or has ended. */
const SPINS = 1000
const PATIENCE_MS = 1
/** How often so long a thread that lives may stay inside, before what it has is left to it. */
const MOST_WAITS = 20

export class BiasedLock {
  /** whether the pool server has shut the biased locks; then by thread, a line each: whether it is inside */
  private readonly words: Int32Array
  /** where this thread's word is */
  private index = 0
  /** shut, and no thread is inside any more */
  private hasShut = false
  /** by thread: 1 for one that stayed inside when the biased locks were shut last, since it was stopped there */
  private readonly stuck = new Uint8Array(MOST_WORKERS + 1)
  private barrier: (() => void) | null = null

  constructor(
    region: Region,
    private readonly registry: ThreadRegistry,
    /** whether threads make barriers themselves; the same in all of them */
    private readonly isFenced: boolean,
  ) {
    this.words = region.int32((MOST_WORKERS + 1) * LINE_WORDS)
  }

  /** This thread has got its number. */
  assign(thread: number): void {
    this.index = thread * LINE_WORDS
    Atomics.store(this.words, this.index, 0) // another one of that number may have died inside
  }

  /**
   * This thread is the one that shuts biased locks. What it takes is loaded at once: Node aborts the whole process when a thread is
   * terminated, or the process exits, while it loads native code.
   */
  prepare(): void {
    if (this.isFenced || this.barrier !== null) return
    this.barrier = openProcessBarrier()
    if (this.barrier === null) throw new PoolError('this thread has no membarrier, unlike the one that made the pool')
  }

  /** From here to `leave` the pool server takes nothing out; false while it is doing that. In between nothing is waited for. */
  enter(): boolean {
    const { words, index } = this
    if (this.isFenced) {
      Atomics.store(words, index, 1)
      if (Atomics.load(words, 0) === 0) return true
    } else {
      words[index] = 1
      if (loadAcquire(words, 0) === 0) return true // the owner words are read after that
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

  /** Lets no thread in until `open`, and waits for those that are inside, but not for ever: see `isOut`. Under the lock of the pool. */
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

  /** Whether a thread has been seen outside since the biased locks were shut, or will never come out; what it has may be taken then. */
  isOut(thread: number): boolean {
    return this.stuck[thread] === 0 || !this.staysInside(thread, 0)
  }

  private staysInside(thread: number, waits: number): boolean {
    const { words, registry } = this
    const index = thread * LINE_WORDS
    for (let looks = 0; Atomics.load(words, index) === 1; looks++) {
      if (!registry.isAlive(thread)) return false
      if (looks < SPINS) continue
      if (registry.look(thread)) return false
      if (looks >= SPINS + waits) return true
      Atomics.wait(words, index, 1, PATIENCE_MS)
    }
    return false
  }

  /** Takes back what this thread has shut, or was about to. */
  open(): void {
    if (this.words[0] !== 0) this.mend()
  }

  /** The same after the death of whoever has shut them. */
  mend(): void {
    this.hasShut = false
    Atomics.store(this.words, 0, 0)
  }
}
