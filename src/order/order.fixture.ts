// A simulated device with clocks, for the tests of this folder. Work runs as soon as its dependencies allow, so that
// a test holds back exactly what it wants to be pending.

import { Context } from '../driver/context.js'
import type { SimulatedOptions } from '../driver/simulated/options.js'
import { SimulatedDriver } from '../driver/simulated/simulated-driver.js'
import { Clocks } from './clocks.js'
import { Stream } from './stream.js'

export class TestOrder {
  readonly driver: SimulatedDriver
  readonly context: Context
  readonly clocks: Clocks

  /** With options a device of its own; with a driver one more of that. */
  constructor(options: SimulatedOptions | SimulatedDriver = {}, ordinal = 0) {
    this.driver = options instanceof SimulatedDriver ? options : new SimulatedDriver({ progress: 'eager', ...options })
    this.driver.cuInit()
    this.context = Context.open(this.driver, ordinal)
    this.clocks = new Clocks(this.context)
  }

  createStream(): Stream {
    return Stream.create(this.clocks)
  }

  /**
   * Lets nothing that is submitted to `stream` from now on complete, until the returned function is called or the
   * host waits.
   */
  hold(stream: Stream): () => void {
    this.context.activate()
    const ticket = this.driver.holdOperation(stream.handle)
    return () => this.driver.releaseThrough(stream.handle, ticket)
  }

  /** How often a driver function was called so far. */
  calls(name: string): number {
    return this.driver.calls.get(name) ?? 0
  }
}
