// A lock in shared memory that outlives its holder (a robust mutex, as POSIX has it). The word holds the number of the thread
// that has the lock, so that a waiter can ask the roster whether that thread still lives; from a dead one it takes the lock
// over, and knows that what the lock protects was left in the middle of something.
//
// A wake-up costs a call even when nobody waits, so whoever waits says so in a bit beside the number. A wake-up can be lost
// with the thread that was to pass it on; waiters look again by themselves after a while, and at the same time at whether the
// holder still lives: nobody else needs to say so, and the waiter may be the main thread.

import { assert } from './assert.js'
import type { Roster } from './roster.js'

const WAITERS = 1 << 30
const OWNER = WAITERS - 1
/** Looks at a held lock before sleeping: some tens of microseconds, since to sleep and to be woken takes longer than many short sections. */
const SPINS = 3000
const PATIENCE_MS = 5

export class RobustLock {
  constructor(
    private readonly words: Int32Array,
    private readonly index: number,
    private readonly roster: Roster,
    /** number of the calling thread in the roster */
    private readonly me: number,
  ) {}

  /**
   * Waits for the lock. The result is 0, or the number of the dead thread that it was taken over from; whoever dies before
   * all is repaired leaves that to the next one, who gets such a number again.
   */
  acquire(): number {
    return Atomics.compareExchange(this.words, this.index, 0, this.me) === 0 ? 0 : this.wait()
  }

  release(): void {
    const { words, index } = this
    assert((words[index] & OWNER) === this.me, 'a lock is released by the thread that holds it')
    if ((Atomics.exchange(words, index, 0) & WAITERS) !== 0) Atomics.notify(words, index, 1)
  }

  /** The number of the thread that holds the lock, dead or alive; 0 for none. */
  get owner(): number {
    return Atomics.load(this.words, this.index) & OWNER
  }

  private wait(): number {
    const { words, index, roster, me } = this
    let bits = 0 // whoever has waited cannot know whether others still do
    for (let spins = 0; ; spins++) {
      const seen = Atomics.load(words, index)
      const owner = seen & OWNER
      assert(owner !== me, 'a thread that holds a lock does not wait for it')
      if (owner === 0 || roster.isDead(owner)) {
        if (Atomics.compareExchange(words, index, seen, me | bits | (seen & WAITERS)) === seen) return owner
      } else if (spins > SPINS) {
        if (seen !== owner || Atomics.compareExchange(words, index, seen, seen | WAITERS) === seen) {
          if (Atomics.wait(words, index, owner | WAITERS, PATIENCE_MS) === 'timed-out') roster.look(owner)
          bits = WAITERS
        }
      }
    }
  }
}
