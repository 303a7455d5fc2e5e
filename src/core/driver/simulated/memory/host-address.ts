// Simulated addresses of host memory, for `hostAddress` of the driver. Each array buffer keeps one address while it
// lives. Addresses begin within a page, as addresses from malloc may.

import { threadId } from 'node:worker_threads'

const FIRST_ADDRESS = 2 ** 47 // the end of the simulated device addresses
const PAGE_BYTES = 4096
const THREAD_SPAN = 2 ** 40 // separates the addresses of up to MOST_THREADS threads
const MOST_THREADS = 4096
const BEGINS_AT = 0x5b0 // offset in a page; a multiple of 16, as from malloc

const addresses = new WeakMap<ArrayBufferLike, number>()
let next = FIRST_ADDRESS + BEGINS_AT + (threadId % MOST_THREADS) * THREAD_SPAN

/** The address of the first byte of `host`. */
export function hostAddress(host: ArrayBufferView): number {
  let address = addresses.get(host.buffer)
  if (address === undefined) {
    address = next
    addresses.set(host.buffer, address)
    next += Math.ceil((host.buffer.byteLength + 1) / PAGE_BYTES) * PAGE_BYTES
  }
  return address + host.byteOffset
}
