// A reserved address range and its mappings. A mapping is entered at each granule that it covers, in blocks of an
// array that are made at their first use. So a lookup costs the same with many mappings, and an empty reservation of
// terabytes costs nothing.

import { CU_MEM_ACCESS_FLAGS_PROT_NONE, CU_MEM_ACCESS_FLAGS_PROT_READ } from '../../constants.js'
import type { SimulatedDevice } from '../device.js'
import type { AccessRights } from './access-rights.js'
import type { DeviceContents } from './contents.js'
import type { Extent } from './extent.js'

/** granules per block of the table */
const BLOCK_GRANULES = 1024

/**
 * Memory made by cuMemCreate. It returns to the device when its last handle is released and its last mapping is gone.
 */
export class PhysicalAllocation {
  /** number of handles and mappings */
  references = 1

  constructor(
    readonly device: SimulatedDevice,
    readonly contents: DeviceContents,
    readonly handleTypes: number,
  ) {}
}

/** A physical allocation at the addresses where it is mapped. */
export class Mapping implements Extent {
  readonly contentsOffset = 0
  readonly access: Required<AccessRights> = { devices: 0, readOnly: 0 }
  readonly memory: SimulatedDevice
  readonly contents: DeviceContents

  constructor(
    readonly base: number,
    readonly bytes: number,
    readonly physical: PhysicalAllocation,
  ) {
    this.memory = physical.device
    this.contents = physical.contents
  }

  /** Sets the access of the device with this bit to CUmemAccess_flags. */
  allow(bit: number, flags: number): void {
    const { access } = this
    access.devices &= ~bit
    access.readOnly &= ~bit
    if (flags !== CU_MEM_ACCESS_FLAGS_PROT_NONE) access.devices |= bit
    if (flags === CU_MEM_ACCESS_FLAGS_PROT_READ) access.readOnly |= bit
  }
}

/** The mappings of a reserved range, by granule. */
export class Reservation {
  /** number of mappings */
  mappings = 0
  /** whether a mapping was ever made read-only: only then fills and copies look for one */
  hasReadOnly = false
  private readonly blocks = new Map<number, (Mapping | undefined)[]>()

  constructor(
    private readonly base: number,
    private readonly granularityBytes: number,
  ) {}

  /** The mapping that covers `address`. */
  at(address: number): Mapping | undefined {
    const granule = Math.floor((address - this.base) / this.granularityBytes)
    return this.blocks.get(Math.floor(granule / BLOCK_GRANULES))?.[granule % BLOCK_GRANULES]
  }

  /** Where the granule after that of `address` begins. */
  granuleAfter(address: number): number {
    return (Math.floor(address / this.granularityBytes) + 1) * this.granularityBytes
  }

  /** Enters `mapping` for its granules; undefined removes the mapping that covers exactly this range. */
  set(address: number, bytes: number, mapping: Mapping | undefined): void {
    const first = (address - this.base) / this.granularityBytes
    for (let granule = first; granule < first + bytes / this.granularityBytes; granule++) {
      const index = Math.floor(granule / BLOCK_GRANULES)
      let block = this.blocks.get(index)
      if (block === undefined) {
        block = Array(BLOCK_GRANULES).fill(undefined)
        this.blocks.set(index, block)
      }
      block[granule % BLOCK_GRANULES] = mapping
    }
    this.mappings += mapping === undefined ? -1 : 1
  }
}
