// Memory of cuMemAlloc, managed and registered host memory, copies and fills by libcuda.

import { exact, hostMemory, uint, within } from '../../../libraries/arguments.js'
import { CU_MEMORYTYPE_HOST, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, RESULT } from '../../constants.js'
import type { CallName } from './bound-library.js'
import { DeviceCalls } from './device-calls.js'

export class MemoryCalls extends DeviceCalls {
  cuMemGetInfo(): { freeBytes: number; totalBytes: number } {
    this.check('cuMemGetInfo', this.live.cuMemGetInfo(this.buffer.first, this.buffer.second))
    return { freeBytes: this.buffer.exact(), totalBytes: this.buffer.exactSecond() }
  }

  cuMemAlloc(bytes: number): number {
    this.check('cuMemAlloc', this.live.cuMemAlloc(this.buffer.first, exact(bytes, 'bytes')))
    return this.buffer.exact()
  }

  cuMemFree(ptr: number): void {
    this.check('cuMemFree', this.live.cuMemFree(exact(ptr, 'ptr')))
  }

  cuMemHostRegister(host: ArrayBufferView, flags: number): void {
    const code = this.live.cuMemHostRegister(hostMemory(host, 'host'), host.byteLength, uint(flags, 'flags'))
    this.check('cuMemHostRegister', code)
  }

  cuMemHostUnregister(host: ArrayBufferView): void {
    this.check('cuMemHostUnregister', this.live.cuMemHostUnregister(hostMemory(host, 'host')))
  }

  cuMemHostGetDevicePointer(host: ArrayBufferView): number {
    const code = this.live.cuMemHostGetDevicePointer(this.buffer.first, hostMemory(host, 'host'), 0)
    this.check('cuMemHostGetDevicePointer', code)
    return this.buffer.exact()
  }

  cuMemAllocManaged(bytes: number, flags: number): number {
    const code = this.live.cuMemAllocManaged(this.buffer.first, exact(bytes, 'bytes'), uint(flags, 'flags'))
    this.check('cuMemAllocManaged', code)
    return this.buffer.exact()
  }

  cuMemcpyHtoD(target: number, source: ArrayBufferView): void {
    const code = this.live.cuMemcpyHtoD(exact(target, 'target'), hostMemory(source, 'source'), source.byteLength)
    if (this.isHostPools(code, target)) this.copy('cuMemcpyHtoD', target, this.hostAddress(source), source.byteLength)
    else this.check('cuMemcpyHtoD', code)
  }

  cuMemcpyDtoH(target: ArrayBufferView, source: number): void {
    const code = this.live.cuMemcpyDtoH(hostMemory(target, 'target'), exact(source, 'source'), target.byteLength)
    if (this.isHostPools(code, source)) this.copy('cuMemcpyDtoH', this.hostAddress(target), source, target.byteLength)
    else this.check('cuMemcpyDtoH', code)
  }

  cuMemcpyDtoD(target: number, source: number, bytes: number): void {
    const code = this.live.cuMemcpyDtoD(exact(target, 'target'), exact(source, 'source'), exact(bytes, 'bytes'))
    if (this.isHostPools(code, target, source)) this.copy('cuMemcpyDtoD', target, source, bytes)
    else this.check('cuMemcpyDtoD', code)
  }

  cuMemcpyHtoDAsync(target: number, source: ArrayBufferView, stream: number): void {
    const host = hostMemory(source, 'source')
    const code = this.live.cuMemcpyHtoDAsync(exact(target, 'target'), host, host.byteLength, exact(stream, 'stream'))
    if (!this.isHostPools(code, target)) this.check('cuMemcpyHtoDAsync', code)
    else this.copyAsync('cuMemcpyHtoDAsync', target, this.hostAddress(host), host.byteLength, stream)
  }

  cuMemcpyDtoHAsync(target: ArrayBufferView, source: number, stream: number): void {
    const host = hostMemory(target, 'target')
    const code = this.live.cuMemcpyDtoHAsync(host, exact(source, 'source'), host.byteLength, exact(stream, 'stream'))
    if (!this.isHostPools(code, source)) this.check('cuMemcpyDtoHAsync', code)
    else this.copyAsync('cuMemcpyDtoHAsync', this.hostAddress(host), source, host.byteLength, stream)
  }

  cuMemcpyDtoDAsync(target: number, source: number, bytes: number, stream: number): void {
    const code = this.live.cuMemcpyDtoDAsync(
      exact(target, 'target'),
      exact(source, 'source'),
      exact(bytes, 'bytes'),
      exact(stream, 'stream'),
    )
    if (this.isHostPools(code, target, source)) this.copyAsync('cuMemcpyDtoDAsync', target, source, bytes, stream)
    else this.check('cuMemcpyDtoDAsync', code)
  }

  cuMemcpyPeerAsync(
    target: number,
    targetContext: number,
    source: number,
    sourceContext: number,
    bytes: number,
    stream: number,
  ): void {
    const code = this.live.cuMemcpyPeerAsync(
      exact(target, 'target'),
      exact(targetContext, 'targetContext'),
      exact(source, 'source'),
      exact(sourceContext, 'sourceContext'),
      exact(bytes, 'bytes'),
      exact(stream, 'stream'),
    )
    this.check('cuMemcpyPeerAsync', code)
  }

  cuMemsetD8(target: number, value: number, count: number): void {
    const code = this.live.cuMemsetD8(exact(target, 'target'), within(value, 0, 255, 'value'), exact(count, 'count'))
    this.check('cuMemsetD8', code)
  }

  cuMemsetD8Async(target: number, value: number, count: number, stream: number): void {
    const code = this.live.cuMemsetD8Async(
      exact(target, 'target'),
      within(value, 0, 255, 'value'),
      exact(count, 'count'),
      exact(stream, 'stream'),
    )
    this.check('cuMemsetD8Async', code)
  }

  cuMemsetD32Async(target: number, value: number, count: number, stream: number): void {
    const code = this.live.cuMemsetD32Async(
      exact(target, 'target'),
      uint(value, 'value'),
      exact(count, 'count'),
      exact(stream, 'stream'),
    )
    this.check('cuMemsetD32Async', code)
  }

  /**
   * Whether a copy was refused because memory lies in a pool in host memory: only cuMemcpy and cuMemcpyAsync copy
   * such memory. These two take an unknown address for host memory and crash on it, so the driver must know every
   * pointer.
   */
  private isHostPools(code: number, ...pointers: number[]): boolean {
    if (code !== RESULT.CUDA_ERROR_INVALID_VALUE) return false
    const kinds = pointers.map(ptr => {
      const known = this.live.cuPointerGetAttribute(this.buffer.first, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, ptr)
      return known === RESULT.CUDA_SUCCESS ? this.buffer.int() : 0
    })
    return kinds.includes(CU_MEMORYTYPE_HOST) && !kinds.includes(0)
  }

  private copy(call: CallName, target: number, source: number, bytes: number): void {
    this.check(call, this.live.cuMemcpy(target, source, bytes))
  }

  private copyAsync(call: CallName, target: number, source: number, bytes: number, stream: number): void {
    this.check(call, this.live.cuMemcpyAsync(target, source, bytes, stream))
  }
}
