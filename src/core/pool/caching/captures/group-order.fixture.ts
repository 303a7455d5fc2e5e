// Threads that share the order of a group, all in one thread: each has clocks, a lock and a stream of its own.

import { Context } from '../../../driver/context.js'
import { Capture } from '../../../order/capture.js'
import { Clocks } from '../../../order/clocks.js'
import type { Graph } from '../../../order/graph.js'
import { TestOrder } from '../../../order/order.fixture.js'
import { Stream } from '../../../order/stream.js'
import { RobustLock } from '../../../threads/robust-lock.js'
import type { ThreadRegistry } from '../../../threads/thread-registry.js'
import { GroupOrder } from './group-order.js'

class LaunchingThread {
  readonly registry: ThreadRegistry
  readonly lock: RobustLock
  readonly order: GroupOrder
  readonly stream: Stream
  private graphs = 0

  constructor(
    readonly clocks: Clocks,
    state: Float64Array,
    lockWords: Int32Array,
    refuses: boolean,
  ) {
    this.registry = clocks.slots['registry']
    this.lock = new RobustLock(lockWords, 0, this.registry, clocks.slots.me)
    this.order = new GroupOrder(clocks, { refuses, poison: null, state, lock: this.lock })
    this.stream = Stream.create(clocks)
  }

  /** A graph of the group, without work: its number says which thread made it. */
  newGraph(): Graph {
    const number = 10 * this.clocks.slots.me + this.graphs++
    const group = { order: this.order, begin: () => number, checkEnd: () => {}, end: () => {} }
    Capture.begin('beginCapture', this.stream, 'threadLocal', group)
    return this.stream.endCapture()
  }

  /** All that a thread leaves when it dies. Other threads find out by themselves. */
  die(): void {
    this.registry.bury(this.clocks.slots.me)
  }
}

/** A group of two threads. */
export function sharedGroup(refuses = false) {
  const device = new TestOrder()
  const order = device.clocks.share()
  const state = new Float64Array(new SharedArrayBuffer(8 * GroupOrder.WORDS))
  const lockWords = new Int32Array(new SharedArrayBuffer(4))
  /** A thread with a view of the state. */
  const attachTo = (view: Float64Array) =>
    new LaunchingThread(new Clocks(Context.open(device.driver, 0), order), view, lockWords, refuses)
  const attach = () => attachTo(state)
  return { device, state, lockWords, attach, attachTo, here: attach(), there: attach() }
}

/** Does something each time a function of the driver is about to be called, until the returned function is called. */
export function before(device: TestOrder, name: 'cuGraphLaunch' | 'cuEventRecord', act: () => void): () => void {
  const driver = device.driver as unknown as Record<string, (...args: unknown[]) => unknown>
  const original = driver[name]
  driver[name] = (...args) => {
    act()
    return original.apply(driver, args)
  }
  return () => {
    delete driver[name]
  }
}
