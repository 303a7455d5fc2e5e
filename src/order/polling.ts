import { setImmediate, setTimeout } from 'node:timers/promises'

const EAGER_POLLS = 50
const POLL_MS = 1

/**
 * Resolves once `done` returns true, and lets Node work in between. It calls `done` at every turn of the event loop
 * at first, then every millisecond. With `keepAlive` false it calls every millisecond, and does not keep Node's
 * process alive.
 */
export async function untilDone(done: () => boolean, keepAlive = true): Promise<void> {
  for (let polls = 0; !done(); polls++) {
    await (keepAlive && polls < EAGER_POLLS ? setImmediate() : setTimeout(POLL_MS, undefined, { ref: keepAlive }))
  }
}
