// Waits for memory: `pool.whenAvailable`.

import { setImmediate } from 'node:timers/promises'
import { untilDone } from '../order/polling.js'
import { onAbort } from '../order/wait-options.js'

/** The calls of a pool's `whenAvailable` in this thread, which come in turn. */
export class WaitingLine {
  private last: Promise<void> = Promise.resolve()

  /** `mostMs` is the most milliseconds between two looks. */
  constructor(private readonly mostMs?: number) {}

  /**
   * Resolves once it is the caller's turn and `hasRoom` returns true. Rejects with its error, and, in turn or
   * not, with the reason of `signal` when it is aborted.
   */
  async wait(hasRoom: () => boolean, signal: AbortSignal | undefined): Promise<void> {
    signal?.throwIfAborted()
    return new Promise((resolve, reject) => {
      let isAborted = false
      const forget = onAbort(signal, () => {
        isAborted = true
        reject(signal!.reason)
      })
      const isOver = () => isAborted || hasRoom()
      // The waiter before has the next turn of the event loop for its allocation.
      const turn = this.last.then(() => setImmediate()).then(() => untilDone(isOver, { mostMs: this.mostMs }))
      this.last = turn.then(resolve, reject).finally(forget)
    })
  }
}
