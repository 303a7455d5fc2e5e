// The driver's own pools by libcuda: cuMemPool and cuMemAllocAsync.

import type { Bytes } from '../../../base/typed-arrays.js'
import { exact, fileDescriptor, int, uint } from '../../../libraries/arguments.js'
import { POOL_ATTRIBUTE } from '../../constants.js'
import type { MemPoolProperties } from '../../driver.js'
import { fileDescriptorType } from '../handle-type.js'
import { NO_CONTEXT } from './bound-library.js'
import { StreamCalls } from './stream-calls.js'

export class PoolCalls extends StreamCalls {
  cuDeviceGetDefaultMemPool(device: number): number {
    const code = this.functions.cuDeviceGetDefaultMemPool(this.buffer.first, int(device, 'device'))
    this.check('cuDeviceGetDefaultMemPool', code, NO_CONTEXT)
    return this.buffer.exact()
  }

  cuDeviceGetMemPool(device: number): number {
    const code = this.functions.cuDeviceGetMemPool(this.buffer.first, int(device, 'device'))
    this.check('cuDeviceGetMemPool', code, NO_CONTEXT)
    return this.buffer.exact()
  }

  cuDeviceSetMemPool(device: number, pool: number): void {
    const code = this.functions.cuDeviceSetMemPool(int(device, 'device'), exact(pool, 'pool'))
    this.check('cuDeviceSetMemPool', code, NO_CONTEXT)
  }

  cuMemPoolCreate(properties: MemPoolProperties): number {
    const code = this.live.cuMemPoolCreate(this.buffer.first, this.buffer.poolOf(properties))
    this.check('cuMemPoolCreate', code)
    return this.buffer.exact()
  }

  cuMemPoolDestroy(pool: number): void {
    this.check('cuMemPoolDestroy', this.live.cuMemPoolDestroy(exact(pool, 'pool')))
  }

  cuMemPoolGetAttribute(pool: number, attribute: number): number {
    const { first } = this.buffer
    this.buffer.placeAmount(0) // a policy is a C int: the driver writes only the lower half
    const code = this.live.cuMemPoolGetAttribute(exact(pool, 'pool'), int(attribute, 'attribute'), first)
    this.check('cuMemPoolGetAttribute', code)
    return this.buffer.amount()
  }

  cuMemPoolSetAttribute(pool: number, attribute: number, value: number): void {
    if (isPolicy(attribute)) this.buffer.placeAmount(uint(value, 'value'))
    else this.buffer.placeAmount(value === Number.POSITIVE_INFINITY ? value : exact(value, 'value'))
    const { first } = this.buffer
    const code = this.live.cuMemPoolSetAttribute(exact(pool, 'pool'), int(attribute, 'attribute'), first)
    this.check('cuMemPoolSetAttribute', code)
  }

  cuMemPoolTrimTo(pool: number, keepBytes: number): void {
    this.check('cuMemPoolTrimTo', this.live.cuMemPoolTrimTo(exact(pool, 'pool'), exact(keepBytes, 'keepBytes')))
  }

  cuMemPoolSetAccess(pool: number, locationType: number, locationId: number, flags: number): void {
    const access = this.buffer.accessOf(locationType, locationId, flags)
    this.check('cuMemPoolSetAccess', this.live.cuMemPoolSetAccess(exact(pool, 'pool'), access, 1))
  }

  cuMemPoolGetAccess(pool: number, locationType: number, locationId: number): number {
    const location = this.buffer.accessOf(locationType, locationId, 0)
    const code = this.live.cuMemPoolGetAccess(this.buffer.first, exact(pool, 'pool'), location)
    this.check('cuMemPoolGetAccess', code)
    return this.buffer.int()
  }

  cuMemPoolExportToShareableHandle(pool: number, handleType: number): number {
    const type = fileDescriptorType(handleType, 'handleType')
    const code = this.live.cuMemPoolExportToShareableHandle(this.buffer.first, exact(pool, 'pool'), type, 0)
    this.check('cuMemPoolExportToShareableHandle', code)
    return this.buffer.int()
  }

  cuMemPoolImportFromShareableHandle(descriptor: number, handleType: number): number {
    const type = fileDescriptorType(handleType, 'handleType')
    const handle = fileDescriptor(descriptor, 'descriptor')
    const code = this.live.cuMemPoolImportFromShareableHandle(this.buffer.first, handle, type, 0)
    this.check('cuMemPoolImportFromShareableHandle', code)
    return this.buffer.exact()
  }

  cuMemPoolExportPointer(ptr: number): Bytes {
    const code = this.live.cuMemPoolExportPointer(this.buffer.exported, exact(ptr, 'ptr'))
    this.check('cuMemPoolExportPointer', code)
    return this.buffer.readExported()
  }

  cuMemPoolImportPointer(pool: number, exported: Uint8Array): number {
    this.buffer.placeExported(exported)
    const { first, exported: data } = this.buffer
    this.check('cuMemPoolImportPointer', this.live.cuMemPoolImportPointer(first, exact(pool, 'pool'), data))
    return this.buffer.exact()
  }

  cuMemAllocFromPoolAsync(bytes: number, pool: number, stream: number): number {
    const code = this.live.cuMemAllocFromPoolAsync(
      this.buffer.first,
      exact(bytes, 'bytes'),
      exact(pool, 'pool'),
      exact(stream, 'stream'),
    )
    this.check('cuMemAllocFromPoolAsync', code)
    return this.buffer.exact()
  }

  cuMemAllocAsync(bytes: number, stream: number): number {
    const code = this.live.cuMemAllocAsync(this.buffer.first, exact(bytes, 'bytes'), exact(stream, 'stream'))
    this.check('cuMemAllocAsync', code)
    return this.buffer.exact()
  }

  cuMemFreeAsync(ptr: number, stream: number): void {
    this.check('cuMemFreeAsync', this.live.cuMemFreeAsync(exact(ptr, 'ptr'), exact(stream, 'stream')))
  }
}

/** Whether an attribute is a policy of reuse, a C int. Every other attribute of a pool has 64 bits. */
function isPolicy(attribute: number): boolean {
  return attribute <= POOL_ATTRIBUTE.CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES
}
