// CUDA's virtual memory management: cuMemAddressReserve, cuMemCreate, cuMemMap, cuMemSetAccess and their opposites.
// Sizes and addresses are multiples of the granularity.

import { MiB } from '../../../base/bytes.js'
import {
  CU_MEM_ACCESS_FLAGS_PROT_NONE,
  CU_MEM_ACCESS_FLAGS_PROT_READ,
  CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
  CU_MEM_ALLOC_GRANULARITY_MINIMUM,
  CU_MEM_ALLOC_GRANULARITY_RECOMMENDED,
  RESULT,
} from '../../constants.js'
import type { CallInterceptor } from '../call-interceptor.js'
import { costOfMappingUs, FIRST_PEER_ACCESS_US } from '../cost-model.js'
import type { SimulatedDevice } from '../device.js'
import { HandleTable } from '../handle-table.js'
import { bitOf } from './access-rights.js'
import type { AddressRegion, AddressSpace } from './address-space.js'
import type { PeerAccess } from './peer-access.js'
import { Mapping, PhysicalAllocation, Reservation } from './reservation.js'
import type { Shareables } from './shareable.js'

const ACCESS_FLAGS = [CU_MEM_ACCESS_FLAGS_PROT_NONE, CU_MEM_ACCESS_FLAGS_PROT_READ, CU_MEM_ACCESS_FLAGS_PROT_READWRITE]

const RECOMMENDED_BYTES = 2 * MiB

/** Physical memory by handle, and the mappings in reserved ranges. */
export class VirtualMemory {
  private readonly handles = new HandleTable<PhysicalAllocation>(0x5000_0000)
  /** handles of imports */
  private readonly imported = new Set<number>()

  constructor(
    private readonly interceptor: CallInterceptor,
    private readonly space: AddressSpace,
    private readonly granularityBytes: number,
    private readonly peers: PeerAccess,
    private readonly shareables: Shareables,
  ) {}

  /** The granularity that all memory needs, or the one that is recommended, as an H200 answers. */
  granularity(option: number, handleTypes: number): number {
    this.shareables.checkKnownTypes(handleTypes)
    if (option === CU_MEM_ALLOC_GRANULARITY_MINIMUM) return this.granularityBytes
    if (option !== CU_MEM_ALLOC_GRANULARITY_RECOMMENDED) throw this.interceptor.invalid(`no granularity ${option}`)
    return Math.max(this.granularityBytes, RECOMMENDED_BYTES)
  }

  reserve(bytes: number, alignment: number): number {
    this.checkRange(0, bytes)
    if (alignment !== 0 && !Number.isInteger(Math.log2(alignment))) {
      throw this.interceptor.invalid(`the alignment ${alignment} is neither 0 nor a power of two`)
    }
    const region = this.space.claim(bytes, Math.max(alignment, this.granularityBytes))
    if (region === null) throw this.interceptor.refuse(RESULT.CUDA_ERROR_OUT_OF_MEMORY, 'no addresses are left')
    region.reservation = new Reservation(region.base, this.granularityBytes)
    return region.base
  }

  unreserve(ptr: number, bytes: number): void {
    const region = this.space.find(ptr)
    if (!region?.reservation || region.base !== ptr || region.bytes !== bytes) {
      throw this.interceptor.invalid('not a whole reserved range')
    }
    if (region.reservation.mappings > 0) {
      throw this.interceptor.invalid('memory is still mapped in the range')
    }
    this.space.release(region)
  }

  create(bytes: number, device: SimulatedDevice, handleTypes: number): number {
    this.checkRange(0, bytes)
    this.shareables.checkTypes(handleTypes)
    const physical = this.shareables.create(device, bytes, handleTypes)
    if (physical === null) throw this.interceptor.refuse(RESULT.CUDA_ERROR_OUT_OF_MEMORY)
    this.interceptor.payFor(bytes)
    return this.handles.add(physical)
  }

  release(handle: number): void {
    const physical = this.physical(handle)
    this.handles.remove(handle)
    this.imported.delete(handle)
    this.interceptor.payFor(physical.contents.byteLength)
    this.drop(physical)
  }

  export(handle: number, handleType: number): number {
    const physical = this.physical(handle)
    // So does driver 580 on an H200.
    if (this.imported.has(handle)) throw this.interceptor.invalid('memory that was imported is not exported again')
    return this.shareables.export(physical, physical.handleTypes, handleType)
  }

