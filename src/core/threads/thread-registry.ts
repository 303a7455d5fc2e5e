// The threads of the process that use some shared memory, dead ones included. The registry lies in that
// memory. Any thread can notice a death without an event loop, by asking the system. A thread's number is reused only
// after another thread has cleaned up.

import { PoolError } from '../base/errors.js'
import { loadAcquire } from './memory-order.js'
import { isGone, isOver, lifeSign, sharingObstacle, threadNumber, threadStart } from './os-thread.js'

/** Most threads of a registry at a time. Their numbers are 1 to this. */
export const MOST_WORKERS = 64
/**
 * int32 words of a registry. From 1 on, by number: the word of the thread, see below; then its start time; then how
 * many threads had the number before; then the descriptor and the inode of its life sign.
 */
export const REGISTRY_WORDS = 5 * MOST_WORKERS + 1
/** Bits of a word: the system's number of the thread, below 2^22 in any Linux; 0 for no thread. */
const ID = 2 ** 22 - 1
/** Bit of a word: start time and life sign are stored. Before that, the number alone identifies the thread. */
const DESCRIBED = 2 ** 22
/**
 * Counts the threads that had the number, modulo the bits left. The system reuses its numbers; without the count, a
 * finding about one thread would be taken for the next thread's.
 */
const TURN = 2 ** 23
/** Sign bit of a word: the thread is dead. */
const DEAD = 2 ** 31
/** Difference of two successive names of one number. */
const NAMES = 128
const MOST_NAMES = 2 ** 24

export class ThreadRegistry {
  /** Words `first` to before `first + REGISTRY_WORDS` are the registry's. */
  constructor(
    private readonly words: Int32Array,
    private readonly first: number,
  ) {}

  /**
   * A new number for the calling thread; 0 when all are taken. Throws PoolError if threads cannot share pools here.
   */
  enter(): number {
    const obstacle = sharingObstacle()
    if (obstacle !== null) throw new PoolError(obstacle, 'ERR_NOT_SUPPORTED')
    const id = threadNumber()
    for (let worker = 1; worker <= MOST_WORKERS; worker++) {
      const word = this.wordOf(worker)
      if ((word & ID) === 0 && this.replace(worker, word, word | id)) return this.described(worker, id)
    }
    return 0
  }

  /**
   * The number of a dead thread for the calling thread, which must clean up what the dead thread left; 0 when no
   * thread is dead. For a full registry.
   */
  takeOver(): number {
    const id = threadNumber()
    for (const worker of this.findDead()) {
      const word = this.wordOf(worker)
      if (word >= 0 || !this.replace(worker, word, afterTurn(word) | id)) continue // another thread was first
      Atomics.add(this.words, this.namesOf(worker), 1)
      return this.described(worker, id)
    }
    return 0
  }

  /**
   * The public name of a thread: its number, and how many threads had the number before. No later thread has the same
   * name.
   */
  nameOf(worker: number): number {
    const before = Atomics.load(this.words, this.namesOf(worker)) & (MOST_NAMES - 1)
    return before * NAMES + worker
  }

  /** The number in a name, even if no thread has that name. */
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

  /** Whether a thread has died. Asks the system, and buries a thread that has ended. */
  hasDied(worker: number): boolean {
    const word = this.wordOf(worker)
    if (!isThere(word)) return word < 0
    if (!this.hasEnded(worker, word)) return false
    return this.replace(worker, word, word | DEAD) || this.isDead(worker)
  }

  /** The numbers of all dead threads, as the system says. */
  findDead(): number[] {
    for (let worker = 1; worker <= MOST_WORKERS; worker++) this.hasDied(worker)
    return this.dead()
  }

  /** The numbers of all threads but `these` that have not ended, as the system says. */
  others(...these: readonly number[]): number[] {
    const others: number[] = []
    for (let worker = 1; worker <= MOST_WORKERS; worker++) {
      if (!these.includes(worker) && this.isAlive(worker) && !this.hasDied(worker)) others.push(worker)
    }
    return others
  }

  /** The numbers of the threads that are known to be dead. */
  dead(): number[] {
    const dead: number[] = []
    for (let worker = 1; worker <= MOST_WORKERS; worker++) if (this.isDead(worker)) dead.push(worker)
    return dead
  }

  /** The calling thread has left nothing behind: its number may be reused. */
  forget(worker: number): void {
    Atomics.add(this.words, this.namesOf(worker), 1)
    Atomics.store(this.words, this.first + worker, afterTurn(this.wordOf(worker)))
  }

  /** The same for a dead thread; does nothing if another thread has its number by now. */
  forgetDead(worker: number): void {
    const word = this.wordOf(worker)
    if (word >= 0) return
    Atomics.add(this.words, this.namesOf(worker), 1)
    this.replace(worker, word, afterTurn(word))
  }

  /** The number of threads that are not known to be dead. */
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

  /** Stores start time and life sign of the calling thread. Returns its number. */
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

/** Whether a word is of a thread that is not known to be dead. */
function isThere(word: number): boolean {
  return word > 0 && (word & ID) !== 0
}

/** The word of a free number, after a thread has given it up. */
function afterTurn(word: number): number {
  return (word + TURN) & ~(ID | DESCRIBED | DEAD)
}
