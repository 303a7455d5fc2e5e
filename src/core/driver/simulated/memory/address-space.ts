// The addresses of one driver: one space for all devices, as in CUDA. Linear memory, reservations, pools and
// registered host memory claim ranges here. A range has the next power of two of its size, so that a freed range
// serves any later request of its size class. It is given out again at once, the latest first, so that a stale
// pointer meets memory of another owner, as with real allocators. Ranges never move or merge, and new ones come last.
// So the list stays sorted, and a lookup is a binary search.

import { GiB, MiB } from '../../../base/bytes.js'
import type { PhysicalMemory } from '../device.js'
import { type AccessRights, NO_DEVICE } from './access-rights.js'
import type { DeviceContents } from './contents.js'
import type { Extent } from './extent.js'
import type { Reservation } from './reservation.js'

const FIRST_ADDRESS = 40 * GiB + 32 * MiB // 0xa02000000, which looks like a device pointer
const END_ADDRESS = 2 ** 47
const LEAST_SPAN = 512
const MOST_ALIGNMENT = 2 * MiB

/** The context that owns linear memory, which ends with it. */
interface RegionOwner {
  /** the driver's number of the context */
  readonly handle: number
}

/** A range of addresses: one allocation with its contents, or a reservation with its mappings. */
export class AddressRegion implements Extent {
  /** size of the allocation or reservation; 0 if the range is free */
  bytes = 0
  memory: PhysicalMemory | null = null
  contents: DeviceContents | null = null
  contentsOffset = 0
  access: Readonly<AccessRights> = NO_DEVICE
  reservation: Reservation | null = null
  /** the context that owns linear memory; null for all other ranges */
  owner: RegionOwner | null = null

  constructor(
    readonly base: number,
    /** size of the range, a power of two */
    readonly span: number,
  ) {}

  /** Puts contents behind the addresses. `access` is shared with its granter, who may change it. */
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

/** All ranges, free ones included. */
export class AddressSpace {
  private readonly bases: number[] = []
  private readonly regions: AddressRegion[] = []
  private readonly vacant = new Map<number, AddressRegion[]>()
  private end = FIRST_ADDRESS

  /** A range of `bytes`, aligned to `alignment`, and to its size class up to 2 MiB. Null if no addresses are left. */
  claim(bytes: number, alignment = 1): AddressRegion | null {
    let span = LEAST_SPAN
    while (span < bytes) span *= 2
    const vacant = this.vacant.get(span)
    let region = vacant?.at(-1)
    if (region !== undefined && region.base % alignment === 0) vacant!.pop()
    else {
      const unit = Math.max(alignment, Math.min(span, MOST_ALIGNMENT))
      const base = Math.ceil(this.end / unit) * unit
      if (base + bytes > END_ADDRESS) return null
      region = new AddressRegion(base, span)
      this.end = base + span
      this.bases.push(base)
      this.regions.push(region)
    }
    region.bytes = bytes
    return region
  }

  /** Frees a range. */
  release(region: AddressRegion): void {
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

  /** The claimed range that contains `address`. */
  find(address: number): AddressRegion | undefined {
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

  /** The linear memory of `owner`. */
  ownedBy(owner: RegionOwner): AddressRegion[] {
    return this.regions.filter(region => region.owner === owner)
  }
}
