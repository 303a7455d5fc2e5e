// Addresses: who owns which range. One space for all devices, as in CUDA. A range is cut for the next power of two of its
// size, so that a freed one can serve any later request of that size class; it is given out again at once, the latest
// first, as real allocators do, so that whoever uses a stale pointer meets another's memory. Ranges are never moved or
// merged: new ones only come behind the last, which keeps the list sorted, and finding an owner is a binary search.

import { GiB, MiB } from '../../../base/bytes.js'
import type { PhysicalMemory } from '../device.js'
import { type AccessRights, NO_DEVICE } from './access-rights.js'
import type { DeviceContents } from './contents.js'
import type { Extent } from './extent.js'
import type { Reservation } from './reservation.js'

const FIRST_ADDRESS = 40 * GiB + 32 * MiB // looks like a device pointer: 0xa02000000
const END_ADDRESS = 2 ** 47
const LEAST_SPAN = 512
const MOST_ALIGNMENT = 2 * MiB

/** A context: plain allocations end with the context that made them. */
export interface RegionOwner {
  /** the driver's number of the context */
  readonly handle: number
}

/** A range of addresses and what stands behind it: the contents of one allocation, or a reservation's mappings. */
export class Region implements Extent {
  /** from the base; 0 when nobody owns the range */
  bytes = 0
  memory: PhysicalMemory | null = null
  contents: DeviceContents | null = null
  contentsOffset = 0
  access: Readonly<AccessRights> = NO_DEVICE
  reservation: Reservation | null = null
  /** the context of a plain allocation, which dies with it */
  owner: RegionOwner | null = null

  constructor(
    readonly base: number,
    readonly span: number,
  ) {}

  /** Puts contents behind the addresses; `access` is shared with whoever grants it. */
  hold(
    memory: PhysicalMemory | null,
    contents: DeviceContents,
    access: Readonly<AccessRights>,
    contentsOffset = 0,
  ): void {
    this.memory = memory
    this.contents = contents
    this.access = access
    this.contentsOffset = contentsOffset
  }
}

export class AddressSpace {
  private readonly bases: number[] = []
  private readonly regions: Region[] = []
  private readonly vacant = new Map<number, Region[]>()
  private end = FIRST_ADDRESS

  /** A range of `bytes`, aligned to `alignment` and to its own size class up to 2 MiB; null when the space is used up. */
  claim(bytes: number, alignment = 1): Region | null {
    let span = LEAST_SPAN
    while (span < bytes) span *= 2
    const vacant = this.vacant.get(span)
    let region = vacant?.at(-1)
    if (region !== undefined && region.base % alignment === 0) vacant!.pop()
    else {
      const unit = Math.max(alignment, Math.min(span, MOST_ALIGNMENT))
      const base = Math.ceil(this.end / unit) * unit
      if (base + bytes > END_ADDRESS) return null
      region = new Region(base, span)
      this.end = base + span
      this.bases.push(base)
      this.regions.push(region)
    }
    region.bytes = bytes
    return region
  }

  release(region: Region): void {
    region.bytes = 0
    region.memory = null
    region.contents = null
    region.contentsOffset = 0
    region.access = NO_DEVICE
    region.reservation = null
    region.owner = null
    const vacant = this.vacant.get(region.span)
    if (vacant === undefined) this.vacant.set(region.span, [region])
    else vacant.push(region)
  }

  /** The owned range that `address` lies in. */
  find(address: number): Region | undefined {
    let low = 0
    let high = this.bases.length
    while (low < high) {
      const middle = (low + high) >>> 1
      if (this.bases[middle] <= address) low = middle + 1
      else high = middle
    }
    const region = this.regions[low - 1]
    return region !== undefined && address < region.base + region.bytes ? region : undefined
  }

  /** The plain allocations of `owner`. */
  ownedBy(owner: RegionOwner): Region[] {
    return this.regions.filter(region => region.owner === owner)
  }
}
