// The end of a `using` block. An error there would take the place of the error that ended the block, which Node shows
// as a SuppressedError without its text. So nothing is thrown: `close()` and `free()` throw.

import { isDriverError, thrownText } from './thrown.js'

const AGAIN_MS = 1000

/**
 * Calls `close` for `owner`. If it throws, a process warning says why. If the program can remove the cause, such as a
 * thread that still uses a pool, it is tried again each second while the program runs.
 */
export function disposeOf(owner: object, close: () => unknown): void {
  try {
    close()
  } catch (error) {
    const isTriedAgain = !isDriverError(error)
    warnOfDisposal(owner, error, isTriedAgain ? '. It is closed once that is possible' : '')
    if (!isTriedAgain) return
    const timer = setInterval(() => {
      try {
        close()
      } catch {
        return
      }
      clearInterval(timer)
    }, AGAIN_MS)
    timer.unref()
  }
}

/** The process warning for what a `using` block could not end. */
export function warnOfDisposal(owner: object, error: unknown, consequence: string): void {
  process.emitWarning(
    `the ${owner.constructor.name} was not closed at the end of its using block: ${thrownText(error)}${consequence}`,
    'PoolWarning',
  )
}
