// What a program's own callback has thrown, or returned instead: any value at all.

import { types } from 'node:util'
import { describe } from './bytes.js'

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
 * Whether a callback that must not be asynchronous returned a promise. The caller gets an error for that. So the
 * promise's own error, which nobody else can handle, does not end the process.
 */
export function isUnwantedPromise(returned: unknown): boolean {
  if (!types.isPromise(returned)) return false
  Promise.prototype.catch.call(returned, () => {})
  return true
}
