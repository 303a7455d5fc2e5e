// Calls of code that is slow anyway: it calls the driver, keeps lists, searches, or passes a buffer on. V8 inlines
// `allocate` and `free` into hot loops until an inlining budget is spent, and slow code must not use up that budget. A
// call site is never inlined once it is megamorphic: it has seen more than four shapes of receivers, and more than one
// function. `prepareSlowCalls` makes the call sites below megamorphic.

import type { Stream } from '../order/stream.js'
import type { Allocation, BufferOwner } from './allocation.js'
import type { DeviceBuffer } from './buffer.js'

/** The part of a caching pool that its cached path calls for all else. */
export interface SlowPool {
  takeBelow(units: number, bytes: number, stream: Stream, mayFail: boolean): DeviceBuffer | null
  releaseSlowly(allocation: Allocation, tag: number, stream?: Stream): void
}

/**
 * A pool alone in a list. V8 knows the class of `this` and so inlines its methods at any call site, but it knows
 * nothing of an element.
 */
export type Apart = readonly [SlowPool]

/** Gives the buffer back to its owner. */
export function freeSlowly(owner: BufferOwner, buffer: DeviceBuffer, stream?: Stream): void {
  owner.release(buffer, stream)
}

/** Allocates off the cached path. */
export function takeApart(
  pool: Apart,
  units: number,
  bytes: number,
  stream: Stream,
  mayFail: boolean,
): DeviceBuffer | null {
  return pool[0].takeBelow(units, bytes, stream, mayFail)
}

/** Frees off the cached path. */
export function releaseApart(pool: Apart, allocation: Allocation, tag: number, stream?: Stream): void {
  pool[0].releaseSlowly(allocation, tag, stream)
}

/** Calls after which V8 collects type feedback for a function. */
const FEEDBACK_CALLS = 100
let isPrepared = false

/**
 * Makes the call sites megamorphic: they meet receivers of five shapes. Opening a device does this; later calls do
 * nothing.
 */
export function prepareSlowCalls(): void {
  if (isPrepared) return
  isPrepared = true
  const [first, second] = [methods(() => null), methods(() => null)]
  const shapes = [
    { a: 0, ...first },
    { b: 0, ...second },
    { c: 0, ...first },
    { d: 0, ...second },
    { e: 0, ...first },
  ]
  const [buffer, stream, allocation] = [{} as DeviceBuffer, {} as Stream, {} as Allocation]
  for (let call = 0; call < FEEDBACK_CALLS; call++) {
    for (const shape of shapes) {
      freeSlowly(shape, buffer)
      takeApart([shape], 0, 0, stream, false)
      releaseApart([shape], allocation, 0)
    }
  }
}

/** `method` under all names. */
function methods(method: () => null): BufferOwner & SlowPool {
  return { release: method, takeBelow: method, releaseSlowly: method }
}
