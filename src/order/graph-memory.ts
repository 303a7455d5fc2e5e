import { PoolError } from '../base/errors.js'
import type { Clocks } from './clocks.js'
import type { Stream } from './stream.js'

/** What a pool keeps for a capture, and then for its graph. */
export interface Holding {
  /** true once the pool was closed and the memory is gone */
  readonly lost: boolean
  /** The graph will not be launched any more, or never came to be: its launches were submitted to these streams. */
  release(streams: readonly Stream[]): void
}

/**
 * The memory that a graph uses: it stays where it is until this is closed. Made by `pool.endCapture(stream)` for a graph that
 * another library captured, which tells its launches here and closes this when it destroys the graph.
 */
export class GraphMemory implements Disposable {
  private readonly launchedOn = new Set<Stream>()
  private open = true

  constructor(
    private readonly clocks: Clocks,
    private readonly holdings: ReadonlySet<Holding>,
  ) {}

  /** The graph was launched on `stream`: `close` then gives nothing back before what was submitted to it has completed. */
  noteLaunch(stream: Stream): void {
    this.note('noteLaunch', stream)
  }

  /** `noteLaunch` in the name of `call`. */
  note(call: string, stream: Stream): void {
    if (!this.open) throw new PoolError(`${call}: the graph is closed; capture another`)
    for (const { lost } of this.holdings) {
      if (lost) throw new PoolError(`${call}: a pool that the graph has memory of is closed; capture it again`)
    }
    if (stream?.clocks !== this.clocks || !('slot' in stream)) {
      throw new PoolError(`${call}: the stream belongs to another device, or is no stream`)
    }
    stream.checkOpen(call)
    this.launchedOn.add(stream)
  }

  /** The graph is destroyed: its memory goes back to the pools once its launches have completed, that of buffers still held when they are freed. */
  close(): void {
    if (!this.open) return
    this.open = false
    const streams = [...this.launchedOn]
    for (const holding of this.holdings) holding.release(streams)
  }

  /** The same as `close()`. */
  [Symbol.dispose](): void {
    this.close()
  }
}
