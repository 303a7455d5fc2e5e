// A simulated device with clocks, for the tests of this folder. Work runs as soon as its dependencies allow, so that
// a test holds back exactly the work that is to stay pending.

import { Context } from '../driver/context.js'
import type { SimulatedOptions } from '../driver/simulated/options.js'
import { SimulatedDriver } from '../driver/simulated/simulated-driver.js'
import { Clocks } from './clocks.js'
import { Event } from './event.js'
import { Stream } from './stream.js'

export class TestOrder {
  readonly driver: SimulatedDriver
  readonly context: Context
  readonly clocks: Clocks

  /** With options, opens a driver of its own; with a driver, opens that driver's device once more. */
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
   * Keeps work that is submitted to `stream` from now on from completing, until the returned function is called or
   * the host waits.
   */
  hold(stream: Stream): () => void {
    this.context.activate()
    const ticket = this.driver.holdOperation(stream.handle)
    return () => this.driver.releaseThrough(stream.handle, ticket)
  }

  /** How often a driver function has been called. */
  calls(name: string): number {
    return this.driver.calls.get(name) ?? 0
  }
}

/** An order, and the clocks of a second thread of the same device. */
export function twoThreads() {
  const order = new TestOrder()
  const here = order.createStream()
  const there = new Clocks(Context.open(order.driver, 0), order.clocks.share())
  return { order, clocks: order.clocks, there, here, hold: () => order.hold(here) }
}

/** The second thread's object for a stream of the first. */
export function borrow(clocks: Clocks, stream: Stream): Stream {
  return Stream.borrow(clocks, structuredClone(stream.share()))!
}

/** `later` waits for all work submitted to `earlier`. */
export function signal(earlier: Stream, later: Stream): void {
  using event = new Event(earlier.context)
  event.record(earlier)
  later.wait(event)
}
