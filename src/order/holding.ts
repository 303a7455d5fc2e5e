import type { OrderedStream } from './ordered-stream.js'

/** The memory that a pool keeps for a capture, and then for its graph. */
export interface Holding {
  /** true once the pool was closed and the memory is gone */
  readonly lost: boolean
  /** true while the pool sleeps: the memory has addresses, and nothing behind them */
  readonly asleep: boolean
  /** The graph can no longer be launched, or was never made. Its launches were submitted to these streams. */
  release(streams: readonly OrderedStream[]): void
}

/** Stands in graphs for memory whose address captured work has seen; the graph cannot be launched while it sleeps. */
export function holdingWhile(isAsleep: () => boolean): Holding {
  return {
    lost: false,
    get asleep() {
      return isAsleep()
    },
    release: () => {},
  }
}
