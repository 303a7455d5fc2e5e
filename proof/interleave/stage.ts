// What scenarios can do beside running the project's code. The functions are there only while the scheduler runs a
// scenario (play.ts puts its own in their place); the scenario's code is rewritten as the project's is.

/** The threads of one run. */
export interface Cast {
  /** what each thread does */
  readonly threads: readonly (() => void)[]
  /** by index of a thread, that of another one: it begins when that has ended, and has its number in the system */
  readonly heirs?: Readonly<Record<number, number>>
  /** what holds when all threads have ended; nobody runs then */
  readonly end?: () => void
}

/** Small programs of real code, with what must hold whoever goes on when. */
export interface Scenario {
  /**
   * Makes what the threads share, and the threads; called before each run, with a number that a random program can
   * begin from.
   */
  readonly begin: (seed: number) => Cast
  /** whether all interleavings are too many to try, so that it runs at random only */
  readonly isLarge?: boolean
  /** steps of a run after which it is said to have no end; 20,000 if not given */
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
