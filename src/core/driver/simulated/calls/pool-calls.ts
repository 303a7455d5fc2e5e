// The driver's own pools in the simulated driver: cuMemPool and cuMemAllocAsync.

import type { Bytes } from '../../../base/typed-arrays.js'
import { RESULT } from '../../constants.js'
import type { MemPoolProperties } from '../../driver.js'
import { CALL } from '../call-interceptor.js'
import { StreamCalls } from './stream-calls.js'

export class PoolCalls extends StreamCalls {
  cuDeviceGetDefaultMemPool(device: number): number {
    this.begin(CALL.cuDeviceGetDefaultMemPool)
    this.requireOption('memoryPools')
    return this.pools.defaultOf(this.device(device))
  }

  cuDeviceGetMemPool(device: number): number {
    this.begin(CALL.cuDeviceGetMemPool)
    this.requireOption('memoryPools')
    return this.pools.currentOf(this.device(device))
  }

  cuDeviceSetMemPool(device: number, pool: number): void {
    this.begin(CALL.cuDeviceSetMemPool)
    this.requireOption('memoryPools')
    this.pools.setCurrent(this.device(device), pool)
  }

  cuMemPoolCreate(properties: MemPoolProperties): number {
    this.enterPools(CALL.cuMemPoolCreate)
    return this.pools.create(properties)
  }

  cuMemPoolDestroy(pool: number): void {
    this.enterPools(CALL.cuMemPoolDestroy)
    this.pools.destroy(pool)
  }

  cuMemPoolGetAttribute(pool: number, attribute: number): number {
    this.enterPools(CALL.cuMemPoolGetAttribute)
    const value = this.pools.get(pool).attribute(attribute)
    if (value === undefined)
      throw this.interceptor.refuse(RESULT.CUDA_ERROR_INVALID_VALUE, `no pool attribute ${attribute}`)
    return value
  }

  /** `Infinity` is the driver's 2^64 - 1. */
  cuMemPoolSetAttribute(pool: number, attribute: number, value: number): void {
    this.enterPools(CALL.cuMemPoolSetAttribute)
    if (this.pools.get(pool).setAttribute(attribute, value)) return
    throw this.interceptor.refuse(
      RESULT.CUDA_ERROR_INVALID_VALUE,
      `pool attribute ${attribute} cannot be set to ${value}`,
    )
  }

  cuMemPoolTrimTo(pool: number, keepBytes: number): void {
    this.enterPools(CALL.cuMemPoolTrimTo)
    const entry = this.pools.get(pool)
    this.interceptor.checkSize(keepBytes, 0)
    entry.trimTo(keepBytes)
  }

  cuMemPoolSetAccess(pool: number, locationType: number, locationId: number, flags: number): void {
    this.enterPools(CALL.cuMemPoolSetAccess)
    this.pools.setAccess(pool, locationType, locationId, flags)
  }

  cuMemPoolGetAccess(pool: number, locationType: number, locationId: number): number {
    this.enterPools(CALL.cuMemPoolGetAccess)
    return this.pools.access(pool, locationType, locationId)
  }

  cuMemPoolExportToShareableHandle(pool: number, handleType: number): number {
    this.enterPools(CALL.cuMemPoolExportToShareableHandle)
    return this.pools.export(pool, handleType)
  }

  cuMemPoolImportFromShareableHandle(descriptor: number, handleType: number): number {
    this.enterPools(CALL.cuMemPoolImportFromShareableHandle)
    return this.pools.import(descriptor, handleType)
  }

  cuMemPoolExportPointer(ptr: number): Bytes {
    this.enterPools(CALL.cuMemPoolExportPointer)
    return this.pools.exportPointer(ptr)
  }

  cuMemPoolImportPointer(pool: number, exported: Uint8Array): number {
    this.enterPools(CALL.cuMemPoolImportPointer)
    return this.pools.importPointer(pool, exported)
  }

  cuMemAllocFromPoolAsync(bytes: number, pool: number, stream: number): number {
    const context = this.enter(CALL.cuMemAllocFromPoolAsync)
    this.requireOption('memoryPools')
    return this.pools.allocate(pool, bytes, this.uncaptured(context, stream))
  }

  cuMemAllocAsync(bytes: number, stream: number): number {
    const context = this.enter(CALL.cuMemAllocAsync)
    this.requireOption('memoryPools')
    const queue = this.uncaptured(context, stream)
    return this.pools.allocate(this.pools.currentOf(context.device), bytes, queue)
  }

  cuMemFreeAsync(ptr: number, stream: number): void {
    const context = this.enter(CALL.cuMemFreeAsync)
    this.requireOption('memoryPools')
    if (!this.pools.release(ptr, this.uncaptured(context, stream))) {
      throw this.interceptor.refuse(RESULT.CUDA_ERROR_INVALID_VALUE, 'no allocation of a pool begins there')
    }
  }
}
