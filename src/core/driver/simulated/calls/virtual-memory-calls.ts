// Virtual memory management in the simulated driver: addresses, physical memory, mappings and their export.

import { CU_MEM_ACCESS_FLAGS_PROT_READWRITE } from '../../constants.js'
import { CALL } from '../call-interceptor.js'
import { PoolCalls } from './pool-calls.js'

export class VirtualMemoryCalls extends PoolCalls {
  cuMemGetAllocationGranularity(device: number): number {
    this.begin(CALL.cuMemGetAllocationGranularity)
    this.requireOption('virtualMemory')
    this.device(device)
    return this.options.granularityBytes
  }

  cuMemAddressReserve(bytes: number, alignment: number): number {
    this.enterAnywhere(CALL.cuMemAddressReserve)
    this.requireOption('virtualMemory')
    return this.virtual.reserve(bytes, alignment)
  }

  cuMemAddressFree(ptr: number, bytes: number): void {
    this.enterAnywhere(CALL.cuMemAddressFree)
    this.requireOption('virtualMemory')
    this.virtual.unreserve(ptr, bytes)
  }

  cuMemCreate(bytes: number, device: number, handleTypes: number): number {
    this.enterAnywhere(CALL.cuMemCreate)
    this.requireOption('virtualMemory')
    return this.virtual.create(bytes, this.device(device), handleTypes)
  }

  cuMemRelease(handle: number): void {
    this.enterAnywhere(CALL.cuMemRelease)
    this.requireOption('virtualMemory')
    this.virtual.release(handle)
  }

  cuMemMap(ptr: number, bytes: number, handle: number): void {
    this.enterAnywhere(CALL.cuMemMap)
    this.requireOption('virtualMemory')
    this.virtual.map(ptr, bytes, handle)
  }

  /** Takes effect at once: work that was submitted earlier and has not run finds no memory there. */
  cuMemUnmap(ptr: number, bytes: number): void {
    this.enterAnywhere(CALL.cuMemUnmap)
    this.requireOption('virtualMemory')
    this.virtual.unmap(ptr, bytes)
  }

  cuMemSetAccess(
    ptr: number,
    bytes: number,
    devices: readonly number[],
    flags: number = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
  ): void {
    this.enterAnywhere(CALL.cuMemSetAccess)
    this.requireOption('virtualMemory')
    const entries = devices.map(device => this.device(device))
    this.virtual.setAccess(ptr, bytes, entries, flags)
  }

  cuMemExportToShareableHandle(handle: number, handleType: number): number {
    this.enterAnywhere(CALL.cuMemExportToShareableHandle)
    this.requireOption('virtualMemory')
    return this.virtual.export(handle, handleType)
  }

  cuMemImportFromShareableHandle(descriptor: number, handleType: number): number {
    this.enterAnywhere(CALL.cuMemImportFromShareableHandle)
    this.requireOption('virtualMemory')
    return this.virtual.import(descriptor, handleType)
  }
}
