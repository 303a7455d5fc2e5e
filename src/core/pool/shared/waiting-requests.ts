// Requests that wait for the GPU while the pool server serves others. Every round looks at each of them, the oldest
// first. A request goes on once all marks that it waits for are complete.

import type { Clocks, Mark } from '../../order/clocks.js'
import type { Waiting } from '../caching/central/parts.js'

interface Request<Question> {
  readonly question: Question
  readonly work: Waiting<unknown>
  /** empty: it waits for the request before it */
  marks: readonly Mark[]
}

/** The value that finished work returned. */
export interface Result {
  readonly value: unknown
}

export class WaitingRequests<Question> {
  private readonly requests = new Map<number, Request<Question>>()

  constructor(private readonly clocks: Clocks) {}

  /** Threads whose requests wait, the oldest request first. */
  get askers(): readonly number[] {
    return [...this.requests.keys()]
  }

  get isEmpty(): boolean {
    return this.requests.size === 0
  }

  /** The oldest request, unless it is this thread's own; null for none. */
  before(asker: number): Question | null {
    for (const [other, { question }] of this.requests) return other === asker ? null : question
    return null
  }

  /** Begins the work for the request of a thread; null when it has to wait. Throws the errors of the work. */
  begin(asker: number, question: Question, work: Waiting<unknown>): Result | null {
    return this.step(asker, { question, work, marks: [] })
  }

  /** Whether a request can go on. Asks the driver; on its error throws, and forgets the request. */
  isReady(asker: number): boolean {
    const { marks } = this.requests.get(asker)!
    if (marks.length === 0) return this.requests.keys().next().value === asker
    try {
      return marks.every(({ slot, stamp }) => this.clocks.watcher.hasCompleted(slot, stamp))
    } catch (error) {
      this.forget(asker)
      throw error
    }
  }

  /** Continues a request, as `begin` does. */
  resume(asker: number): Result | null {
    return this.step(asker, this.requests.get(asker)!)
  }

  /** The thread has ended. */
  forget(asker: number): void {
    this.requests.delete(asker)
  }

  private step(asker: number, request: Request<Question>): Result | null {
    let step: IteratorResult<readonly Mark[], unknown>
    try {
      step = request.work.next()
    } catch (error) {
      this.forget(asker)
      throw error
    }
    if (step.done === true) {
      this.forget(asker)
      return step
    }
    request.marks = step.value
    this.requests.set(asker, request) // a known request keeps its place
    return null
  }
}
