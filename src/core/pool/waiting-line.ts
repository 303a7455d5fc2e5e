// Waits for memory: `pool.whenAvailable`.

import { setImmediate } from 'node:timers/promises'
import { describe } from '../base/bytes.js'
import { checkOptionNames } from '../base/option-names.js'
import { untilDone } from '../order/polling.js'

/** Options of `pool.whenAvailable`. */
export interface WaitOptions {
  /** ends the wait when it is aborted; default none */
  readonly signal?: AbortSignal
}

/** Throws TypeError for a bad or unknown option. */
export function checkWaitOptions(options: WaitOptions): void {
  checkOptionNames('whenAvailable', options, ['signal'])
  const { signal } = options
  if (signal === undefined || typeof signal?.throwIfAborted === 'function') return
  throw new TypeError(
    `whenAvailable: signal must be an AbortSignal, not ${describe(signal)}; pass controller.signal of an AbortController`,
  )
}

interface Waiter {
  readonly signal: AbortSignal | undefined
  readonly reject: (reason: unknown) => void
}

/** The calls of a pool's `whenAvailable` in this thread, which come in turn. */
export class WaitingLine {
  private last: Promise<void> = Promise.resolve()
  /** those whose wait has not ended */
  private readonly waiters = new Set<Waiter>()

  /** `mostMs` is the most milliseconds between two looks. */
  constructor(private readonly mostMs?: number) {}

  /**
   * Resolves once it is the caller's turn and `hasRoom` returns true. Rejects with its error, and, in turn or
   * not, with the reason of `signal` when it is aborted.
   */
  wait(hasRoom: () => boolean, signal: AbortSignal | undefined): Promise<void> {
    return new Promise((resolve, reject) => {
      const waiter = { signal, reject }
      this.waiters.add(waiter)
      const isOver = () => {
        this.endAborted()
        return !this.waiters.has(waiter) || hasRoom()
      }
      // The waiter before has the next turn of the event loop for its allocation.
      const turn = this.last.then(() => setImmediate()).then(() => untilDone(isOver, true, this.mostMs))
      this.last = turn.then(resolve, reject).finally(() => this.waiters.delete(waiter))
    })
  }

  /** The waiter whose turn it is looks at all signals: with a listener for each, Node would warn of a leak. */
  private endAborted(): void {
    for (const waiter of this.waiters) {
      if (waiter.signal?.aborted !== true) continue
      this.waiters.delete(waiter)
      waiter.reject(waiter.signal.reason)
    }
  }
}
