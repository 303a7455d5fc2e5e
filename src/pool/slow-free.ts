// The free of a buffer whose pool is slow anyway: it calls the driver, keeps lists, or passes the buffer on. V8 inlines `free` into hot
// loops until an inlining budget is spent, and slow pools must not use up that budget. A call site that has seen more than
// four shapes of receivers is megamorphic, and never inlined; the one here is made megamorphic at import.

import type { Stream } from '../order/stream.js'
import type { BufferOwner } from './allocation.js'
import type { DeviceBuffer } from './buffer.js'

/** Gives the buffer back to its owner. */
export function freeSlowly(owner: BufferOwner, buffer: DeviceBuffer, stream?: Stream): void {
  owner.release(buffer, stream)
}

/** Owners of five shapes. */
const SHAPES: readonly BufferOwner[] = [
  { a: 0, release() {} } as BufferOwner,
  { b: 0, release() {} } as BufferOwner,
  { c: 0, release() {} } as BufferOwner,
  { d: 0, release() {} } as BufferOwner,
  { e: 0, release() {} } as BufferOwner,
]
/** Calls after which V8 collects type feedback for a function. */
const FEEDBACK_CALLS = 100
for (let call = 0; call < FEEDBACK_CALLS; call++) for (const shape of SHAPES) freeSlowly(shape, {} as DeviceBuffer)
