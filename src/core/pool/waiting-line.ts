// Waits for memory: `pool.whenAvailable`.

import { setImmediate } from 'node:timers/promises'
import { untilDone } from '../order/polling.js'
import { onAbort, tooManyWait } from '../order/wait-options.js'

/** The calls of a pool's `whenAvailable` in this thread, which come in turn. */
export class WaitingLine {
  /** by pool; a field of the pool would be one more of each wrapper */
  private static readonly lines = new WeakMap<object, WaitingLine>()
  private last: Promise<void> = Promise.resolve()
  private waiting = 0

  private constructor(private readonly mostMs: number | undefined) {}

  /** The line of a pool, which looks for room at least every `mostPollMs` milliseconds. */
  static of(pool: { readonly mostPollMs: number | undefined }): WaitingLine {
    const line = WaitingLine.lines.get(pool) ?? new WaitingLine(pool.mostPollMs)
    WaitingLine.lines.set(pool, line)
    return line
  }

  /**
   * Resolves once it is the caller's turn and `hasRoom` returns true. Rejects with its error, and, in turn or
   * not, with the reason of `signal` when it is aborted. Rejects with PoolError if `mostWaiting` wait already.
   */
  async wait(hasRoom: () => boolean, signal: AbortSignal | undefined, mostWaiting: number): Promise<void> {
    signal?.throwIfAborted()
    if (this.waiting >= mostWaiting && !(this.waiting === 0 && hasRoom())) {
      throw tooManyWait('whenAvailable', this.waiting, 'memory')
    }
    this.waiting++
    return new Promise<void>((resolve, reject) => {
      let isAborted = false
      const forget = onAbort(signal, () => {
        isAborted = true
        reject(signal!.reason)
      })
      const isOver = () => isAborted || hasRoom()
      // The waiter before has the next turn of the event loop for its allocation.
      const turn = this.last.then(() => setImmediate()).then(() => untilDone(isOver, { mostMs: this.mostMs }))
      this.last = turn.then(resolve, reject).finally(forget)
    }).finally(() => this.waiting--)
  }
}
