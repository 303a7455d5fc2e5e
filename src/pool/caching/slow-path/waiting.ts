import type { Mark } from '../../../order/clocks.js'

/**
 * Work that may have to wait for the GPU. Before each wait it yields the marks that it is about to wait for. The
 * caller can do something else until those marks are complete; the wait that follows then takes no time.
 */
export type Waiting<R> = Generator<readonly Mark[], R, void>

/** Runs such work to its end. The work waits on the host itself. */
export function finish<R>(work: Waiting<R>): R {
  for (;;) {
    const step = work.next()
    if (step.done === true) return step.value
  }
}
