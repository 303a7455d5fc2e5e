import { setImmediate, setTimeout } from 'node:timers/promises'

const EAGER_POLLS = 50
const POLL_MS = 1

/**
 * Resolves once `done` returns true, and lets Node work in between. It calls `done` at every turn of the event loop
 * at first, then every millisecond, or ever more rarely if `mostMs` is more than 1. With `keepAlive` false it calls
 * every millisecond, and does not keep Node's process alive.
 */
export async function untilDone(done: () => boolean, keepAlive = true, mostMs = POLL_MS): Promise<void> {
  let pollMs = POLL_MS
  for (let polls = 0; !done(); polls++) {
    if (keepAlive && polls < EAGER_POLLS) {
      await setImmediate()
      continue
    }
    await setTimeout(pollMs, undefined, { ref: keepAlive })
    pollMs = Math.min(2 * pollMs, mostMs)
  }
}
