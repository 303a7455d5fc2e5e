import { setImmediate, setTimeout } from 'node:timers/promises'

const EAGER_POLLS = 50
const POLL_MS = 1

/**
 * Asks `done` until it says yes, letting Node work in between: at first at every turn, then every millisecond. What
 * nobody awaits, with `keepAlive` false, is asked every millisecond, and not any more once nothing else keeps Node
 * alive.
 */
export async function untilDone(done: () => boolean, keepAlive = true): Promise<void> {
  for (let polls = 0; !done(); polls++) {
    await (keepAlive && polls < EAGER_POLLS ? setImmediate() : setTimeout(POLL_MS, undefined, { ref: keepAlive }))
  }
}
