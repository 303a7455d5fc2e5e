// A simulated device with clocks, for the tests of this folder. Work runs as soon as its dependencies allow, so that a
// test holds back exactly what it wants to be pending.

import { Context } from '../driver/context.js'
import type { SimulatedOptions } from '../driver/simulated/options.js'
import { SimulatedDriver } from '../driver/simulated/simulated-driver.js'
import { Clocks } from './clocks.js'
import { Stream } from './stream.js'

const NON_BLOCKING = 1

export class TestOrder {
  readonly driver: SimulatedDriver
  readonly context: Context
  readonly clocks: Clocks

  constructor(options: SimulatedOptions = {}) {
    this.driver = new SimulatedDriver({ progress: 'eager', ...options })
    this.driver.cuInit()
    this.context = Context.open(this.driver, 0)
    this.clocks = new Clocks(this.context)
  }

  createStream(): Stream {
    return new Stream(this.clocks, this.context.activate().cuStreamCreate(NON_BLOCKING), true)
  }

  /** Lets nothing that is submitted to `stream` from now on complete, until the returned function is called or the host waits. */
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
