// The different addresses of a list, numbered from the lowest on. Typed arrays that are sorted once and searched by
// bisection take a fraction of the time and memory of a map by address.

export class AddressPlaces {
  /** the different addresses, rising; NaN, which has no place, comes last */
  readonly addresses: Float64Array
  /** by entry of the list: the index of its address in `addresses` */
  readonly of: Uint32Array

  constructor(list: Float64Array) {
    const sorted = list.slice().sort()
    let count = 0
    for (let i = 0; i < sorted.length; i++) {
      if (count === 0 || sorted[count - 1] !== sorted[i]) sorted[count++] = sorted[i]
    }
    this.addresses = sorted.slice(0, count)
    this.of = new Uint32Array(list.length)
    for (let i = 0, place = -1; i < list.length; i++) {
      // Lists often rise.
      place = list[i] === this.addresses[place + 1] ? place + 1 : this.from(list[i])
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
