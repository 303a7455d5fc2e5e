// The free of a buffer whose pool takes its time anyway: it calls the driver, keeps lists, or passes the buffer on. The engine
// compiles into a loop that frees buffers whatever `free` leads to, up to a limit, so that pools of one kind would take the room of another.
// It never takes in a call of which it has seen more than four kinds of objects, and so the one here is shown five.

import type { Stream } from '../order/stream.js'
import type { DeviceBuffer } from './buffer.js'
import type { BufferOwner } from './home.js'

/** Gives the buffer back to its owner. */
export function freeSlowly(owner: BufferOwner, buffer: DeviceBuffer, stream?: Stream): void {
  owner.release(buffer, stream)
}

/** Objects of five shapes. */
const STRANGERS: readonly BufferOwner[] = [
  { a: 0, release() {} } as BufferOwner,
  { b: 0, release() {} } as BufferOwner,
  { c: 0, release() {} } as BufferOwner,
  { d: 0, release() {} } as BufferOwner,
  { e: 0, release() {} } as BufferOwner,
]
/** The engine takes notes of a function only after some calls. */
const LESSONS = 100
for (let lesson = 0; lesson < LESSONS; lesson++)
  for (const stranger of STRANGERS) freeSlowly(stranger, {} as DeviceBuffer)
