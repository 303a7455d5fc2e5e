// A stack that several threads share. A thread that allocates moves the top by one atomic operation, and a reset
// moves it back. Epochs separate units that were handed out before a reset from later ones. Within an epoch no unit
// is handed out twice.
//
// A reset closes the stack first, by a negative top that remembers the old one. No thread gets memory while streams
// are ordered, and no lock is held for that. A thread that allocates meanwhile waits, and checks that the resetting
// thread lives. A dead thread's reset is undone before its new epoch began, and finished afterwards. If a thread's
// own reset was cut short, the thread undoes or finishes it when it next waits or resets.

import { loadAcquire } from '../threads/memory-order.js'
import type { ThreadRegistry } from '../threads/thread-registry.js'

const enum Word {
  /** the first unit that is not handed out; its complement while a reset is going on */
  top,
  epoch,
  /** the thread that resets, or 0 */
  resetter,
  /** the epoch in which the reset began */
  closedIn,
  count,
}

/** Length of a stack's memory in int32 words. */
export const BUMP_WORDS: number = Word.count

/** Why a request got no unit. */
export const enum Refusal {
  full = -1,
  /** a reset is going on: see `awaitOpen` */
  closed = -2,
  /** the epoch has ended */
  ended = -3,
}

const PATIENCE_MS = 1

export class SharedBump {
  constructor(
    private readonly words: Int32Array,
    private readonly registry: ThreadRegistry,
    /** number of the calling thread in the registry */
    private readonly me: number,
    private readonly firstUnit: number,
    private readonly lastUnit: number,
    /**
     * called when an epoch has begun, before its memory is handed out; perhaps twice, and perhaps by another thread
     * than the resetting one
     */
    private readonly onEpoch: (epoch: number) => void,
  ) {
    if (Atomics.compareExchange(words, Word.epoch, 0, 1) === 0) Atomics.store(words, Word.top, firstUnit) // new
    // The number of this thread may have been that of a thread that died while it reset.
    if (Atomics.load(words, Word.resetter) === me) this.settle()
  }

  get epoch(): number {
    return loadAcquire(this.words, Word.epoch)
  }

  /** The first unit that is not handed out. */
  get top(): number {
    const top = Atomics.load(this.words, Word.top)
    return top < 0 ? ~top : top
  }

  /** The first of `units` units taken in an epoch, or a refusal. */
  take(epoch: number, units: number): number {
    const { words } = this
    for (;;) {
      const top = loadAcquire(words, Word.top)
      if (top < 0) return Refusal.closed
      if (top + units > this.lastUnit) return Refusal.full
      if (Atomics.compareExchange(words, Word.top, top, top + units) !== top) continue
      // Units that were taken in the next epoch are lost until that epoch ends.
      return loadAcquire(words, Word.epoch) === epoch ? top : Refusal.ended
    }
  }

  /** The same from a multiple of `alignUnits`. */
  takeAligned(epoch: number, units: number, alignUnits: number): number {
    const { words } = this
    for (;;) {
      const top = loadAcquire(words, Word.top)
      if (top < 0) return Refusal.closed
      const start = Math.ceil(top / alignUnits) * alignUnits
      if (start + units > this.lastUnit) return Refusal.full
      if (Atomics.compareExchange(words, Word.top, top, start + units) !== top) continue
      return loadAcquire(words, Word.epoch) === epoch ? start : Refusal.ended
    }
  }

  /** Waits until no reset is going on; takes over the reset of a dead thread. `meanwhile` runs every millisecond. */
  awaitOpen(meanwhile: () => void): void {
    const { words, registry, me } = this
    for (let top = Atomics.load(words, Word.top); top < 0; top = Atomics.load(words, Word.top)) {
      const slept = Atomics.wait(words, Word.top, top, PATIENCE_MS) === 'timed-out'
      meanwhile()
      const owner = Atomics.load(words, Word.resetter)
      const isLeft = owner === me || (slept && owner !== 0 && registry.hasDied(owner))
      if (isLeft && this.takeOver(owner)) this.settle()
    }
  }

  /**
   * Begins an epoch, in which everything is free again. `order` is called with the present epoch, whose remaining
   * memory is no longer handed out. If `order` throws, nothing changes.
   */
  reset(order: (epoch: number) => void, meanwhile: () => void): void {
    const { words } = this
    this.claim(meanwhile)
    const { epoch } = this
    Atomics.store(words, Word.closedIn, epoch)
    this.flip()
    try {
      order(epoch)
      Atomics.store(words, Word.epoch, (epoch + 1) | 0)
    } finally {
      this.settle()
    }
  }

  /** Makes this thread the only one that resets. */
  private claim(meanwhile: () => void): void {
    const { words, registry, me } = this
    for (;;) {
      const owner = Atomics.compareExchange(words, Word.resetter, 0, me)
      if (owner === 0) return
      if (owner === me || registry.hasDied(owner)) {
        if (this.takeOver(owner)) this.settle()
        continue
      }
      Atomics.wait(words, Word.resetter, owner, PATIENCE_MS)
      meanwhile()
    }
  }

  private takeOver(from: number): boolean {
    return Atomics.compareExchange(this.words, Word.resetter, from, this.me) === from
  }

  /** Ends a reset: finishes it if the new epoch has begun, and undoes it otherwise. */
  private settle(): void {
    const { words, epoch } = this
    if (words[Word.top] < 0) {
      if (epoch === Atomics.load(words, Word.closedIn)) this.flip()
      else {
        this.onEpoch(epoch)
        Atomics.store(words, Word.top, this.firstUnit)
      }
    }
    Atomics.store(words, Word.resetter, 0)
    Atomics.notify(words, Word.top)
    Atomics.notify(words, Word.resetter)
  }

  /** Closes the stack, or opens it again at the same top. */
  private flip(): void {
    const { words } = this
    for (;;) {
      const top = Atomics.load(words, Word.top)
      if (Atomics.compareExchange(words, Word.top, top, ~top) === top) return
    }
  }
}
