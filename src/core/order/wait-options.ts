// The option of all calls that wait.

import { OutOfRangeError, WrongTypeError } from '../base/argument-errors.js'
import { describe } from '../base/bytes.js'
import { PoolError } from '../base/errors.js'
import { checkOptionNames } from '../base/option-names.js'

/** Options of the calls that wait, such as `pool.whenAvailable` and `stream.finished`. */
export interface WaitOptions {
  /** ends the wait when it is aborted, and the call rejects with its reason; a deadline is `AbortSignal.timeout(ms)` */
  readonly signal?: AbortSignal | undefined
}

/** Options of the calls that wait for memory in a line. */
export interface LineOptions extends WaitOptions {
  /** how many of the pool's calls may wait already; one more rejects at once with PoolError (Infinity) */
  readonly maxWaiting?: number | undefined
}

/**
 * The signal of the options. Asked first and once: a getter may do anything, and give another signal the next time.
 * Throws TypeError, in the name of `call`, for a bad or unknown option.
 */
export function signalOf(call: string, options: WaitOptions, others: readonly string[] = []): AbortSignal | undefined {
  checkOptionNames(call, options, ['signal', ...others])
  const { signal } = options
  const methods = [signal?.throwIfAborted, signal?.addEventListener, signal?.removeEventListener]
  if (signal === undefined || methods.every(method => typeof method === 'function')) return signal
  throw new WrongTypeError(
    `${call}: signal must be an AbortSignal, not ${describe(signal)}; pass controller.signal of an AbortController`,
  )
}

/** Throws RangeError, in the name of `call`, unless `maxWaiting` is a whole number or Infinity. */
export function checkMaxWaiting(call: string, maxWaiting: number): void {
  if (maxWaiting === Infinity || (Number.isInteger(maxWaiting) && maxWaiting >= 0)) return
  throw new OutOfRangeError(`${call}: maxWaiting must be a whole number or Infinity, not ${describe(maxWaiting)}`)
}

/** The error of a call that finds `waiting` others in its line, as many as may wait. */
export function tooManyWait(call: string, waiting: number, what: string): PoolError {
  const others = waiting === 1 ? '1 request waits' : `${waiting} requests wait`
  return new PoolError(
    `${call}: ${others} for ${what} already, the most by maxWaiting; try again later, or raise it`,
    'ERR_TOO_MANY_WAIT',
  )
}

/** What the abort of one signal ends. */
class Endings extends Set<() => void> {
  handleEvent(): void {
    for (const end of this) end()
  }
}

const endingsOf = new WeakMap<AbortSignal, Endings>()

/**
 * Calls `end` when `signal` is aborted, unless the result is called first. A signal has one listener for all, since
 * Node warns of a leak at more than ten.
 */
export function onAbort(signal: AbortSignal | undefined, end: () => void): () => void {
  if (signal === undefined) return () => {}
  const endings = endingsOf.get(signal) ?? new Endings()
  if (endings.size === 0) {
    endingsOf.set(signal, endings)
    signal.addEventListener('abort', endings, { once: true })
  }
  endings.add(end)
  return () => {
    if (endings.delete(end) && endings.size === 0) signal.removeEventListener('abort', endings)
  }
}
