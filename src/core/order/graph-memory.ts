import { WrongTypeError } from '../base/argument-errors.js'
import { describe } from '../base/bytes.js'
import { disposeOf } from '../base/disposal.js'
import { PoolError } from '../base/errors.js'
import { showAsText } from '../base/readable.js'
import type { Clocks } from './clocks.js'
import type { Holding } from './holding.js'
import type { OrderedStream } from './ordered-stream.js'

/**
 * The memory of a graph, which stays where it is until `close`. `pool.endCapture(stream)` makes it for a graph that
 * another library captured. That library's user calls `noteLaunch` at each launch, and `close` when the graph is
 * destroyed.
 */
export class GraphMemory implements Disposable {
  private readonly launchedOn = new Set<OrderedStream>()
  private open = true

  constructor(
    private readonly clocks: Clocks,
    private readonly holdings: ReadonlySet<Holding>,
  ) {}

  /**
   * Call after the graph was launched on `stream`: `close` then gives nothing back before the stream's work has
   * completed. Throws PoolError for a closed graph, stream or pool, or a stream of another device.
   */
  noteLaunch(stream: OrderedStream): void {
    this.note('noteLaunch', stream)
  }

  /**
   * `noteLaunch` in the name of `call`.
   * @internal
   */
  note(call: string, stream: OrderedStream): void {
    if (!this.open) throw new PoolError(`${call}: the graph is closed; capture another`)
    for (const { lost, asleep } of this.holdings) {
      if (lost) {
        throw new PoolError(
          `${call}: a pool or buffer that the graph uses is closed, freed or shorter; capture it again`,
          'ERR_BUFFER_FREED',
        )
      }
      if (asleep) {
        throw new PoolError(
          `${call}: a pool or buffer that the graph uses is asleep; await its wake() first`,
          'ERR_POOL_ASLEEP',
        )
      }
    }
    if (typeof stream !== 'object' || stream === null || !('clocks' in stream && 'slot' in stream)) {
      throw new WrongTypeError(`${call}: stream must be a Stream, not ${describe(stream)}`)
    }
    if (stream.clocks !== this.clocks) {
      throw new PoolError(`${call}: the stream belongs to another device; pass one of this`, 'ERR_OTHER_DEVICE')
    }
    stream.checkOpen(call)
    this.launchedOn.add(stream)
  }

  /**
   * Whether the graph needs this memory.
   * @internal
   */
  keeps(holding: Holding): boolean {
    return this.holdings.has(holding)
  }

  /**
   * The graph is destroyed. Its memory goes back to the pools once its launches have completed; memory of buffers
   * that are still held goes back when they are freed. A second close does nothing.
   */
  close(): void {
    if (!this.open) return
    this.open = false
    const streams = [...this.launchedOn]
    for (const holding of this.holdings) holding.release(streams)
  }

  /** `close()` at the end of a `using` block. Where that throws, this warns. */
  [Symbol.dispose](): void {
    disposeOf(this, () => this.close())
  }

  /** One line for people: `GraphMemory { open }` or `GraphMemory { closed }`; console.log shows it. */
  toString(): string {
    return `GraphMemory { ${this.open ? 'open' : 'closed'} }`
  }

  /** The plain values that JSON.stringify writes. */
  toJSON(): object {
    return { device: this.clocks.context.ordinal, closed: !this.open }
  }
}

showAsText(GraphMemory)
