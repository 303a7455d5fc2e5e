// A lock in shared memory that outlives its holder (a robust mutex, as POSIX has it). Its word has the number of the thread
// that holds it, so a waiter can ask the registry whether that thread still lives. A waiter takes the lock over from a dead
// holder, and knows that the data behind the lock was left in the middle of a change.
//
// A thread that finds itself as the holder takes the lock over in the same way. No section is entered twice, so an earlier call of
// this thread was cut short: by the timeout of a vm script, by Ctrl-C in a REPL, or for want of stack.
//
// The word also counts acquisitions. The number of a dead thread is given to another thread in the end; without the count, a
// waiter that was stopped between its look at the word and its exchange would take the lock from a living thread.
//
// Waiters set a bit in the word, so that a release without waiters makes no system call. A wake-up is lost with the thread that
// was to pass it on; therefore waiters look again after some milliseconds, and ask then whether the holder lives.

import { assert } from '../base/assert.js'
import { MOST_WORKERS, type ThreadRegistry } from './thread-registry.js'

const OWNER = 127
const WAITERS = 128
const ACQUISITION = 256
/** In place of the owner: the holder failed in the middle of a change. */
const BROKEN = 127
assert(MOST_WORKERS < BROKEN, 'the number of a thread fits into its bits')
/** Looks at a held lock before sleeping: some tens of microseconds. Many sections are shorter than a sleep and a wake-up. */
const SPINS = 3000
const PATIENCE_MS = 5

export class RobustLock {
  constructor(
    private readonly words: Int32Array,
    private readonly index: number,
    private readonly registry: ThreadRegistry,
    /** number of the calling thread in the registry */
    private readonly me: number,
  ) {}

  /**
   * Waits for the lock. The result is 0 when the data behind it is whole. Otherwise it is not: the last holder died, failed or was
   * cut short, and the caller repairs the data. A caller that dies meanwhile leaves the repair to the next one.
   */
  acquire(): number {
    const { words, index } = this
    const seen = Atomics.load(words, index)
    if ((seen & OWNER) !== 0) return this.wait()
    return Atomics.compareExchange(words, index, seen, (seen + ACQUISITION) | this.me) === seen ? 0 : this.wait()
  }

  release(): void {
    this.leave(0)
  }

  /** Releases the lock after a failure in the middle of a change; the next holder repairs the data. */
  releaseBroken(): void {
    this.leave(BROKEN)
  }

  /** Lets go of the lock where an earlier call of this thread was cut short: before waiting for another thread, which may need it. */
  dropStale(): void {
    if (this.owner === this.me) this.releaseBroken()
  }

  /** The number of the thread that holds the lock, dead or alive; 0 for none. */
  get owner(): number {
    const owner = Atomics.load(this.words, this.index) & OWNER
    return owner === BROKEN ? 0 : owner
  }

  private leave(owner: 0 | typeof BROKEN): void {
    const { words, index, me } = this
    assert((words[index] & OWNER) === me, 'a lock is released by the thread that holds it')
    // Others only set the bit of the waiters meanwhile.
    const before = owner === 0 ? Atomics.and(words, index, ~(OWNER | WAITERS)) : Atomics.or(words, index, BROKEN)
    if ((before & WAITERS) !== 0) Atomics.notify(words, index, 1)
  }

  private wait(): number {
    const { words, index, registry, me } = this
    let bits = 0 // a thread that has waited cannot know whether others still do
    for (let spins = 0; ; spins++) {
      const seen = Atomics.load(words, index)
      const owner = seen & OWNER
      if (owner === 0 || owner === BROKEN || owner === me || registry.isDead(owner)) {
        const mine = ((seen & ~OWNER) + ACQUISITION) | me | bits
        if (Atomics.compareExchange(words, index, seen, mine) === seen) return owner
      } else if (spins > SPINS) {
        const waiting = seen | WAITERS
        if (seen === waiting || Atomics.compareExchange(words, index, seen, waiting) === seen) {
          if (Atomics.wait(words, index, waiting, PATIENCE_MS) === 'timed-out') registry.look(owner)
          bits = WAITERS
        }
      }
    }
  }
}
