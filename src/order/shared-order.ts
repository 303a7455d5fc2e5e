// What lies where in the memory that holds all of a device's order. It is one shared buffer from the start, so that
// other threads can be let in at any time; as long as there is one thread it takes no locks.

import { randomBytes } from 'node:crypto'
import { describe } from '../base/bytes.js'
import { PoolError } from '../base/errors.js'
import { Region } from '../base/region.js'
import { MOST_WORKERS, REGISTRY_WORDS } from '../threads/thread-registry.js'
import { MOST_STREAMS } from './vector-clocks.js'

/** Grows with each change of what lies where, or of what it means. */
const ORDER_VERSION = 3

/** Events of a thread that others can give back when it has died; beyond these it takes a few with it. */
const MOST_EVENTS = 64

/** What another thread needs to work with the same device's order; can be sent to it as it is. */
export interface SharedOrder {
  readonly version: number
  readonly buffer: SharedArrayBuffer
}

/** What a stream slot is. Each step is one store, after all that belongs to it was written. */
export const enum Life {
  /** no stream, and all work of the last one has completed */
  free = 0,
  open = 1,
  /**
   * about to be retired or suspended: nobody else calls the driver for it any more, and its last mark is being placed
   */
  closing = 2,
  /** captured, or kept idle by a capture: no marks, but the last one covers all that was submitted to it and run */
  suspended = 3,
  /** closed, and its last mark is not known complete yet */
  retired = 4,
}

export type OrderState = ReturnType<typeof layOut>

function layOut(region: Region) {
  return {
    /** slots that are or were in use are below this */
    limit: region.int32(1),
    lock: region.int32(1),
    /** 1 once the device was closed by the thread that opened it */
    closed: region.int32(1),
    registry: region.int32(REGISTRY_WORDS),
    /** by thread: one more than the slot that it calls the driver for, or 0 */
    pins: region.int32(MOST_WORKERS + 1),
    /** tells this device from others of the process; 0 until shared */
    identity: region.float64(1),
    marked: region.float64(MOST_STREAMS),
    known: region.float64(MOST_STREAMS * MOST_STREAMS),
    completed: region.float64(MOST_STREAMS),
    waited: region.float64(MOST_STREAMS),
    // By stream slot:
    lives: region.int32(MOST_STREAMS),
    generations: region.int32(MOST_STREAMS),
    /** the thread whose stream it is, 0 for the default stream and all that was never shared */
    owners: region.int32(MOST_STREAMS),
    /** 1 for a stream that its owner made and destroys */
    owned: region.int32(MOST_STREAMS),
    /** the driver's, of the stream that the slot has or had last; -1 for none */
    handles: region.float64(MOST_STREAMS),
    /**
     * the event of the last mark of the stream that was ended last, whose stamp is the clock's; it stays with the
     * slot; 0 for none
     */
    lastEvents: region.float64(MOST_STREAMS),
    /** by thread: the events that it made and keeps for its own marks */
    eventCounts: region.int32(MOST_WORKERS + 1),
    events: region.float64((MOST_WORKERS + 1) * MOST_EVENTS),
  }
}

/** The order of a device that was just opened. */
export function newOrder(): SharedOrder {
  const region = new Region(null)
  layOut(region)
  const buffer = new SharedArrayBuffer(region.bytes)
  layOut(new Region(buffer)).handles.fill(-1)
  return { version: ORDER_VERSION, buffer }
}

/** The views of an order. Throws TypeError for what is none, PoolError for one of another version. */
export function orderState(order: SharedOrder): OrderState {
  if (!(order?.buffer instanceof SharedArrayBuffer)) {
    throw new TypeError(`order must be what share() gave, not ${describe(order)}`)
  }
  if (order.version !== ORDER_VERSION) {
    throw new PoolError(
      `the order has layout ${order.version}, not ${ORDER_VERSION}; use one version of the package in all threads`,
    )
  }
  return layOut(new Region(order.buffer))
}

/** What tells the device of an order from others of the process. */
export function identityOf(order: SharedOrder): number {
  return orderState(order).identity[0]
}

/** Remembers an event that a thread has made for its marks. */
export function noteEvent({ events, eventCounts }: OrderState, worker: number, event: number): void {
  const count = eventCounts[worker]
  if (count === MOST_EVENTS) return
  events[worker * MOST_EVENTS + count] = event
  eventCounts[worker] = count + 1
}

/** Takes one of the events that a thread has made, under the lock; 0 for none. */
export function takeEvent({ events, eventCounts }: OrderState, worker: number): number {
  if (eventCounts[worker] === 0) return 0
  return events[worker * MOST_EVENTS + --eventCounts[worker]]
}

/** A number that no other device of the process has. */
export function newIdentity(): number {
  return 1 + randomBytes(6).readUIntBE(0, 6)
}
