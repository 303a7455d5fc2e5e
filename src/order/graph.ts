import type { Clocks } from './clocks.js'
import type { GraphMemory } from './graph-memory.js'
import type { Stream } from './stream.js'

/** Captured work that can be launched again and again. The memory that it uses stays where it is until it is closed. */
export class Graph implements Disposable {
  /** Made by `device.capture(stream, work)` or `stream.endCapture()`. */
  constructor(
    private readonly clocks: Clocks,
    private executable: number,
    private readonly memory: GraphMemory,
  ) {
    clocks.graphs.add(this)
  }

  /**
   * Submits all of it to `stream`, of the same device, and returns at once. A launch is work of that stream like any other,
   * and comes after earlier launches of the same graph. Throws PoolError for a closed graph or pool.
   */
  launch(stream: Stream): void {
    this.memory.note('launch', stream)
    const driver = this.clocks.context.activate()
    stream.submit('launch', handle => driver.cuGraphLaunch(this.executable, handle))
  }

  /**
   * Launches already submitted still complete; then the memory goes back to its pools, that of buffers still held when they
   * are freed. A second close does nothing, nor does one after the device was closed.
   */
  close(): void {
    const { context } = this.clocks
    if (this.executable === 0 || context.released) return
    context.giveBack(driver => driver.cuGraphExecDestroy(this.executable))
    this.executable = 0
    this.clocks.graphs.delete(this)
    this.memory.close()
  }

  /** The same as `close()`. */
  [Symbol.dispose](): void {
    this.close()
  }
}
