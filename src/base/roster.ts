// Which threads of the process work on some shared memory, and which of them died while they did: one int32 a thread, in that
// memory. A thread's number is given away again only after somebody has cleaned up behind it.

/** Threads that one roster can have at a time; their numbers are 1 to this. */
export const MOST_WORKERS = 64
/** int32 words of a roster. */
export const ROSTER_WORDS = MOST_WORKERS + 1

const enum Life {
  none = 0,
  alive = 1,
  dead = 2,
}

export class Roster {
  /** Words `first` to before `first + ROSTER_WORDS` are the roster's. */
  constructor(
    private readonly words: Int32Array,
    private readonly first: number,
  ) {}

  /** A number for one more thread; 0 when all are taken. */
  enter(): number {
    for (let worker = 1; worker <= MOST_WORKERS; worker++) {
      if (Atomics.compareExchange(this.words, this.first + worker, Life.none, Life.alive) === Life.none) return worker
    }
    return 0
  }

  /**
   * The thread has ended, which only others can say: nothing of it runs any more. Returns whether it was alive, so that of
   * several who say so one cleans up.
   */
  bury(worker: number): boolean {
    return Atomics.compareExchange(this.words, this.first + worker, Life.alive, Life.dead) === Life.alive
  }

  /** Nothing is left of a thread, by its own doing or after its death: its number may be given away. */
  forget(worker: number): void {
    Atomics.store(this.words, this.first + worker, Life.none)
  }

  isAlive(worker: number): boolean {
    return Atomics.load(this.words, this.first + worker) === Life.alive
  }

  isDead(worker: number): boolean {
    return Atomics.load(this.words, this.first + worker) === Life.dead
  }
}
