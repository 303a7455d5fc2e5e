import type { Keeper } from './keeper.js'

/** The keepers of several pools in one thread. A pool that cannot be served any more does not end the others. */
export class Keepers {
  private readonly keepers = new Set<Keeper>()

  /** `onFailed` is called before the threads that use a failed pool are told why. */
  constructor(private readonly onFailed: () => void) {}

  get count(): number {
    return this.keepers.size
  }

  add(keeper: Keeper): void {
    this.keepers.add(keeper)
  }

  /** A round of each; returns how long all may be left alone, in milliseconds, unless the bell rings. */
  serve(now = performance.now()): number {
    let restMs = Infinity
    for (const keeper of this.keepers) {
      try {
        keeper.serve(now)
        if (keeper.closed) this.keepers.delete(keeper)
        else restMs = Math.min(restMs, keeper.restMs(now))
      } catch (error) {
        this.keepers.delete(keeper)
        this.onFailed()
        keeper.fail(error)
      }
    }
    return restMs
  }
}
