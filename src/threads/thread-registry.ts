// Which threads of the process work on some shared memory, and which of them died while they did, in that memory. A death is
// noticed by whoever looks, for which no event loop is needed: the system no longer has the thread. A thread's number is
// given away again only after somebody has cleaned up behind it.

import { PoolError } from '../base/errors.js'
import { loadAcquire } from './memory-order.js'
import { isGone, isOver, lifeSign, sharingObstacle, threadNumber, threadStart } from './os-thread.js'

/** Threads that one registry can have at a time; their numbers are 1 to this. */
export const MOST_WORKERS = 64
/**
 * int32 words of a registry. From 1 on, for each number: the word of its thread, see below; then the time at which each thread
 * started; then how many threads had the number before; then descriptor and inode of each life sign.
 */
export const REGISTRY_WORDS = 5 * MOST_WORKERS + 1
/** Of a word: the system's number of the thread, which is below 2^22 in any Linux; 0 for no thread. */
const ID = 2 ** 22 - 1
/** The thread has noted all by which others know it; before that it is known by its number alone. */
const DESCRIBED = 2 ** 22
/**
 * Counts the threads that had the number, as far as there is room. The system's numbers come round again; without the count, what was
 * found out about a thread would be taken for the next one's.
 */
const TURN = 2 ** 23
/** The sign of a word: the thread is dead. */
const DEAD = 2 ** 31
/** Between two names of one number. */
const NAMES = 128
const MOST_NAMES = 2 ** 24

export class ThreadRegistry {
  /** Words `first` to before `first + REGISTRY_WORDS` are the registry's. */
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
      const word = this.wordOf(worker)
      if ((word & ID) === 0 && this.replace(worker, word, word | id)) return this.described(worker, id)
    }
    return 0
  }

  /**
   * The number of a dead thread for the calling one, with all that is left of the dead thread, which is cleared up under that number
   * then; 0 when no thread is dead. For a full registry.
   */
  takeOver(): number {
    const id = threadNumber()
    for (const worker of this.lookAtAll()) {
      const word = this.wordOf(worker)
      if (word >= 0 || !this.replace(worker, word, afterTurn(word) | id)) continue // another thread was first
      Atomics.add(this.words, this.namesOf(worker), 1)
      return this.described(worker, id)
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
   * Marks a thread as dead. Returns true to exactly one caller, which must clean up.
   */
  bury(worker: number): boolean {
    const word = this.wordOf(worker)
    return isThere(word) && this.replace(worker, word, word | DEAD)
  }

  /** Asks the system whether a thread has ended, and buries it then. Returns whether it is dead. */
  look(worker: number): boolean {
    const word = this.wordOf(worker)
    if (!isThere(word)) return word < 0
    if (!this.hasEnded(worker, word)) return false
    return this.replace(worker, word, word | DEAD) || this.isDead(worker)
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

  /** Nothing is left of the calling thread here: its number may be given away. */
  forget(worker: number): void {
    Atomics.add(this.words, this.namesOf(worker), 1)
    Atomics.store(this.words, this.first + worker, afterTurn(this.wordOf(worker)))
  }

  /** The same of a dead thread; nothing where another one has its number by now. */
  forgetDead(worker: number): void {
    const word = this.wordOf(worker)
    if (word >= 0) return
    Atomics.add(this.words, this.namesOf(worker), 1)
    this.replace(worker, word, afterTurn(word))
  }

  /** How many threads there are that are not known to be dead. */
  get living(): number {
    let living = 0
    for (let worker = 1; worker <= MOST_WORKERS; worker++) if (this.isAlive(worker)) living++
    return living
  }

  isAlive(worker: number): boolean {
    return isThere(this.wordOf(worker))
  }

  isDead(worker: number): boolean {
    return this.wordOf(worker) < 0
  }

  private wordOf(worker: number): number {
    return loadAcquire(this.words, this.first + worker)
  }

  private replace(worker: number, word: number, next: number): boolean {
    return Atomics.compareExchange(this.words, this.first + worker, word, next | 0) === word
  }

  /** Notes all by which others see whether the calling thread lives; returns its number. */
  private described(worker: number, id: number): number {
    const { descriptor, inode } = lifeSign()
    Atomics.store(this.words, this.startOf(worker), threadStart(id))
    Atomics.store(this.words, this.signOf(worker), descriptor)
    Atomics.store(this.words, this.signOf(worker) + 1, inode)
    Atomics.or(this.words, this.first + worker, DESCRIBED)
    return worker
  }

  private hasEnded(worker: number, word: number): boolean {
    if ((word & DESCRIBED) === 0) return isOver(word & ID, 0)
    const started = Atomics.load(this.words, this.startOf(worker))
    const descriptor = Atomics.load(this.words, this.signOf(worker))
    const inode = Atomics.load(this.words, this.signOf(worker) + 1)
    return isGone({ descriptor, inode }) || isOver(word & ID, started)
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

/** Whether a word is that of a thread, as far as is known alive. */
function isThere(word: number): boolean {
  return word > 0 && (word & ID) !== 0
}

/** The word of a number that no thread has, after that of one. */
function afterTurn(word: number): number {
  return (word + TURN) & ~(ID | DESCRIBED | DEAD)
}
