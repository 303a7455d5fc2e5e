// Which threads of the process work on some shared memory, and which of them died while they did, in that memory. A death is
// noticed by whoever looks, for which no event loop is needed: the system no longer has the thread. A thread's number is
// given away again only after somebody has cleaned up behind it.

import { PoolError } from './errors.js'
import { isOver, threadNumber, threadStart } from './os-thread.js'

/** Threads that one roster can have at a time; their numbers are 1 to this. */
export const MOST_WORKERS = 64
/** int32 words of a roster: from 1 on for each number the system's of its thread, negative once that is dead, and then when each started. */
export const ROSTER_WORDS = 2 * MOST_WORKERS + 1

export class Roster {
  /** Words `first` to before `first + ROSTER_WORDS` are the roster's. */
  constructor(
    private readonly words: Int32Array,
    private readonly first: number,
  ) {}

  /** A number for the calling thread, one more at each call; 0 when all are taken. Throws PoolError on other systems than Linux. */
  enter(): number {
    const id = threadNumber()
    if (id === 0) throw new PoolError('sharing between threads needs Linux, whose /proc tells which threads have ended')
    for (let worker = 1; worker <= MOST_WORKERS; worker++) {
      if (Atomics.compareExchange(this.words, this.first + worker, 0, id) !== 0) continue
      // A thread that dies before this is known by its number alone.
      Atomics.store(this.words, this.startOf(worker), threadStart(id))
      return worker
    }
    return 0
  }

  /**
   * The thread has ended, which only others can say: nothing of it runs any more. Returns whether it was alive, so that of
   * several who say so one cleans up.
   */
  bury(worker: number): boolean {
    const id = Atomics.load(this.words, this.first + worker)
    return id > 0 && Atomics.compareExchange(this.words, this.first + worker, id, -id) === id
  }

  /** Asks the system whether a thread has ended, and buries it then. Returns whether it is dead. */
  look(worker: number): boolean {
    const id = Atomics.load(this.words, this.first + worker)
    if (id <= 0) return id < 0
    const started = Atomics.load(this.words, this.startOf(worker))
    if (!isOver(id, started)) return false
    return Atomics.compareExchange(this.words, this.first + worker, id, -id) === id || this.isDead(worker)
  }

  /** Looks at all threads. Returns the numbers of the dead, also those that were known. */
  lookAtAll(): number[] {
    return Array.from({ length: MOST_WORKERS }, (_, index) => index + 1).filter(worker => this.look(worker))
  }

  /** Nothing is left of a thread, by its own doing or after its death: its number may be given away. */
  forget(worker: number): void {
    Atomics.store(this.words, this.startOf(worker), 0)
    Atomics.store(this.words, this.first + worker, 0)
  }

  /** The numbers of all dead may be given away: for where nothing of them needs to be cleaned up, so that anybody may say so. */
  forgetDead(): void {
    for (const worker of this.lookAtAll()) {
      const id = Atomics.load(this.words, this.first + worker)
      if (id >= 0) continue // somebody else has said so
      Atomics.store(this.words, this.startOf(worker), 0)
      Atomics.compareExchange(this.words, this.first + worker, id, 0)
    }
  }

  isAlive(worker: number): boolean {
    return Atomics.load(this.words, this.first + worker) > 0
  }

  isDead(worker: number): boolean {
    return Atomics.load(this.words, this.first + worker) < 0
  }

  private startOf(worker: number): number {
    return this.first + MOST_WORKERS + worker
  }
}
