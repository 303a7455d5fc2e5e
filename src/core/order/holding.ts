import type { OrderedStream } from './ordered-stream.js'

/** The memory that a pool keeps for a capture, and then for its graph. */
export interface Holding {
  /** true once the pool was closed, or the buffer freed, and while it is shorter: the memory is gone */
  readonly lost: boolean
  /** true while the pool sleeps: the memory has addresses, and nothing behind them */
  readonly asleep: boolean
  /** The graph can no longer be launched, or was never made. Its launches were submitted to these streams. */
  release(streams: readonly OrderedStream[]): void
}

/**
 * Stands in graphs for memory whose address captured work has seen. The graph cannot be launched while the memory
 * sleeps, or once it is gone.
 */
export function holdingWhile(isAsleep: () => boolean, isLost: () => boolean = () => false): Holding {
  return {
    get lost() {
      return isLost()
    },
    get asleep() {
      return isAsleep()
    },
    release: () => {},
  }
}
