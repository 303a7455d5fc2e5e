import { PoolError } from '../../base/errors.js'
import type { Question } from './pool-server.js'
import { CLOSED, Figure, type SharedState } from './shared-state.js'

/** The calls of a program whose questions have other names. */
const CALLS: Partial<Record<Question['ask'], string>> = {
  settle: 'processDeferred',
  trim: 'trimTo',
  defer: 'free',
  limit: 'maxPoolBytes',
  hasRoom: 'whenAvailable',
  shortage: 'allocate',
  leave: 'close',
  memory: 'bytes',
}

/** While a thread waits for an answer, checks that the pool server lives, and does the thread's periodic work. */
export class ServerLiveness {
  private server: number

  constructor(
    private readonly state: SharedState,
    private readonly question: Question,
    private readonly meanwhile: () => void,
  ) {
    this.server = state.figures[Figure.server]
  }

  /** The error when no answer can come; null while one may come. `slept` is false for the first look. */
  look(slept: boolean): Error | null {
    const { state, question } = this
    const { figures, registry } = state
    this.meanwhile()
    this.server = Math.max(this.server, figures[Figure.server])
    const isClosed = figures[Figure.server] === CLOSED && question.ask !== 'close' // closing waits for its own end
    if (!isClosed && !(slept && this.server > 0 && registry.look(this.server))) return null
    const call = CALLS[question.ask] ?? question.ask
    return new PoolError(`${call}: the pool is closed, or the thread that made it has ended; create another`)
  }
}