  import(descriptor: number, handleType: number): number {
    const physical = this.shareables.import(descriptor, handleType, PhysicalAllocation)
    physical.references++
    const handle = this.handles.add(physical)
    this.imported.add(handle)
    return handle
  }

  map(ptr: number, bytes: number, handle: number): void {
    const physical = this.physical(handle)
    // Driver 580 on an H200 answers a part of a handle with 801, not with 1.
    if (bytes !== physical.contents.byteLength) {
      throw this.interceptor.refuse(
        RESULT.CUDA_ERROR_NOT_SUPPORTED,
        `the handle has ${physical.contents.byteLength} bytes, and is mapped whole`,
      )
    }
    const { reservation } = this.rangeOf(ptr, bytes)
    for (let address = ptr; address < ptr + bytes; address += this.granularityBytes) {
      if (reservation.at(address) !== undefined) {
        throw this.interceptor.invalid('the range is partly mapped already')
      }
    }
    this.interceptor.payFor(bytes)
    physical.references++
    reservation.set(ptr, bytes, new Mapping(ptr, bytes, physical))
  }

  unmap(ptr: number, bytes: number): void {
    const { reservation } = this.rangeOf(ptr, bytes)
    const mappings = this.wholeMappings(reservation, ptr, bytes)
    for (const mapping of mappings) {
      this.interceptor.pay(costOfMappingUs('cuMemUnmap', mapping.bytes, mappings.length))
      reservation.set(mapping.base, mapping.bytes, undefined)
      this.drop(mapping.physical)
    }
  }

  /** Sets access for all of `devices`, or for none if one of them can never access some of the memory. */
  setAccess(ptr: number, bytes: number, devices: readonly SimulatedDevice[], flags: number): void {
    if (devices.length === 0) throw this.interceptor.invalid('the list of devices is empty')
    if (!ACCESS_FLAGS.includes(flags)) throw this.interceptor.invalid(`there are no access flags ${flags}`)
    const { reservation } = this.rangeOf(ptr, bytes)
    const mappings = this.wholeMappings(reservation, ptr, bytes)
    for (const { memory } of mappings) for (const device of devices) this.peers.checkReachable(device, memory)
    for (const mapping of mappings) {
      for (const device of devices) {
        this.interceptor.pay(costOfMappingUs('cuMemSetAccess', mapping.bytes, mappings.length))
        if (this.peers.isFirstAccess(device, mapping.memory)) this.interceptor.pay(FIRST_PEER_ACCESS_US)
        mapping.allow(bitOf(device), flags)
      }
    }
    if (flags === CU_MEM_ACCESS_FLAGS_PROT_READ) reservation.hasReadOnly = true
  }

  private wholeMappings(reservation: Reservation, ptr: number, bytes: number): Mapping[] {
    const mappings: Mapping[] = []
    for (let address = ptr; address < ptr + bytes; ) {
      const mapping = reservation.at(address)
      if (mapping === undefined || mapping.base !== address || address + mapping.bytes > ptr + bytes) {
        throw this.interceptor.invalid('the range is not made of whole mappings')
      }
      mappings.push(mapping)
      address += mapping.bytes
    }
    return mappings
  }

  private rangeOf(ptr: number, bytes: number): AddressRegion & { reservation: Reservation } {
    this.checkRange(ptr, bytes)
    const region = this.space.find(ptr)
    if (!region?.reservation || ptr + bytes > region.base + region.bytes) {
      throw this.interceptor.invalid('the range is not inside one reservation')
    }
    return region as AddressRegion & { reservation: Reservation }
  }

  private checkRange(ptr: number, bytes: number): void {
    if (!(bytes > 0) || bytes % this.granularityBytes !== 0 || ptr % this.granularityBytes !== 0) {
      const fact = `sizes and addresses are multiples of the granularity, ${this.granularityBytes} bytes`
      throw this.interceptor.invalid(fact)
    }
  }

  private drop(physical: PhysicalAllocation): void {
    if (--physical.references > 0) return
    this.shareables.release(physical, () => physical.device.give(physical.contents.byteLength))
  }

  private physical(handle: number): PhysicalAllocation {
    const physical = this.handles.get(handle)
    if (physical === undefined) throw this.interceptor.invalid('no such memory handle')
    return physical
  }
}
