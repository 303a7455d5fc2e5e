// A stack that several threads share: whoever wants memory moves its top by one atomic operation, and a reset moves it
// back. Epochs tell what was handed out before a reset from what came after, and within one no unit is handed out twice.
//
// A reset closes the stack first, by a negative top that remembers the old one, so that nobody gets memory while streams are
// ordered, for which no lock is held: who needs memory meanwhile waits, and looks whether the thread still lives. What a dead
// one left is undone, or from the step on in which the new epoch began, finished. A thread whose own reset was cut short does the same
// when it next waits or resets.

import type { ThreadRegistry } from '../threads/thread-registry.js'

const enum Word {
  /** the first unit that is not handed out; while a reset is going on the complement of that */
  top,
  epoch,
  /** the thread that resets; 0 for none */
  resetter,
  /** the epoch in which it began to */
  closedIn,
  count,
}

/** int32 words of a stack. */
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
    /** called, perhaps twice and perhaps by another thread than the one that resets, when an epoch has begun and before memory of it is had */
    private readonly onEpoch: (epoch: number) => void,
  ) {
    if (Atomics.compareExchange(words, Word.epoch, 0, 1) === 0) Atomics.store(words, Word.top, firstUnit) // a new stack
    // The number of this thread may be that of one which died while it reset.
    if (Atomics.load(words, Word.resetter) === me) this.settle()
  }

  get epoch(): number {
    return Atomics.load(this.words, Word.epoch)
  }

  /** The first unit that is not handed out. */
  get top(): number {
    const top = Atomics.load(this.words, Word.top)
    return top < 0 ? ~top : top
  }

  /** The first of `units` units in an epoch, or a refusal. */
  take(epoch: number, units: number): number {
    const { words } = this
    for (;;) {
      const top = Atomics.load(words, Word.top)
      if (top < 0) return Refusal.closed
      if (top + units > this.lastUnit) return Refusal.full
      if (Atomics.compareExchange(words, Word.top, top, top + units) !== top) continue
      // Of the next epoch already, it is lost until that ends.
      return Atomics.load(words, Word.epoch) === epoch ? top : Refusal.ended
    }
  }

  /** The same at a multiple of `alignUnits`. */
  takeAligned(epoch: number, units: number, alignUnits: number): number {
    const { words } = this
    for (;;) {
      const top = Atomics.load(words, Word.top)
      if (top < 0) return Refusal.closed
      const start = Math.ceil(top / alignUnits) * alignUnits
      if (start + units > this.lastUnit) return Refusal.full
      if (Atomics.compareExchange(words, Word.top, top, start + units) !== top) continue
      return Atomics.load(words, Word.epoch) === epoch ? start : Refusal.ended
    }
  }

  /** Waits until no reset is going on, or its thread has died. `meanwhile` runs every millisecond. */
  awaitOpen(meanwhile: () => void): void {
    const { words, registry, me } = this
    for (let top = Atomics.load(words, Word.top); top < 0; top = Atomics.load(words, Word.top)) {
      const slept = Atomics.wait(words, Word.top, top, PATIENCE_MS) === 'timed-out'
      meanwhile()
      const owner = Atomics.load(words, Word.resetter)
      const isLeft = owner === me || (slept && owner !== 0 && registry.look(owner))
      if (isLeft && this.takeOver(owner)) this.settle()
    }
  }

  /**
   * Begins an epoch in which everything can be had again. `order` is called with the present one, whose memory nobody gets any
   * more; when it throws, nothing has happened.
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

  /** Makes this the one thread that resets. */
  private claim(meanwhile: () => void): void {
    const { words, registry, me } = this
    for (;;) {
      const owner = Atomics.compareExchange(words, Word.resetter, 0, me)
      if (owner === 0) return
      if (owner === me || registry.look(owner)) {
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

  /** A reset ends: done if its epoch has begun, and as if it had not been if not. */
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

  /** Closes the stack, or opens it again where it was. */
  private flip(): void {
    const { words } = this
    for (;;) {
      const top = Atomics.load(words, Word.top)
      if (Atomics.compareExchange(words, Word.top, top, ~top) === top) return
    }
  }
}
