import { setImmediate, setTimeout } from 'node:timers/promises'

const EAGER_POLLS = 50
const POLL_MS = 1

/** Asks `done` until it says yes, letting Node work in between: at first at every turn, then every millisecond. */
export async function untilDone(done: () => boolean): Promise<void> {
  for (let polls = 0; !done(); polls++) {
    await (polls < EAGER_POLLS ? setImmediate() : setTimeout(POLL_MS))
  }
}
