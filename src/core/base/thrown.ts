// Values that were thrown: by the driver, or any value by a callback of the program, which may return one instead.

import { describe } from './bytes.js'
import { CudaError, DeviceLostError } from './errors.js'

/** Whether the driver refused a call, or the device is lost; other errors are a program's or ours. */
export function isDriverError(error: unknown): error is CudaError | DeviceLostError {
  return error instanceof CudaError || error instanceof DeviceLostError
}

/** The message of a value that was thrown. Never throws itself, as a getter or a proxy might. */
export function thrownText(thrown: unknown): string {
  try {
    const message = (thrown as Partial<Error> | undefined | null)?.message
    return typeof message === 'string' ? message : describe(thrown)
  } catch {
    return 'a value that cannot be shown'
  }
}

/**
 * Whether a callback that must not be asynchronous returned a promise. The caller gets an error for that. The
 * promise's own error is handled here, so that it does not end the process.
 */
export function isUnwantedPromise(returned: unknown): boolean {
  try {
    Promise.prototype.then.call(returned, undefined, () => {}) // throws for anything but a promise
    return true
  } catch {
    return false
  }
}
