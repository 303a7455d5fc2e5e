// How a thread asks the pool server. A call that asks can be cut short before it has the answer. The next call of the
// thread takes that answer first, and undoes what it granted.

import { PoolError } from '../../base/errors.js'
import { checkStack } from '../../base/stack.js'
import type { Clocks } from '../../order/clocks.js'
import { GROUP_CALLS, undoing } from './groups/group-question.js'
import type { LockedHeaps } from './locked-heaps.js'
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
  ...GROUP_CALLS,
}

export class ServerClient {
  /** the last request */
  private asked: Question | null = null
  /** number of the pool server's thread, once a call has seen it */
  private server = 0

  constructor(
    private readonly state: SharedState,
    private readonly clocks: Clocks,
    private readonly heaps: LockedHeaps,
    /** runs each millisecond while the thread waits */
    private readonly meanwhile: () => void,
  ) {}

  /** Returns the answer; throws what the pool server threw, or PoolError when it has ended. */
  ask(question: Question): unknown {
    const { state } = this
    checkStack()
    // Where an earlier call was cut short, this thread may still hold what the pool server needs.
    state.caches.biasedLock.leave()
    state.lock.dropStale()
    state.groupTable.dropStale()
    this.clocks.slots.dropStale()
    this.noteServer() // the pool may be closed before the first look
    const meanwhile = (slept: boolean) => this.checkServer(question, slept)
    if (state.channel.isLate(state.thread)) {
      const answer = state.channel.takeLate(state.thread, meanwhile)
      const { asked } = this
      if ((asked?.ask === 'close' || asked?.ask === 'leave') && answer !== null) return answer
      if (asked?.ask === 'allocate') this.giveBackUnseen(answer as number, asked.slot)
      this.asked = asked === null ? null : undoing(asked, answer)
      if (this.asked !== null) state.channel.ask(state.thread, this.asked, meanwhile)
    }
    this.asked = question
    return state.channel.ask(state.thread, question, meanwhile)
  }

  /**
   * Does the thread's periodic work, and checks that the pool server lives. The error when no answer can come; null
   * while one may come. `slept` is false for the first look.
   */
  private checkServer({ ask }: Question, slept: boolean): Error | null {
    const { figures, registry } = this.state
    this.meanwhile()
    this.noteServer()
    const isClosed = figures[Figure.server] === CLOSED && ask !== 'close' // closing waits for its own end
    if (!isClosed && !(slept && this.server > 0 && registry.hasDied(this.server))) return null
    return new PoolError(
      `${CALLS[ask] ?? ask}: the pool is closed, or the thread that made it has ended; create another`,
      'ERR_POOL_CLOSED',
    )
  }

  private noteServer(): void {
    this.server = Math.max(this.server, this.state.figures[Figure.server])
  }

  /** Whether the call that asked last was cut short before it had its answer. */
  get mayStillBeHeard(): boolean {
    return this.state.channel.isLate(this.state.thread)
  }

  /** Frees a block that the pool server handed to a call which was cut short: no buffer of it was made. */
  private giveBackUnseen(record: number, slot: number): void {
    if (record !== 0) this.heaps.giveBack(record, slot, this.clocks.coveringSoon(slot))
  }

  /**
   * Whether the pool server has ended, by itself or with the thread that made the pool. Then no memory is given back
   * any more.
   */
  get isLost(): boolean {
    const { figures, registry, channel } = this.state
    const server = figures[Figure.server]
    return server > 0 && (channel.failure !== null || registry.hasDied(server))
  }
}
