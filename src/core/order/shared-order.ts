// The layout of the memory that holds all of a device's order. It is one shared buffer from the start, so that other
// threads can attach at any time. With one thread it takes no locks.
//
// The buffer has room for the most streams from the start, 32 MiB of addresses. The system gives memory to a page when
// it is first written. So no loop may run over slots that were never used
// (docs/internals/decisions.md#0020-room-for-2048-streams).

import { randomBytes } from 'node:crypto'
import { types } from 'node:util'
import { WrongTypeError } from '../base/argument-errors.js'
import { describe } from '../base/bytes.js'
import { PoolError } from '../base/errors.js'
import { Region } from '../threads/region.js'
import { MOST_WORKERS, REGISTRY_WORDS } from '../threads/thread-registry.js'
import { MOST_STREAMS } from './vector-clocks.js'

/** Grows with each change of the layout or its meaning. */
const ORDER_VERSION = 4

/** A dead thread's events up to this number are destroyed by another thread; further ones are lost. */
const MOST_EVENTS = 4096

/** Descriptor of a device's order; can be sent to another thread as it is. */
export interface SharedOrder {
  readonly version: number
  readonly buffer: SharedArrayBuffer
}

/** The life of a stream slot. Each step is one store, after everything that belongs to the step was written. */
export const enum Life {
  /** no stream, and all work of the former stream has completed */
  free = 0,
  open = 1,
  /**
   * about to be retired or suspended: no other thread calls the driver for the stream, and its last mark is being
   * placed
   */
  closing = 2,
  /** captured, or kept idle by a capture: gets no marks; the last mark covers everything submitted before */
  suspended = 3,
  /** closed; the last mark is not known complete yet */
  retired = 4,
}

/** The views of an order. Inferred types of typed arrays would be an error in declarations below TypeScript 5.7. */
export interface OrderState {
  /** all slots that were ever used are below this */
  readonly limit: Int32Array
  readonly lock: Int32Array
  /** 1 once the device was closed by the thread that opened it */
  readonly closed: Int32Array
  readonly registry: Int32Array
  /** by thread: one more than the slot for which it calls the driver, or 0 */
  readonly pins: Int32Array
  /** identifies the device among those of the process; 0 until shared */
  readonly identity: Float64Array
  readonly marked: Float64Array
  readonly known: Float64Array
  readonly completed: Float64Array
  readonly waited: Float64Array
  // By stream slot:
  readonly lives: Int32Array
  readonly generations: Int32Array
  /** the thread that owns the stream; 0 for the default stream, and for all streams before the order is shared */
  readonly owners: Int32Array
  /** 1 for a stream that its owner made and destroys */
  readonly owned: Int32Array
  /** the driver's handle of the slot's latest stream; -1 for none */
  readonly handles: Float64Array
  /**
   * the event of the last mark of the slot's latest ended stream; its stamp is the clock's; it stays with the slot;
   * 0 for none
   */
  readonly lastEvents: Float64Array
  /** by thread: how many events it has made for its marks */
  readonly eventCounts: Int32Array
  readonly events: Float64Array
}

function layOut(region: Region): OrderState {
  return {
    limit: region.int32(1),
    lock: region.int32(1),
    closed: region.int32(1),
    registry: region.int32(REGISTRY_WORDS),
    pins: region.int32(MOST_WORKERS + 1),
    identity: region.float64(1),
    marked: region.float64(MOST_STREAMS),
    known: region.float64(MOST_STREAMS * MOST_STREAMS),
    completed: region.float64(MOST_STREAMS),
    waited: region.float64(MOST_STREAMS),
    lives: region.int32(MOST_STREAMS),
    generations: region.int32(MOST_STREAMS),
    owners: region.int32(MOST_STREAMS),
    owned: region.int32(MOST_STREAMS),
    handles: region.float64(MOST_STREAMS),
    lastEvents: region.float64(MOST_STREAMS),
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

/**
 * The views of an order. Throws TypeError for anything else than an order, PoolError for an order of another version.
 */
export function orderState(order: SharedOrder): OrderState {
  if (!types.isSharedArrayBuffer(order?.buffer)) {
    throw new WrongTypeError(`order must be what share() gave, not ${describe(order)}`)
  }
  if (order.version !== ORDER_VERSION) {
    throw new PoolError(
      `the order has layout ${order.version}, not ${ORDER_VERSION}; use one version of the package in all threads`,
    )
  }
  return layOut(new Region(order.buffer))
}

/** The number that identifies an order's device among those of the process. */
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

/** Takes one of the events that a thread has made; 0 once all are taken. The caller holds the lock. */
export function takeEvent({ events, eventCounts }: OrderState, worker: number): number {
  if (eventCounts[worker] === 0) return 0
  return events[worker * MOST_EVENTS + --eventCounts[worker]]
}

/** A number that no other device of the process has. */
export function newIdentity(): number {
  return 1 + randomBytes(6).readUIntBE(0, 6)
}
