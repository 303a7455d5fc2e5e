// Address reservations, physical handles and the mappings between them. Sizes and addresses are multiples of the
// granularity. A mapping is entered at each granule that it covers, in blocks of a plain array made when first touched,
// so that finding, mapping and unmapping cost the same however many mappings there are, and a reservation of many
// terabytes costs nothing.

import { RESULT } from '../constants.js'
import type { AddressSpace, Region } from './address-space.js'
import type { CallGate } from './call-gate.js'
import type { Contents } from './contents.js'
import type { SimulatedDevice } from './device.js'
import { HandleTable } from './handle-table.js'
import { priceOfMappingUs } from './price-list.js'

const BLOCK_GRANULES = 1024

/** Physical memory made by cuMemCreate; it goes back to the device when released and no longer mapped anywhere. */
class Physical {
  references = 1

  constructor(
    readonly device: SimulatedDevice,
    readonly contents: Contents,
  ) {}
}

interface Mapping {
  readonly base: number
  readonly bytes: number
  readonly physical: Physical
  /** bit d: device d may read and write */
  access: number
}

/** Which mapping covers which granule of a reserved range. */
export class Reservation {
  mappings = 0
  private readonly blocks = new Map<number, (Mapping | undefined)[]>()

  constructor(
    private readonly base: number,
    private readonly granularityBytes: number,
  ) {}

  at(address: number): Mapping | undefined {
    const granule = Math.floor((address - this.base) / this.granularityBytes)
    return this.blocks.get(Math.floor(granule / BLOCK_GRANULES))?.[granule % BLOCK_GRANULES]
  }

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

export class VirtualMemory {
  private readonly handles = new HandleTable<Physical>(0x5000_0000)

  constructor(
    private readonly gate: CallGate,
    private readonly space: AddressSpace,
    private readonly granularityBytes: number,
  ) {}

  reserve(bytes: number, alignment: number): number {
    this.checkRange(0, bytes)
    if (alignment !== 0 && !Number.isInteger(Math.log2(alignment))) {
      throw this.gate.refuse(
        RESULT.CUDA_ERROR_INVALID_VALUE,
        `the alignment ${alignment} is neither 0 nor a power of two`,
      )
    }
    const region = this.space.claim(bytes, Math.max(alignment, this.granularityBytes))
    if (region === null) throw this.gate.refuse(RESULT.CUDA_ERROR_OUT_OF_MEMORY, 'no addresses are left')
    region.reservation = new Reservation(region.base, this.granularityBytes)
    return region.base
  }

  unreserve(ptr: number, bytes: number): void {
    const region = this.space.find(ptr)
    if (!region?.reservation || region.base !== ptr || region.bytes !== bytes) {
      throw this.gate.refuse(RESULT.CUDA_ERROR_INVALID_VALUE, 'not a whole reserved range')
    }
    if (region.reservation.mappings > 0) {
      throw this.gate.refuse(RESULT.CUDA_ERROR_INVALID_VALUE, 'memory is still mapped in the range')
    }
    this.space.release(region)
  }

  create(bytes: number, device: SimulatedDevice): number {
    this.checkRange(0, bytes)
    const contents = device.take(bytes)
    if (contents === null) throw this.gate.refuse(RESULT.CUDA_ERROR_OUT_OF_MEMORY)
    this.gate.payFor(bytes)
    return this.handles.add(new Physical(device, contents))
  }

  release(handle: number): void {
    const physical = this.handles.remove(handle)
    if (physical === undefined) throw this.unknown()
    this.gate.payFor(physical.contents.byteLength)
    this.drop(physical)
  }

  map(ptr: number, bytes: number, handle: number): void {
    const physical = this.handles.get(handle)
    if (physical === undefined) throw this.unknown()
    // Driver 580 on an H200 answers a part of a handle with 801, not with 1.
    if (bytes !== physical.contents.byteLength) {
      throw this.gate.refuse(
        RESULT.CUDA_ERROR_NOT_SUPPORTED,
        `the handle has ${physical.contents.byteLength} bytes, and is mapped whole`,
      )
    }
    const { reservation } = this.rangeOf(ptr, bytes)
    for (let address = ptr; address < ptr + bytes; address += this.granularityBytes) {
      if (reservation.at(address) !== undefined) {
        throw this.gate.refuse(RESULT.CUDA_ERROR_INVALID_VALUE, 'the range is partly mapped already')
      }
    }
    this.gate.payFor(bytes)
    physical.references++
    reservation.set(ptr, bytes, { base: ptr, bytes, physical, access: 0 })
  }

  unmap(ptr: number, bytes: number): void {
    const { reservation } = this.rangeOf(ptr, bytes)
    const mappings = this.wholeMappings(reservation, ptr, bytes)
    for (const mapping of mappings) {
      this.gate.pay(priceOfMappingUs('cuMemUnmap', mapping.bytes, mappings.length))
      reservation.set(mapping.base, mapping.bytes, undefined)
      this.drop(mapping.physical)
    }
  }

  setAccess(ptr: number, bytes: number, device: SimulatedDevice): void {
    const { reservation } = this.rangeOf(ptr, bytes)
    const mappings = this.wholeMappings(reservation, ptr, bytes)
    for (const mapping of mappings) {
      this.gate.pay(priceOfMappingUs('cuMemSetAccess', mapping.bytes, mappings.length))
      mapping.access |= 1 << device.ordinal
    }
  }

  private wholeMappings(reservation: Reservation, ptr: number, bytes: number): Mapping[] {
    const mappings: Mapping[] = []
    for (let address = ptr; address < ptr + bytes; ) {
      const mapping = reservation.at(address)
      if (mapping === undefined || mapping.base !== address || address + mapping.bytes > ptr + bytes) {
        throw this.gate.refuse(RESULT.CUDA_ERROR_INVALID_VALUE, 'the range is not made of whole mappings')
      }
      mappings.push(mapping)
      address += mapping.bytes
    }
    return mappings
  }

  private rangeOf(ptr: number, bytes: number): Region & { reservation: Reservation } {
    this.checkRange(ptr, bytes)
    const region = this.space.find(ptr)
    if (!region?.reservation || ptr + bytes > region.base + region.bytes) {
      throw this.gate.refuse(RESULT.CUDA_ERROR_INVALID_VALUE, 'the range is not inside one reservation')
    }
    return region as Region & { reservation: Reservation }
  }

  private checkRange(ptr: number, bytes: number): void {
    if (!(bytes > 0) || bytes % this.granularityBytes !== 0 || ptr % this.granularityBytes !== 0) {
      const fact = `sizes and addresses are multiples of the granularity, ${this.granularityBytes} bytes`
      throw this.gate.refuse(RESULT.CUDA_ERROR_INVALID_VALUE, fact)
    }
  }

  private drop(physical: Physical): void {
    if (--physical.references === 0) physical.device.give(physical.contents.byteLength)
  }

  private unknown(): Error {
    return this.gate.refuse(RESULT.CUDA_ERROR_INVALID_VALUE, 'no such memory handle')
  }
}
