import { PoolError } from '../../base/errors.js'
import type { Question } from './keeper.js'
import { CLOSED, Figure, type SharedState } from './shared-state.js'

/** While a thread waits for an answer of the keeper: does what the thread has to do meanwhile, and looks whether an answer can come. */
export class KeeperWatch {
  private keeper: number

  constructor(
    private readonly state: SharedState,
    private readonly question: Question,
    private readonly meanwhile: () => void,
  ) {
    this.keeper = state.figures[Figure.keeper]
  }

  /** The reason why no answer will come; null while one may. `slept` is false for the first look. */
  look(slept: boolean): Error | null {
    const { state, question } = this
    const { figures, registry } = state
    this.meanwhile()
    this.keeper = Math.max(this.keeper, figures[Figure.keeper])
    const isClosed = figures[Figure.keeper] === CLOSED && question.ask !== 'close' // closing waits for its own end
    if (!isClosed && !(slept && this.keeper > 0 && registry.look(this.keeper))) return null
    return new PoolError(`${question.ask}: the pool is closed, or the thread that made it has ended; make another`)
  }
}
