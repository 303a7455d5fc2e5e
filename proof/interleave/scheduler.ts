// Decides which thread runs next. Threads are generators in this one thread. Each announces an access before it makes
// it. The chooser then lets it go on, switches to another thread, ends the thread there, or cuts its call short.
// Simulated time advances only when every thread sleeps, or when the chooser wakes a sleeping thread by its timeout.

import type { Chooser } from './choices.js'
import type { Memory } from './memory.js'

export type Routine = Generator<unknown, unknown>

export interface Thread {
  readonly index: number
  /** the system's number, and when it began */
  readonly number: number
  readonly start: number
  /** the thread that must have ended before; -1 for none */
  readonly heirOf: number
  routine: Routine
  state: 'ready' | 'asleep' | 'ended' | 'dead'
  deadline: number
  /** the word that it waits for, and the result of the wait */
  key: string
  outcome: 'ok' | 'timed-out'
  /** where it is, and for how long */
  where: string
  looks: number
  /** whether it may die where it is */
  isMortal: boolean
  /** calls that may be cut short, and whether the innermost one is to be */
  cuttable: number
  isCut: boolean
}

/** In a loop over many words, a switch is possible at the first few accesses, then at every nth. */
const LOOKS = 6
const LOOKS_APART = 32
/** Steps of one thread after which a switch is forced. */
const MOST_IN_A_ROW = 3000

class Failure extends Error {}

export class Scheduler {
  current: Thread
  /** milliseconds */
  now = 1000
  steps = 0
  /** above 0 in code that runs without a stop */
  atOnce = 0
  /** the steps of the run, if they are recorded */
  trace: string[] | null = null
  private inARow = 0
  private next: Thread | null = null

  constructor(
    /** the first thread is not the scenario's: it begins and ends the run */
    readonly threads: readonly Thread[],
    private readonly chooser: Chooser,
    readonly memory: Memory,
    private readonly mostSteps: number,
  ) {
    this.current = threads[0]
  }

  /** Runs all threads to their end. Throws what one of them throws, or a Failure. */
  run(): void {
    for (let thread = this.pick(); thread !== null; thread = this.next ?? this.pick()) {
      this.current = thread
      this.next = null
      this.inARow = 0
      const { done } = thread.routine.next()
      if (done) this.end(thread, 'ended')
    }
    this.current = this.threads[0]
    this.memory.barrier()
    for (const { state, index } of this.threads) {
      if (state === 'asleep') throw new Failure(`thread ${index} waits for ever`)
    }
  }

  /** The thread that runs is about to do something that others see; true when it must stop first. */
  point(where: string): boolean {
    if (this.atOnce > 0 || this.current.index === 0) return false
    if (++this.steps > this.mostSteps) throw new Failure(`no end after ${this.mostSteps} steps`)
    const { current, threads, memory } = this
    if (++this.inARow > MOST_IN_A_ROW) return this.goOn(this.pick(current) ?? current)
    current.looks = where === current.where ? current.looks + 1 : 0
    current.where = where
    if (current.looks > LOOKS && current.looks % LOOKS_APART !== 0) return false
    const ready = threads.filter(each => each !== current && this.canGoOn(each))
    const late = memory.late()
    const end = 1 + ready.length
    const ways = end + late.length + Number(current.isMortal) + Number(current.cuttable > 0)
    if (ways === 1) return false
    const way = this.chooser.choose(ways, false)
    if (way === 0) return false
    if (way < end) return this.goOn(ready[way - 1])
    if (way < end + late.length) {
      this.tell(`a late store of thread ${late[way - end]} is seen`)
      memory.advance(late[way - end])
      return false
    }
    if (way === end + late.length && current.isMortal) {
      this.tell('dies')
      this.end(current, 'dead')
    } else {
      this.tell('its call is cut short')
      current.isCut = true
      this.next = current
    }
    return true
  }

  /** The running thread lets a different thread go on, if there is one. */
  pause(): boolean {
    if (this.atOnce > 0) return false
    const other = this.pick(this.current)
    return other !== null && this.goOn(other)
  }

  /** The thread that runs sleeps; it must stop then. */
  sleep(key: string, milliseconds: number): void {
    const { current } = this
    if (this.atOnce > 0) throw new Failure('waits in what happens at once')
    this.tell('sleeps')
    this.memory.settle(current.index)
    current.state = 'asleep'
    current.key = key
    current.deadline = this.now + milliseconds
  }

  /** Wakes threads that wait for a key; returns how many. */
  wake(key: string, most: number): number {
    let woken = 0
    for (const thread of this.threads) {
      if (woken >= most || thread.state !== 'asleep' || thread.key !== key) continue
      thread.state = 'ready'
      thread.outcome = 'ok'
      woken++
    }
    return woken
  }

  /** Whether a thread has ended, one way or the other. */
  isOver(thread: Thread): boolean {
    return thread.state === 'ended' || thread.state === 'dead'
  }

  /** Whether the system has a thread. */
  isThere(thread: Thread): boolean {
    return !this.isOver(thread) && this.isBorn(thread)
  }

  /** Whether no other thread can run before the running one has ended. */
  get isAlone(): boolean {
    return this.threads.every(each => each === this.current || each.index === 0 || !this.isThere(each))
  }

  tell(what: string): void {
    this.trace?.push(`${this.current.index}: ${what}`)
  }

  private isBorn({ heirOf }: Thread): boolean {
    return heirOf === -1 || this.isOver(this.threads[heirOf])
  }

  private canGoOn(thread: Thread): boolean {
    if (thread.index === 0 || this.isOver(thread) || !this.isBorn(thread)) return false
    return thread.state === 'ready' || thread.deadline < Infinity
  }

  private goOn(thread: Thread): boolean {
    if (thread.state === 'asleep') this.oversleep(thread)
    this.next = thread
    return thread !== this.current
  }

  private oversleep(thread: Thread): void {
    this.now = Math.max(this.now, thread.deadline)
    thread.state = 'ready'
    thread.outcome = 'timed-out'
  }

  /**
   * A thread that can run, other than `not`; time advances if all sleep. Null when every thread has ended or sleeps
   * for ever.
   */
  private pick(not: Thread | null = null): Thread | null {
    const all = this.threads.filter(each => each !== not && this.canGoOn(each))
    const ready = all.filter(each => each.state === 'ready')
    if (ready.length > 0) return ready[ready.length === 1 ? 0 : this.chooser.choose(ready.length, true)]
    if (all.length === 0) return null
    if (++this.steps > this.mostSteps) throw new Failure(`no end after ${this.mostSteps} steps`)
    this.memory.barrier()
    const first = all.reduce((one, other) => (other.deadline < one.deadline ? other : one))
    this.oversleep(first)
    return first
  }

  private end(thread: Thread, state: 'ended' | 'dead'): void {
    this.memory.settle(thread.index)
    thread.state = state
  }
}
