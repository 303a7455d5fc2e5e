import { describe } from '../base/bytes.js'
import { checkOptionNames } from '../base/option-names.js'

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
