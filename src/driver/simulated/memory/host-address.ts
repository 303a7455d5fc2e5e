// Where host memory lies, as far as programs can tell: every array buffer has a place of its own that stays the same while
// it lives. The places begin where no page does, as those of a real allocator may.

import { threadId } from 'node:worker_threads'

const FIRST_ADDRESS = 2 ** 47 // where the simulation's device addresses end
const PAGE_BYTES = 4096
const THREAD_SPAN = 2 ** 40 // what threads give out lies apart, while so many are alive
const MOST_THREADS = 4096
const BEGINS_AT = 0x5b0 // within a page; a multiple of 16, as malloc has it

const places = new WeakMap<ArrayBufferLike, number>()
let next = FIRST_ADDRESS + BEGINS_AT + (threadId % MOST_THREADS) * THREAD_SPAN

/** The address of the first byte of `host`. */
export function hostAddress(host: ArrayBufferView): number {
  let place = places.get(host.buffer)
  if (place === undefined) {
    place = next
    places.set(host.buffer, place)
    next += Math.ceil((host.buffer.byteLength + 1) / PAGE_BYTES) * PAGE_BYTES
  }
  return place + host.byteOffset
}
