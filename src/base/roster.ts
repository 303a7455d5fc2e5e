// Which threads of the process work on some shared memory, and which of them died while they did, in that memory. A death is
// noticed by whoever looks, for which no event loop is needed: the system no longer has the thread. A thread's number is
// given away again only after somebody has cleaned up behind it.

import { PoolError } from './errors.js'
import { isGone, isOver, lifeSign, sharingObstacle, threadNumber, threadStart } from './os-thread.js'

/** Threads that one roster can have at a time; their numbers are 1 to this. */
export const MOST_WORKERS = 64
/**
 * int32 words of a roster. From 1 on, for each number: the system's number of its thread, negative once the thread is dead; then the
 * time at which each thread started; then how many threads had the number before; then descriptor and inode of each life sign.
 */
export const ROSTER_WORDS = 5 * MOST_WORKERS + 1
/** Between two names of one number. */
const NAMES = 128
const MOST_NAMES = 2 ** 24

export class Roster {
  /** Words `first` to before `first + ROSTER_WORDS` are the roster's. */
  constructor(
    private readonly words: Int32Array,
    private readonly first: number,
  ) {}

  /** A number for the calling thread, one more at each call; 0 when all are taken. Throws PoolError where threads cannot share anything. */
  enter(): number {
    const obstacle = sharingObstacle()
    if (obstacle !== null) throw new PoolError(obstacle)
    const id = threadNumber()
    for (let worker = 1; worker <= MOST_WORKERS; worker++) {
      if (Atomics.compareExchange(this.words, this.first + worker, 0, id) !== 0) continue
      this.describe(worker, id)
      return worker
    }
    return 0
  }

  /**
   * The number of a dead thread for the calling one, with all that is left of the dead thread, which is cleared up under that number
   * then; 0 when no thread is dead. For a full roster.
   */
  takeOver(): number {
    const id = threadNumber()
    for (const worker of this.lookAtAll()) {
      const dead = Atomics.load(this.words, this.first + worker)
      if (dead >= 0) continue // another thread has cleared up
      this.clear(worker)
      if (Atomics.compareExchange(this.words, this.first + worker, dead, id) !== dead) continue
      Atomics.add(this.words, this.namesOf(worker), 1)
      this.describe(worker, id)
      return worker
    }
    return 0
  }

  /** What a thread is called outside: its number, and how many threads had that before. So no later thread is taken for it. */
  nameOf(worker: number): number {
    const before = Atomics.load(this.words, this.namesOf(worker)) & (MOST_NAMES - 1)
    return before * NAMES + worker
  }

  /** The number in a name, whether its thread is there or not. */
  static numberIn(name: number): number {
    return name % NAMES
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
    const descriptor = Atomics.load(this.words, this.signOf(worker))
    const inode = Atomics.load(this.words, this.signOf(worker) + 1)
    if (!isGone({ descriptor, inode }) && !isOver(id, started)) return false
    return Atomics.compareExchange(this.words, this.first + worker, id, -id) === id || this.isDead(worker)
  }

  /** Looks at all threads. Returns the numbers of the dead, also those that were known. */
  lookAtAll(): number[] {
    for (let worker = 1; worker <= MOST_WORKERS; worker++) this.look(worker)
    return this.dead()
  }

  /** The numbers of the dead, as far as they are known. */
  dead(): number[] {
    const dead: number[] = []
    for (let worker = 1; worker <= MOST_WORKERS; worker++) if (this.isDead(worker)) dead.push(worker)
    return dead
  }

  /** Nothing is left of a thread, by its own doing or after its death: its number may be given away. */
  forget(worker: number): void {
    this.clear(worker) // first: the next thread of the number is another one
    Atomics.add(this.words, this.namesOf(worker), 1)
    Atomics.store(this.words, this.first + worker, 0)
  }

  /** How many threads there are that are not known to be dead. */
  get living(): number {
    let living = 0
    for (let worker = 1; worker <= MOST_WORKERS; worker++) if (this.isAlive(worker)) living++
    return living
  }

  isAlive(worker: number): boolean {
    return Atomics.load(this.words, this.first + worker) > 0
  }

  isDead(worker: number): boolean {
    return Atomics.load(this.words, this.first + worker) < 0
  }

  /** Notes all by which others see whether the thread lives. A thread that dies before this is known by its number alone. */
  private describe(worker: number, id: number): void {
    const { descriptor, inode } = lifeSign()
    Atomics.store(this.words, this.startOf(worker), threadStart(id))
    Atomics.store(this.words, this.signOf(worker) + 1, inode)
    Atomics.store(this.words, this.signOf(worker), descriptor)
  }

  private clear(worker: number): void {
    Atomics.store(this.words, this.signOf(worker), 0)
    Atomics.store(this.words, this.startOf(worker), 0)
  }

  private signOf(worker: number): number {
    return this.first + 3 * MOST_WORKERS + 2 * worker - 1
  }

  private startOf(worker: number): number {
    return this.first + MOST_WORKERS + worker
  }

  private namesOf(worker: number): number {
    return this.first + 2 * MOST_WORKERS + worker
  }
}
