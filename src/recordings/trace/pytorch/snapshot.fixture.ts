// Snapshots of a few events for tests, and the check of their refusals.

import assert from 'node:assert/strict'
import { FormatError } from '../../../core/base/errors.js'

export const BASE = 0x7f0400000000

export const event = (action: string, addr: number, size: number, more: object = {}) => ({
  action,
  addr,
  size,
  stream: 0,
  time_us: 0,
  ...more,
})

/** A snapshot of these events, with these segments at their end. */
export function snapshot(events: unknown, segments: unknown = [], more: object = {}): Record<string, unknown> {
  return { segments, device_traces: [events], ...more }
}

/** Asserts that `read` throws a FormatError with this message, in one line. */
export function refused(read: () => unknown, message: RegExp): void {
  assert.throws(read, (error: Error) => {
    assert(error instanceof FormatError, `${error.name}: ${error.message}`)
    assert.match(error.message, message)
    assert(!error.message.includes('\n'), 'one line')
    return true
  })
}
