// A thread that shares a device, modelled in this thread: it has its own clocks, and calls the driver in its own
// name.

import { CU_STREAM_LEGACY_DEFAULT } from '../src/core/driver/constants.js'
import { Context } from '../src/core/driver/context.js'
import type { Driver } from '../src/core/driver/driver.js'
import { ThreadState } from '../src/core/driver/simulated/thread-state.js'
import { borrowed } from '../src/core/order/borrowed.js'
import { Clocks } from '../src/core/order/clocks.js'
import { Event } from '../src/core/order/event.js'
import type { SharedOrder } from '../src/core/order/shared-order.js'
import { Stream } from '../src/core/order/stream.js'
import type { CachingPool } from '../src/core/pool/caching/caching-pool.js'
import { SharedHostPool } from '../src/core/pool/host/shared-host-pool.js'
import type { SharedPool } from '../src/core/pool/shared/shared-pool.js'
import type { Point, Queue } from './call-order.js'
import type { ObservedDriver } from './observed-driver.js'
import type { Front } from './shared-pools.js'

export class SharedThread {
  readonly context: Context
  readonly clocks: Clocks
  readonly defaultStream: Stream
  /** by name: this thread's stream objects */
  readonly views = new Map<number, Stream>()
  front: Front | null = null
  /** a pool of its own, not shared */
  own: CachingPool | null = null
  isDead = false

  /** With the order of its own device, or of another thread's. */
  constructor(
    readonly name: number,
    driver: ObservedDriver,
    order: SharedOrder | null,
  ) {
    this.context = Context.open(inNameOf(new ThreadState(), driver), 0)
    this.clocks = new Clocks(this.context, order)
    this.defaultStream =
      order === null
        ? new Stream(this.clocks, CU_STREAM_LEGACY_DEFAULT, false)
        : borrowed(this.clocks, this.clocks.handles.indexOf(CU_STREAM_LEGACY_DEFAULT))!
    this.views.set(0, this.defaultStream)
  }

  /** The queue of this thread's stream in the exact order. */
  queueOf(view: Stream): Queue {
    return (this.context.activate() as ObservedDriver).queueOf(view.handle)
  }

  /** The point that this thread's stream has reached. */
  pointOf(view: Stream): Point {
    return (this.context.activate() as ObservedDriver).pointOf(view.handle)
  }

  /** Orders all later work of `later` after all work of `earlier` so far. */
  order(earlier: Stream, later: Stream): void {
    const event = new Event(this.context)
    try {
      event.record(earlier)
      later.wait(event)
    } finally {
      event.close()
    }
  }

  /** The thread is dead, which other threads find out by themselves. */
  die(): void {
    this.isDead = true
    const { slots } = this.clocks
    slots['registry'].bury(slots.me)
    const front = this.front!
    const pool = (front instanceof SharedHostPool ? front['blocks'] : front) as SharedPool
    const { registry, thread } = pool['state']
    registry.bury(thread)
  }
}

/** A driver whose calls are made by another thread. */
export function inNameOf(thread: ThreadState, driver: ObservedDriver): Driver {
  const calls = new Map<string | symbol, unknown>()
  return new Proxy(driver, {
    get: (target, name) => {
      const value: unknown = Reflect.get(target, name)
      if (typeof value !== 'function') return value
      const call =
        calls.get(name) ??
        ((...args: unknown[]): unknown => target.actAs(thread, () => Reflect.apply(value, target, args)))
      calls.set(name, call)
      return call
    },
  })
}
