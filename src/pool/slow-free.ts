// The free of a buffer whose pool is slow anyway: it calls the driver, keeps lists, or passes the buffer on. V8
// inlines `free` into hot loops until an inlining budget is spent, and slow pools must not use up that budget. A call
// site that has seen more than four shapes of receivers is megamorphic, and never inlined. `prepareSlowFree` makes
// this call site megamorphic.

import type { Stream } from '../order/stream.js'
import type { BufferOwner } from './allocation.js'
import type { DeviceBuffer } from './buffer.js'

/** Gives the buffer back to its owner. */
export function freeSlowly(owner: BufferOwner, buffer: DeviceBuffer, stream?: Stream): void {
  owner.release(buffer, stream)
}

/** Calls after which V8 collects type feedback for a function. */
const FEEDBACK_CALLS = 100
let isPrepared = false

/**
 * Makes the call site megamorphic: it meets owners of five shapes. Opening a device does this; later calls do
 * nothing.
 */
export function prepareSlowFree(): void {
  if (isPrepared) return
  isPrepared = true
  const release = () => {}
  const shapes = [
    { a: 0, release },
    { b: 0, release },
    { c: 0, release },
    { d: 0, release },
    { e: 0, release },
  ]
  for (let call = 0; call < FEEDBACK_CALLS; call++) for (const shape of shapes) freeSlowly(shape, {} as DeviceBuffer)
}
