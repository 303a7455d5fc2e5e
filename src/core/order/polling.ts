import { setImmediate, setTimeout } from 'node:timers/promises'

const EAGER_POLLS = 50
const POLL_MS = 1

/** How `untilDone` waits. */
interface Polling {
  /** ends the wait when it is aborted */
  readonly signal?: AbortSignal | undefined
  /** false: polls every millisecond from the start, and does not keep Node's process alive (true) */
  readonly keepAlive?: boolean
  /** most milliseconds between two polls (1) */
  readonly mostMs?: number | undefined
}

/**
 * Resolves once `done` returns true, and lets Node work in between. It calls `done` at every turn of the event loop
 * at first, then every millisecond, or ever more rarely if `mostMs` is more than 1. Rejects with the error of `done`,
 * and with the reason of `signal`.
 */
export async function untilDone(done: () => boolean, options: Polling = {}): Promise<void> {
  const { signal, keepAlive = true, mostMs = POLL_MS } = options
  let pollMs = POLL_MS
  for (let polls = 0; ; polls++) {
    signal?.throwIfAborted()
    if (done()) return
    if (keepAlive && polls < EAGER_POLLS) await setImmediate()
    else {
      await setTimeout(pollMs, undefined, { ref: keepAlive })
      pollMs = Math.min(2 * pollMs, mostMs)
    }
  }
}
