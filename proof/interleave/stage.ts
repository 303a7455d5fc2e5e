// The functions for scenarios, besides the project's code. They work only while the scheduler runs a scenario
// (play.ts replaces them). The scenario's code is rewritten like the project's.

/** The threads of one run. */
export interface Cast {
  /** the program of each thread */
  readonly threads: readonly (() => void)[]
  /**
   * by index of a thread, the index of its predecessor: it begins when the predecessor has ended, with the same
   * system number
   */
  readonly heirs?: Readonly<Record<number, number>>
  /** asserts what must hold when all threads have ended */
  readonly end?: () => void
}

/** Small programs of real code, with the facts that must hold under every schedule. */
export interface Scenario {
  /**
   * Makes what the threads share, and the threads; called before each run, with a number that a random program can
   * begin from.
   */
  readonly begin: (seed: number) => Cast
  /** whether all interleavings are too many to try, so that it runs at random only */
  readonly isLarge?: boolean
  /** steps after which a run counts as endless; 20,000 by default */
  readonly mostSteps?: number
}

/**
 * Does `work` unless it is cut short in the middle, after which nothing of it runs any more; returns whether it was
 * done.
 */
export function mayBeCut(_work: () => void): boolean {
  throw new Error('a scenario is run by the scheduler')
}

/** Does `work`, anywhere in which the thread may die. */
export function mayDie(_work: () => void): void {
  throw new Error('a scenario is run by the scheduler')
}

/** Lets another thread go on, if there is one: where the system would take some time. */
export function pause(): void {
  throw new Error('a scenario is run by the scheduler')
}

/** Whether a thread of this run has ended, or died. */
export function isOverNow(_thread: number): boolean {
  throw new Error('a scenario is run by the scheduler')
}
