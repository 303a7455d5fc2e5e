// Virtual memory management by libcuda: addresses, physical memory, mappings and their export.

import { exact, fileDescriptor } from '../../../libraries/arguments.js'
import {
  CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
  CU_MEM_ALLOC_GRANULARITY_MINIMUM,
  CU_MEM_HANDLE_TYPE_NONE,
} from '../../constants.js'
import { fileDescriptorType } from '../handle-type.js'
import { NO_CONTEXT } from './bound-library.js'
import { PoolCalls } from './pool-calls.js'

export class VirtualMemoryCalls extends PoolCalls {
  cuMemGetAllocationGranularity(device: number): number {
    const code = this.functions.cuMemGetAllocationGranularity(
      this.buffer.first,
      this.buffer.allocationOn(device, CU_MEM_HANDLE_TYPE_NONE),
      CU_MEM_ALLOC_GRANULARITY_MINIMUM,
    )
    this.check('cuMemGetAllocationGranularity', code, NO_CONTEXT)
    return this.buffer.exact()
  }

  cuMemAddressReserve(bytes: number, alignment: number): number {
    const { first } = this.buffer
    const code = this.live.cuMemAddressReserve(first, exact(bytes, 'bytes'), exact(alignment, 'alignment'), 0, 0)
    this.check('cuMemAddressReserve', code)
    return this.buffer.exact()
  }

  cuMemAddressFree(ptr: number, bytes: number): void {
    this.check('cuMemAddressFree', this.live.cuMemAddressFree(exact(ptr, 'ptr'), exact(bytes, 'bytes')))
  }

  cuMemCreate(bytes: number, device: number, handleTypes: number): number {
    const kind = this.buffer.allocationOn(device, handleTypes)
    this.check('cuMemCreate', this.live.cuMemCreate(this.buffer.first, exact(bytes, 'bytes'), kind, 0))
    return this.buffer.exact()
  }

  cuMemRelease(handle: number): void {
    this.check('cuMemRelease', this.live.cuMemRelease(exact(handle, 'handle')))
  }

  cuMemMap(ptr: number, bytes: number, handle: number): void {
    const code = this.live.cuMemMap(exact(ptr, 'ptr'), exact(bytes, 'bytes'), 0, exact(handle, 'handle'), 0)
    this.check('cuMemMap', code)
  }

  cuMemUnmap(ptr: number, bytes: number): void {
    this.check('cuMemUnmap', this.live.cuMemUnmap(exact(ptr, 'ptr'), exact(bytes, 'bytes')))
  }

  cuMemSetAccess(
    ptr: number,
    bytes: number,
    devices: readonly number[],
    flags: number = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
  ): void {
    const access = this.buffer.accessFrom(devices, flags)
    const code = this.live.cuMemSetAccess(exact(ptr, 'ptr'), exact(bytes, 'bytes'), access, devices.length)
    this.check('cuMemSetAccess', code)
  }

  cuMemExportToShareableHandle(handle: number, handleType: number): number {
    const type = fileDescriptorType(handleType, 'handleType')
    const code = this.live.cuMemExportToShareableHandle(this.buffer.first, exact(handle, 'handle'), type, 0)
    this.check('cuMemExportToShareableHandle', code)
    return this.buffer.int()
  }

  cuMemImportFromShareableHandle(descriptor: number, handleType: number): number {
    const type = fileDescriptorType(handleType, 'handleType')
    const handle = fileDescriptor(descriptor, 'descriptor')
    this.check(
      'cuMemImportFromShareableHandle',
      this.live.cuMemImportFromShareableHandle(this.buffer.first, handle, type),
    )
    return this.buffer.exact()
  }
}
