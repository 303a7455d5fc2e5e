// A lock in shared memory that outlives its owner (a robust mutex, as in POSIX). Its word has the number of the
// owner, so that a waiter can ask the registry whether the owner lives. A waiter takes the lock over from a dead
// owner, and knows that the data behind the lock may be half changed.
//
// A thread that finds itself as the owner takes the lock over in the same way. No section is entered twice, so an
// earlier call of this thread was cut short: by the timeout of a vm script, by Ctrl-C in a REPL, or by a full stack.
//
// The word also counts acquisitions, since a later thread may get the number of a dead one. Without the count, a
// waiter that was stopped between its read and its exchange would take the lock from a living thread.
//
// Waiters set a bit in the word, so that a release without waiters makes no system call. A wake-up is lost with a
// thread that dies before it passes the wake-up on. Therefore waiters look again after some milliseconds, and ask
// whether the owner lives.

import { assert } from '../base/assert.js'
import { MOST_WORKERS, type ThreadRegistry } from './thread-registry.js'

const OWNER = 127
const WAITERS = 128
const ACQUISITION = 256
/** In place of an owner: the last owner failed in the middle of a change. */
const BROKEN = 127
assert(MOST_WORKERS < BROKEN, 'the number of a thread fits into its bits')
/**
 * Looks at a held lock before sleeping: some tens of microseconds. Many sections are shorter than a sleep and a
 * wake-up.
 */
const SPINS = 3000
const PATIENCE_MS = 5

export class RobustLock {
  constructor(
    private readonly words: Int32Array,
    private readonly index: number,
    private readonly registry: ThreadRegistry,
    /** number of the calling thread in the registry */
    private readonly me: number,
    /** runs every few milliseconds while the thread waits: the owner may wait for a call that this thread answers */
    private readonly meanwhile = () => {},
  ) {}

  /**
   * Waits for the lock. Returns 0 when the data behind it is consistent. Otherwise the last owner died, failed or was
   * cut short, and the caller repairs the data. A caller that dies meanwhile leaves the repair to the next owner.
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

  /** Releases the lock after a failure in the middle of a change; the next owner repairs the data. */
  releaseBroken(): void {
    this.leave(BROKEN)
  }

  /**
   * Releases the lock if an earlier call of this thread was cut short. Called before a wait for a thread that may
   * need it.
   */
  dropStale(): void {
    if (this.owner === this.me) this.releaseBroken()
  }

  /** The number of the owner, dead or alive; 0 for none. */
  get owner(): number {
    const owner = Atomics.load(this.words, this.index) & OWNER
    return owner === BROKEN ? 0 : owner
  }

  private leave(owner: 0 | typeof BROKEN): void {
    const { words, index, me } = this
    assert((words[index] & OWNER) === me, 'a lock is released by the thread that holds it')
    // Other threads only set the waiters' bit meanwhile.
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
          if (Atomics.wait(words, index, waiting, PATIENCE_MS) === 'timed-out') registry.hasDied(owner)
          bits = WAITERS
          this.meanwhile()
        }
      }
    }
  }
}
