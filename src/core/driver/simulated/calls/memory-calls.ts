// Memory of cuMemAlloc, managed and registered host memory, copies and fills in the simulated driver.

import { RESULT } from '../../constants.js'
import { CALL } from '../call-interceptor.js'
import { hostAddress } from '../memory/host-address.js'
import { DeviceCalls } from './device-calls.js'

export class MemoryCalls extends DeviceCalls {
  /** The address of host memory in this process. */
  hostAddress(host: ArrayBufferView): number {
    return hostAddress(this.hosts.asRegistered(host))
  }

  cuMemGetInfo(): { freeBytes: number; totalBytes: number } {
    const { device } = this.enter(CALL.cuMemGetInfo)
    return { freeBytes: device.capacityBytes - device.usedBytes, totalBytes: device.capacityBytes }
  }

  cuMemAlloc(bytes: number): number {
    return this.linear.allocate(this.enter(CALL.cuMemAlloc), bytes)
  }

  cuMemAllocManaged(bytes: number, flags: number): number {
    const context = this.enter(CALL.cuMemAllocManaged)
    this.requireOption('managedMemory')
    return this.linear.allocateManaged(context, bytes, flags)
  }

  /** Waits for all work of the context that owns the memory, as the real driver does. */
  cuMemFree(ptr: number): void {
    const current = this.enter(CALL.cuMemFree)
    if (ptr === 0) return
    const linear = this.linear.find(ptr)
    const memory = linear?.memory ?? this.pools.memoryOf(ptr)
    if (memory === undefined)
      throw this.interceptor.refuse(RESULT.CUDA_ERROR_INVALID_VALUE, 'no allocation begins there')
    const owner = linear?.owner ?? this.contexts.primaryOf(memory) ?? current
    this.finishAll(owner)
    this.checkFault(owner)
    if (linear !== undefined) this.linear.release(linear)
    else {
      this.pools.release(ptr, owner.legacy)
      this.scheduler.finishStream(owner.legacy)
    }
  }

  cuMemHostRegister(host: ArrayBufferView, _flags: number): void {
    this.enter(CALL.cuMemHostRegister)
    this.interceptor.checkSize(host.byteLength, 1)
    if (!this.hosts.register(host)) throw this.interceptor.refuse(RESULT.CUDA_ERROR_HOST_MEMORY_ALREADY_REGISTERED)
  }

  /** Waits for all work of the context, as the real driver does. Work of other contexts that uses the memory fails. */
  cuMemHostUnregister(host: ArrayBufferView): void {
    const context = this.enter(CALL.cuMemHostUnregister)
    this.finishAll(context)
    this.checkFault(context)
    if (!this.hosts.unregister(host)) throw this.interceptor.refuse(RESULT.CUDA_ERROR_HOST_MEMORY_NOT_REGISTERED)
  }

  cuMemHostGetDevicePointer(host: ArrayBufferView): number {
    this.enter(CALL.cuMemHostGetDevicePointer)
    const ptr = this.hosts.devicePointer(host)
    if (ptr === null) throw this.interceptor.refuse(RESULT.CUDA_ERROR_INVALID_VALUE, 'the memory is not registered')
    return ptr
  }

  cuMemcpyHtoD(target: number, source: ArrayBufferView): void {
    const context = this.enterLegacy(CALL.cuMemcpyHtoD)
    this.scheduler.finishStream(context.legacy)
    this.transfers.upload(context, context.legacy, target, source)
    if (this.hosts.has(source)) this.scheduler.finishStream(context.legacy)
    this.checkFault(context)
  }

  cuMemcpyDtoH(target: ArrayBufferView, source: number): void {
    const context = this.enterLegacy(CALL.cuMemcpyDtoH)
    this.transfers.download(context, context.legacy, target, source)
    this.scheduler.finishStream(context.legacy)
    this.checkFault(context)
  }

  cuMemcpyDtoD(target: number, source: number, bytes: number): void {
    const context = this.enterLegacy(CALL.cuMemcpyDtoD)
    this.transfers.copy(context, context.legacy, target, source, bytes)
  }

  cuMemcpyHtoDAsync(target: number, source: ArrayBufferView, stream: number): void {
    const context = this.enter(CALL.cuMemcpyHtoDAsync)
    const queue = this.streams.queueOf(context, stream)
    if (!this.hosts.has(source)) this.captures.checkNotCaptured(queue, 'a copy from pageable memory')
    this.transfers.upload(context, queue, target, source)
  }

  cuMemcpyDtoHAsync(target: ArrayBufferView, source: number, stream: number): void {
    const context = this.enter(CALL.cuMemcpyDtoHAsync)
    const queue = this.streams.queueOf(context, stream)
    if (!this.hosts.has(target)) this.captures.checkNotCaptured(queue, 'a copy to pageable memory')
    this.transfers.download(context, queue, target, source)
    if (this.hosts.has(target)) return
    this.scheduler.finishStream(queue)
    this.checkFault(context)
  }

  cuMemcpyDtoDAsync(target: number, source: number, bytes: number, stream: number): void {
    const context = this.enter(CALL.cuMemcpyDtoDAsync)
    this.transfers.copy(context, this.streams.queueOf(context, stream), target, source, bytes)
  }

  cuMemcpyPeerAsync(
    target: number,
    targetContext: number,
    source: number,
    sourceContext: number,
    bytes: number,
    stream: number,
  ): void {
    const queue = this.streams.queueOf(this.enter(CALL.cuMemcpyPeerAsync), stream)
    const [to, from] = [this.context(targetContext), this.context(sourceContext)]
    this.transfers.copyPeer(queue, target, to, source, from, bytes)
  }

  cuMemsetD8(target: number, value: number, count: number): void {
    const context = this.enterLegacy(CALL.cuMemsetD8)
    this.transfers.fill(context, context.legacy, target, repeatByte(value), count)
  }

  cuMemsetD8Async(target: number, value: number, count: number, stream: number): void {
    const context = this.enter(CALL.cuMemsetD8Async)
    this.transfers.fill(context, this.streams.queueOf(context, stream), target, repeatByte(value), count)
  }

  cuMemsetD32Async(target: number, value: number, count: number, stream: number): void {
    const context = this.enter(CALL.cuMemsetD32Async)
    const queue = this.streams.queueOf(context, stream)
    if (target % 4 !== 0)
      throw this.interceptor.refuse(RESULT.CUDA_ERROR_INVALID_VALUE, 'the address is no multiple of 4')
    this.transfers.fill(context, queue, target, value >>> 0, count * 4)
  }
}

function repeatByte(value: number): number {
  return Math.imul(value & 0xff, 0x01010101) >>> 0
}
