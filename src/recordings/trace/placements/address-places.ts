// The different addresses of a list, numbered from the lowest on. Typed arrays that are sorted once and searched by
// bisection take a fraction of the time and memory of a map by address.

/** Programs use few addresses again and again: a table of the latest ones spares most sorting and bisection. */
const SLOTS = 2 ** 16

/** The halves of the numbers of a list. */
function wordsOf(list: Float64Array): Uint32Array {
  return new Uint32Array(list.buffer, list.byteOffset, 2 * list.length)
}

/** The slot of entry `i` in such a table. */
function slotAt(words: Uint32Array, i: number): number {
  return (Math.imul(words[2 * i], 0x9e3779b1) ^ Math.imul(words[2 * i + 1], 0x85ebca6b)) >>> 16
}

/** The different numbers of a list, rising. */
function different(list: Float64Array, words: Uint32Array): Float64Array {
  const latest = new Float64Array(SLOTS).fill(NaN)
  const kept = new Float64Array(list.length)
  let length = 0
  for (let i = 0; i < list.length; i++) {
    const slot = slotAt(words, i)
    if (latest[slot] === list[i]) continue
    latest[slot] = list[i]
    kept[length++] = list[i]
  }
  const sorted = kept.subarray(0, length).sort()
  let count = 0
  for (let i = 0; i < sorted.length; i++) {
    if (count === 0 || sorted[count - 1] !== sorted[i]) sorted[count++] = sorted[i]
  }
  return sorted.slice(0, count)
}

export class AddressPlaces {
  /** the different addresses, rising; NaN, which has no place, comes last */
  readonly addresses: Float64Array
  /** by entry of the list: the index of its address in `addresses` */
  readonly of: Uint32Array

  constructor(list: Float64Array) {
    const words = wordsOf(list)
    this.addresses = different(list, words)
    const { addresses } = this
    this.of = new Uint32Array(list.length)
    /** by slot: the place that was looked for last */
    const latest = new Uint32Array(SLOTS)
    for (let i = 0, place = -1; i < list.length; i++) {
      // Lists often rise.
      if (list[i] === addresses[place + 1]) place++
      else {
        const slot = slotAt(words, i)
        if (addresses[latest[slot]] !== list[i]) latest[slot] = this.from(list[i])
        place = latest[slot]
      }
      this.of[i] = place
    }
  }

  /** The index of the first place at or above an address; how many places there are if all lie below it. */
  from(address: number): number {
    const { addresses } = this
    let low = 0
    let high = addresses.length
    while (low < high) {
      const middle = (low + high) >>> 1
      if (addresses[middle] < address) low = middle + 1
      else high = middle
    }
    return low
  }

  /** The index of the place at an address, or -1. */
  at(address: number): number {
    const index = this.from(address)
    return this.addresses[index] === address ? index : -1
  }
}

/** Several questions to a trace need the places of its blocks, so they are found once. */
const known = new WeakMap<Float64Array, AddressPlaces>()

/** The places of a list that does not change any more. */
export function placesOf(list: Float64Array): AddressPlaces {
  let places = known.get(list)
  if (places === undefined) {
    places = new AddressPlaces(list)
    known.set(list, places)
  }
  return places
}

/** The first index at which a list has an address that it had before, or -1. */
export function firstRepeated(list: Float64Array): number {
  if (list.every((address, i) => i === 0 || list[i - 1] < address)) return -1
  const sorted = list.slice().sort()
  let isRepeated = false
  for (let i = 1; i < sorted.length; i++) isRepeated ||= sorted[i] === sorted[i - 1]
  if (!isRepeated) return -1
  const before = new Set<number>()
  return list.findIndex(address => before.size === before.add(address).size)
}
