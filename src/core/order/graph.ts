import { disposeOf } from '../base/disposal.js'
import { showAsText } from '../base/readable.js'
import type { Clocks, OpenGraph } from './clocks.js'
import type { GraphMemory } from './graph-memory.js'
import type { Holding } from './holding.js'
import type { OrderedStream } from './ordered-stream.js'

/**
 * Captured work that can be launched repeatedly. The memory that it uses stays where it is until the graph is closed.
 * `R` is the type of `result`.
 */
export class Graph<R = unknown> implements OpenGraph, Disposable {
  /** Made by `device.capture(stream, work)` or `stream.endCapture()`. */
  constructor(
    private readonly clocks: Clocks,
    private executable: number,
    private readonly memory: GraphMemory,
    private readonly origin: OrderedStream,
    /**
     * the value that `work` of `device.capture` returned, such as its output buffers; undefined after `endCapture`
     */
    readonly result: R,
  ) {
    clocks.graphs.add(this)
  }

  /**
   * Submits all captured work to `stream`, of the same device, by default the stream of the capture, and returns at
   * once. A launch is ordinary work of that stream, and comes after earlier launches of the same graph. A graph of a
   * group comes after all earlier launches of the group. Throws PoolError for a closed graph, pool or stream, and in a
   * group that refuses launches whose order is not known.
   */
  launch(stream = this.origin): void {
    this.memory.note('launch', stream)
    const { executable } = this
    const driver = this.clocks.context.activate()
    this.memory.submit(stream, handle => driver.cuGraphLaunch(executable, handle))
  }

  /**
   * Destroys the graph. Launches already submitted still complete, then the memory goes back to its pools; memory of
   * buffers that are still held goes back when they are freed. A second close does nothing, nor does a close after
   * the device was closed.
   */
  close(): void {
    const { context } = this.clocks
    if (this.executable === 0 || context.released) return
    context.giveBack(driver => driver.cuGraphExecDestroy(this.executable))
    this.executable = 0
    this.clocks.graphs.delete(this)
    this.memory.close()
  }

  /**
   * Whether the graph needs this memory.
   * @internal
   */
  keeps(holding: Holding): boolean {
    return this.memory.keeps(holding)
  }

  /** One line for people: `Graph { open }` or `Graph { closed }`; console.log shows it. */
  toString(): string {
    return `Graph { ${this.state} }`
  }

  /** The plain values that JSON.stringify writes. */
  toJSON(): object {
    return { device: this.clocks.context.ordinal, state: this.state }
  }

  private get state(): string {
    return this.executable === 0 || this.clocks.context.released ? 'closed' : 'open'
  }

  /** `close()` at the end of a `using` block. Where that throws, this warns. */
  [Symbol.dispose](): void {
    disposeOf(this, () => this.close())
  }
}

showAsText(Graph)
