// Where host memory lies, as far as programs can tell: every array buffer has a place of its own that stays the same while
// it lives. The places begin where no page does, as those of a real allocator may.

const FIRST_ADDRESS = 2 ** 47 // where the simulation's device addresses end
const PAGE_BYTES = 4096
const BEGINS_AT = 0x5b0 // within a page; a multiple of 16, as malloc has it

const places = new WeakMap<ArrayBufferLike, number>()
let next = FIRST_ADDRESS + BEGINS_AT

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
