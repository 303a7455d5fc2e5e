// The driver contract over libcuda, in the order of the contract. library.ts opens libcuda, ../table.ts lists its
// symbols, marshalling-buffer.ts holds arguments and results, and bound-library.ts turns result codes into results and
// errors. Opened by core/device/open.ts and shared-driver.ts.
//
// A function that the library does not have is refused when it is called, so an old driver serves all functions that
// it has. After a fault, calls that act on the current context (`live`) throw DeviceLostError. Calls that name a device
// or a context do not, because another device of the process still works.
//
// Each method checks its numbers, because koffi would make 1 of 1.5 and 0 of NaN without an error. Each makes its call
// itself. If one closure made the calls of several functions, V8 in Node 20 would take 15 to 20 ns longer for each, of
// 35 to 60 ns, and a CPU profile would show one name for them all. The file is long because it has a method for each
// function of the contract.

import { OutOfRangeError } from '../../base/argument-errors.js'
import type { Bytes } from '../../base/typed-arrays.js'
import { exact, fileDescriptor, hostMemory, int, text, uint, within } from '../../libraries/arguments.js'
import { askNvml, type NvmlAnswer } from '../../libraries/nvml.js'
import {
  CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
  CU_MEM_ALLOC_GRANULARITY_MINIMUM,
  CU_MEM_HANDLE_TYPE_NONE,
  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
  CU_MEMORYTYPE_HOST,
  CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
  CU_STREAM_CAPTURE_STATUS_NONE,
  POOL_ATTRIBUTE,
  RESULT,
} from '../constants.js'
import {
  type BatchedCopy,
  type CallName,
  type CopyDirection,
  type Driver,
  type KernelArguments,
  type LaunchShape,
  type MemPoolProperties,
  MOST_BATCHED_COPIES,
} from '../driver.js'
import { uuidText } from '../uuid-text.js'
import { BoundLibrary, NO_CONTEXT } from './bound-library.js'
import { EarlyContext } from './early-context.js'
import { openLibrary } from './library.js'

/** A driver for the GPUs of this machine. Each thread that calls libcuda opens its own. */
export class NativeDriver extends BoundLibrary implements Driver {
  readonly simulated = false
  /** null: a clock measures a real GPU */
  readonly modelledSeconds = null

  /** Opens libcuda; throws NoDeviceError if the machine has no CUDA driver. No device is touched before `cuInit`. */
  static open(): NativeDriver {
    return new NativeDriver(openLibrary())
  }

  usersOf(device: number): NvmlAnswer | null {
    return askNvml(uuidText(this.cuDeviceGetUuid(device)))
  }

  // Devices and contexts

  cuInit(): void {
    this.check('cuInit', this.functions.cuInit(0), NO_CONTEXT)
  }
  cuDriverGetVersion(): number {
    return this.int('cuDriverGetVersion', this.functions.cuDriverGetVersion(this.first), NO_CONTEXT)
  }
  cuDeviceGetCount(): number {
    return this.int('cuDeviceGetCount', this.functions.cuDeviceGetCount(this.first))
  }
  cuDeviceGet(ordinal: number): number {
    return this.int('cuDeviceGet', this.functions.cuDeviceGet(this.first, int(ordinal, 'ordinal')))
  }
  cuDeviceGetName(device: number): string {
    const { text, textBytes } = this.buffer
    this.check('cuDeviceGetName', this.functions.cuDeviceGetName(text, textBytes, int(device, 'device')))
    return this.buffer.readText()
  }
  cuDeviceGetUuid(device: number): Bytes {
    this.check('cuDeviceGetUuid', this.functions.cuDeviceGetUuid(this.first, int(device, 'device')))
    return this.buffer.uuid()
  }
  cuDeviceTotalMem(device: number): number {
    return this.exact('cuDeviceTotalMem', this.functions.cuDeviceTotalMem(this.first, int(device, 'device')))
  }
  cuDeviceGetAttribute(attribute: number, device: number): number {
    const code = this.functions.cuDeviceGetAttribute(this.first, int(attribute, 'attribute'), int(device, 'device'))
    return this.int('cuDeviceGetAttribute', code)
  }
  cuDeviceCanAccessPeer(device: number, peer: number): boolean {
    const code = this.functions.cuDeviceCanAccessPeer(this.first, int(device, 'device'), int(peer, 'peer'))
    return this.int('cuDeviceCanAccessPeer', code) !== 0
  }
  cuDevicePrimaryCtxRetain(device: number): number {
    return this.exact(
      'cuDevicePrimaryCtxRetain',
      this.functions.cuDevicePrimaryCtxRetain(this.first, int(device, 'device')),
    )
  }
  cuDevicePrimaryCtxRelease(device: number): void {
    this.check('cuDevicePrimaryCtxRelease', this.functions.cuDevicePrimaryCtxRelease(int(device, 'device')))
  }
  cuCtxSetCurrent(context: number): void {
    this.check('cuCtxSetCurrent', this.functions.cuCtxSetCurrent(exact(context, 'context')), context)
    this.context = context
  }
  cuCtxSynchronize(): void {
    this.check('cuCtxSynchronize', this.live.cuCtxSynchronize())
  }
  cuCtxEnablePeerAccess(peerContext: number): void {
    this.check('cuCtxEnablePeerAccess', this.live.cuCtxEnablePeerAccess(exact(peerContext, 'peerContext'), 0))
  }

  /** Begins `cuInit` in another thread. The result tells whether the driver is not initialised yet. */
  startInit(): () => boolean {
    this.library.start('cuInit', [0], () => {})
    return () => this.functions.cuDeviceGetCount(this.first) === RESULT.CUDA_ERROR_NOT_INITIALIZED
  }

  /** Begins to make the primary context in another thread. */
  startPrimaryContext(device: number): EarlyContext {
    // A refusal is ignored: it comes between two turns of the program, which could not act on it.
    return new EarlyContext(this.library, int(device, 'device'), () => this.functions.cuDevicePrimaryCtxRelease(device))
  }

  // Memory of cuMemAlloc, managed and registered host memory, copies and fills

  cuMemGetInfo(): { freeBytes: number; totalBytes: number } {
    const freeBytes = this.exact('cuMemGetInfo', this.live.cuMemGetInfo(this.first, this.second))
    return { freeBytes, totalBytes: this.buffer.exactSecond() }
  }
  cuMemAlloc(bytes: number): number {
    return this.exact('cuMemAlloc', this.live.cuMemAlloc(this.first, exact(bytes, 'bytes')))
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
    const code = this.live.cuMemHostGetDevicePointer(this.first, hostMemory(host, 'host'), 0)
    return this.exact('cuMemHostGetDevicePointer', code)
  }
  cuMemAllocManaged(bytes: number, flags: number): number {
    const code = this.live.cuMemAllocManaged(this.first, exact(bytes, 'bytes'), uint(flags, 'flags'))
    return this.exact('cuMemAllocManaged', code)
  }
  cuMemAdvise(ptr: number, bytes: number, advice: number, device: number): void {
    const [address, count] = [exact(ptr, 'ptr'), exact(bytes, 'bytes')]
    this.check('cuMemAdvise', this.live.cuMemAdvise(address, count, int(advice, 'advice'), int(device, 'device')))
  }
  cuMemPrefetchAsync(ptr: number, bytes: number, device: number, stream: number): void {
    const [address, count, target] = [exact(ptr, 'ptr'), exact(bytes, 'bytes'), int(device, 'device')]
    const code = this.live.cuMemPrefetchAsync(address, count, target, exact(stream, 'stream'))
    this.check('cuMemPrefetchAsync', code)
  }
  cuMemDiscardBatchAsync(ptr: number, bytes: number, stream: number): void {
    this.buffer.placeRange(exact(ptr, 'ptr'), exact(bytes, 'bytes'))
    const code = this.live.cuMemDiscardBatchAsync(this.first, this.second, 1, 0, exact(stream, 'stream'))
    this.check('cuMemDiscardBatchAsync', code)
  }

  cuMemcpyHtoD(target: number, source: ArrayBufferView): void {
    const code = this.live.cuMemcpyHtoD(exact(target, 'target'), hostMemory(source, 'source'), source.byteLength)
    if (code === RESULT.CUDA_SUCCESS) return
    this.copyAgain('cuMemcpyHtoD', code, [target], [target, this.hostAddress(source), source.byteLength])
  }
  cuMemcpyDtoH(target: ArrayBufferView, source: number): void {
    const code = this.live.cuMemcpyDtoH(hostMemory(target, 'target'), exact(source, 'source'), target.byteLength)
    if (code === RESULT.CUDA_SUCCESS) return
    this.copyAgain('cuMemcpyDtoH', code, [source], [this.hostAddress(target), source, target.byteLength])
  }
  cuMemcpyDtoD(target: number, source: number, bytes: number): void {
    const code = this.live.cuMemcpyDtoD(exact(target, 'target'), exact(source, 'source'), exact(bytes, 'bytes'))
    if (code === RESULT.CUDA_SUCCESS) return
    this.copyAgain('cuMemcpyDtoD', code, [target, source], [target, source, bytes])
  }
  cuMemcpyHtoDAsync(target: number, source: ArrayBufferView, stream: number): void {
    const host = hostMemory(source, 'source')
    const code = this.live.cuMemcpyHtoDAsync(exact(target, 'target'), host, host.byteLength, exact(stream, 'stream'))
    if (code === RESULT.CUDA_SUCCESS) return
    this.copyAgain('cuMemcpyHtoDAsync', code, [target], [target, this.hostAddress(host), host.byteLength, stream])
  }
  cuMemcpyDtoHAsync(target: ArrayBufferView, source: number, stream: number): void {
    const host = hostMemory(target, 'target')
    const code = this.live.cuMemcpyDtoHAsync(host, exact(source, 'source'), host.byteLength, exact(stream, 'stream'))
    if (code === RESULT.CUDA_SUCCESS) return
    this.copyAgain('cuMemcpyDtoHAsync', code, [source], [this.hostAddress(host), source, host.byteLength, stream])
  }
  cuMemcpyDtoDAsync(target: number, source: number, bytes: number, stream: number): void {
    const to = exact(target, 'target')
    const from = exact(source, 'source')
    const code = this.live.cuMemcpyDtoDAsync(to, from, exact(bytes, 'bytes'), exact(stream, 'stream'))
    if (code === RESULT.CUDA_SUCCESS) return
    this.copyAgain('cuMemcpyDtoDAsync', code, [target, source], [target, source, bytes, stream])
  }
  cuMemcpyBatchAsync(copies: readonly BatchedCopy[], direction: CopyDirection, stream: number): void {
    const { buffer } = this
    const count = within(copies.length, 1, MOST_BATCHED_COPIES, 'the number of copies')
    for (let i = 0; i < count; i++) {
      const host = this.hostAddress(copies[i].host)
      const ptr = exact(copies[i].ptr, 'ptr')
      const bytes = copies[i].host.byteLength
      if (direction === 'toHost') buffer.placeCopy(i, host, ptr, bytes)
      else buffer.placeCopy(i, ptr, host, bytes)
    }
    const { targets, sources, sizes, copyAttributes, firstCopy } = buffer
    const code = this.live.cuMemcpyBatchAsync(
      targets,
      sources,
      sizes,
      count,
      copyAttributes,
      firstCopy,
      1, // one set of attributes, for all copies from the first one on
      this.first,
      exact(stream, 'stream'),
    )
    this.check('cuMemcpyBatchAsync', code)
  }
  cuMemcpyPeerAsync(
    target: number,
    targetContext: number,
    source: number,
    sourceContext: number,
    bytes: number,
    stream: number,
  ): void {
    const to = exact(target, 'target')
    const toContext = exact(targetContext, 'targetContext')
    const from = exact(source, 'source')
    const fromContext = exact(sourceContext, 'sourceContext')
    const count = exact(bytes, 'bytes')
    const code = this.live.cuMemcpyPeerAsync(to, toContext, from, fromContext, count, exact(stream, 'stream'))
    this.check('cuMemcpyPeerAsync', code)
  }
  cuMemsetD8Async(target: number, value: number, count: number, stream: number): void {
    const ptr = exact(target, 'target')
    const byte = within(value, 0, 255, 'value')
    this.check('cuMemsetD8Async', this.live.cuMemsetD8Async(ptr, byte, exact(count, 'count'), exact(stream, 'stream')))
  }
  cuMemsetD16Async(target: number, value: number, count: number, stream: number): void {
    const ptr = exact(target, 'target')
    const short = within(value, 0, 65_535, 'value')
    const code = this.live.cuMemsetD16Async(ptr, short, exact(count, 'count'), exact(stream, 'stream'))
    this.check('cuMemsetD16Async', code)
  }
  cuMemsetD32Async(target: number, value: number, count: number, stream: number): void {
    const ptr = exact(target, 'target')
    const words = exact(count, 'count')
    const code = this.live.cuMemsetD32Async(ptr, uint(value, 'value'), words, exact(stream, 'stream'))
    this.check('cuMemsetD32Async', code)
  }

  // Streams, events, captures and graphs

  cuCtxGetStreamPriorityRange(): { least: number; greatest: number } {
    const code = this.live.cuCtxGetStreamPriorityRange(this.first, this.second)
    return { least: this.int('cuCtxGetStreamPriorityRange', code), greatest: this.buffer.intSecond() }
  }
  cuStreamCreate(flags: number): number {
    return this.exact('cuStreamCreate', this.live.cuStreamCreate(this.first, uint(flags, 'flags')))
  }
  cuStreamCreateWithPriority(flags: number, priority: number): number {
    const code = this.live.cuStreamCreateWithPriority(this.first, uint(flags, 'flags'), int(priority, 'priority'))
    return this.exact('cuStreamCreateWithPriority', code)
  }
  cuStreamGetPriority(stream: number): number {
    return this.int('cuStreamGetPriority', this.live.cuStreamGetPriority(exact(stream, 'stream'), this.first))
  }
  cuStreamDestroy(stream: number): void {
    this.check('cuStreamDestroy', this.live.cuStreamDestroy(exact(stream, 'stream')))
  }
  cuStreamSynchronize(stream: number): void {
    this.check('cuStreamSynchronize', this.live.cuStreamSynchronize(exact(stream, 'stream')))
  }
  cuStreamQuery(stream: number): boolean {
    return this.answer('cuStreamQuery', this.live.cuStreamQuery(exact(stream, 'stream')))
  }
  cuStreamWaitEvent(stream: number, event: number): void {
    this.check('cuStreamWaitEvent', this.live.cuStreamWaitEvent(exact(stream, 'stream'), exact(event, 'event'), 0))
  }
  cuStreamGetCtx(stream: number): number {
    return this.exact('cuStreamGetCtx', this.live.cuStreamGetCtx(exact(stream, 'stream'), this.first))
  }
  cuStreamGetId(stream: number): number {
    return this.exact('cuStreamGetId', this.live.cuStreamGetId(exact(stream, 'stream'), this.first))
  }
  cuStreamGetFlags(stream: number): number {
    return this.int('cuStreamGetFlags', this.live.cuStreamGetFlags(exact(stream, 'stream'), this.first))
  }
  cuStreamBeginCapture(stream: number, mode: number): void {
    this.check('cuStreamBeginCapture', this.live.cuStreamBeginCapture(exact(stream, 'stream'), int(mode, 'mode')))
  }
  cuStreamEndCapture(stream: number): number {
    return this.exact('cuStreamEndCapture', this.live.cuStreamEndCapture(exact(stream, 'stream'), this.first))
  }
  cuStreamIsCapturing(stream: number): boolean {
    const code = this.live.cuStreamIsCapturing(exact(stream, 'stream'), this.first)
    return this.int('cuStreamIsCapturing', code) !== CU_STREAM_CAPTURE_STATUS_NONE
  }
  cuThreadExchangeStreamCaptureMode(mode: number): number {
    this.buffer.placeAmount(int(mode, 'mode'))
    const code = this.functions.cuThreadExchangeStreamCaptureMode(this.first)
    return this.int('cuThreadExchangeStreamCaptureMode', code, NO_CONTEXT)
  }
  cuEventCreate(flags: number): number {
    return this.exact('cuEventCreate', this.live.cuEventCreate(this.first, uint(flags, 'flags')))
  }
  cuEventDestroy(event: number): void {
    this.check('cuEventDestroy', this.live.cuEventDestroy(exact(event, 'event')))
  }
  cuEventRecord(event: number, stream: number): void {
    this.check('cuEventRecord', this.live.cuEventRecord(exact(event, 'event'), exact(stream, 'stream')))
  }
  cuEventQuery(event: number): boolean {
    return this.answer('cuEventQuery', this.live.cuEventQuery(exact(event, 'event')))
  }
  cuEventSynchronize(event: number): void {
    this.check('cuEventSynchronize', this.live.cuEventSynchronize(exact(event, 'event')))
  }
  cuEventElapsedTime(start: number, end: number): number {
    const code = this.live.cuEventElapsedTime(this.first, exact(start, 'start'), exact(end, 'end'))
    this.check('cuEventElapsedTime', code)
    return this.buffer.float()
  }

  // The driver's own pools: cuMemPool and cuMemAllocAsync

  cuDeviceGetDefaultMemPool(device: number): number {
    return this.exact(
      'cuDeviceGetDefaultMemPool',
      this.functions.cuDeviceGetDefaultMemPool(this.first, int(device, 'device')),
    )
  }
  cuDeviceGetMemPool(device: number): number {
    return this.exact('cuDeviceGetMemPool', this.functions.cuDeviceGetMemPool(this.first, int(device, 'device')))
  }
  cuDeviceSetMemPool(device: number, pool: number): void {
    this.check('cuDeviceSetMemPool', this.functions.cuDeviceSetMemPool(int(device, 'device'), exact(pool, 'pool')))
  }
  cuMemPoolCreate(properties: MemPoolProperties): number {
    return this.exact('cuMemPoolCreate', this.live.cuMemPoolCreate(this.first, this.buffer.poolOf(properties)))
  }
  cuMemPoolDestroy(pool: number): void {
    this.check('cuMemPoolDestroy', this.live.cuMemPoolDestroy(exact(pool, 'pool')))
  }
  cuMemPoolGetAttribute(pool: number, attribute: number): number {
    this.buffer.placeAmount(0) // a policy is a C int: the driver writes only the lower half
    const code = this.live.cuMemPoolGetAttribute(exact(pool, 'pool'), int(attribute, 'attribute'), this.first)
    this.check('cuMemPoolGetAttribute', code)
    return this.buffer.amount()
  }
  cuMemPoolSetAttribute(pool: number, attribute: number, value: number): void {
    // A policy of reuse is a C int. Every other attribute has 64 bits.
    const isPolicy = attribute <= POOL_ATTRIBUTE.CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES
    if (isPolicy) this.buffer.placeAmount(uint(value, 'value'))
    else this.buffer.placeAmount(value === Number.POSITIVE_INFINITY ? value : exact(value, 'value'))
    const code = this.live.cuMemPoolSetAttribute(exact(pool, 'pool'), int(attribute, 'attribute'), this.first)
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
    return this.int('cuMemPoolGetAccess', this.live.cuMemPoolGetAccess(this.first, exact(pool, 'pool'), location))
  }
  cuMemPoolExportToShareableHandle(pool: number, handleType: number): number {
    const type = fileDescriptorType(handleType)
    const code = this.live.cuMemPoolExportToShareableHandle(this.first, exact(pool, 'pool'), type, 0)
    return this.int('cuMemPoolExportToShareableHandle', code)
  }
  cuMemPoolImportFromShareableHandle(descriptor: number, handleType: number): number {
    const type = fileDescriptorType(handleType)
    const handle = fileDescriptor(descriptor, 'descriptor')
    const code = this.live.cuMemPoolImportFromShareableHandle(this.first, handle, type, 0)
    return this.exact('cuMemPoolImportFromShareableHandle', code)
  }
  cuMemPoolExportPointer(ptr: number): Bytes {
    const code = this.live.cuMemPoolExportPointer(this.buffer.exported, exact(ptr, 'ptr'))
    this.check('cuMemPoolExportPointer', code)
    return this.buffer.readExported()
  }
  cuMemPoolImportPointer(pool: number, exported: Uint8Array): number {
    this.buffer.placeExported(exported)
    const code = this.live.cuMemPoolImportPointer(this.first, exact(pool, 'pool'), this.buffer.exported)
    return this.exact('cuMemPoolImportPointer', code)
  }
  cuMemAllocFromPoolAsync(bytes: number, pool: number, stream: number): number {
    const from = exact(pool, 'pool')
    const code = this.live.cuMemAllocFromPoolAsync(this.first, exact(bytes, 'bytes'), from, exact(stream, 'stream'))
    return this.exact('cuMemAllocFromPoolAsync', code)
  }
  cuMemAllocAsync(bytes: number, stream: number): number {
    return this.exact(
      'cuMemAllocAsync',
      this.live.cuMemAllocAsync(this.first, exact(bytes, 'bytes'), exact(stream, 'stream')),
    )
  }
  cuMemFreeAsync(ptr: number, stream: number): void {
    this.check('cuMemFreeAsync', this.live.cuMemFreeAsync(exact(ptr, 'ptr'), exact(stream, 'stream')))
  }

  // Virtual memory management: addresses, physical memory, mappings and their export

  cuMemGetAllocationGranularity(
    device: number,
    option: number = CU_MEM_ALLOC_GRANULARITY_MINIMUM,
    handleTypes: number = CU_MEM_HANDLE_TYPE_NONE,
  ): number {
    const kind = this.buffer.allocationOn(device, handleTypes, false)
    const code = this.functions.cuMemGetAllocationGranularity(this.first, kind, uint(option, 'option'))
    return this.exact('cuMemGetAllocationGranularity', code, NO_CONTEXT)
  }
  cuMemAddressReserve(bytes: number, alignment: number): number {
    const code = this.live.cuMemAddressReserve(this.first, exact(bytes, 'bytes'), exact(alignment, 'alignment'), 0, 0)
    return this.exact('cuMemAddressReserve', code)
  }
  cuMemAddressFree(ptr: number, bytes: number): void {
    this.check('cuMemAddressFree', this.live.cuMemAddressFree(exact(ptr, 'ptr'), exact(bytes, 'bytes')))
  }
  cuMemCreate(bytes: number, device: number, handleTypes: number, gpuDirectRdma = false): number {
    const kind = this.buffer.allocationOn(device, handleTypes, gpuDirectRdma)
    return this.exact('cuMemCreate', this.live.cuMemCreate(this.first, exact(bytes, 'bytes'), kind, 0))
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
    flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
  ): void {
    const access = this.buffer.accessFrom(devices, flags)
    const code = this.live.cuMemSetAccess(exact(ptr, 'ptr'), exact(bytes, 'bytes'), access, devices.length)
    this.check('cuMemSetAccess', code)
  }
  cuMemExportToShareableHandle(handle: number, handleType: number): number {
    const type = fileDescriptorType(handleType)
    const code = this.live.cuMemExportToShareableHandle(this.first, exact(handle, 'handle'), type, 0)
    return this.int('cuMemExportToShareableHandle', code)
  }
  cuMemImportFromShareableHandle(descriptor: number, handleType: number): number {
    const type = fileDescriptorType(handleType)
    const code = this.live.cuMemImportFromShareableHandle(this.first, fileDescriptor(descriptor, 'descriptor'), type)
    return this.exact('cuMemImportFromShareableHandle', code)
  }

  // Modules, launches and occupancy

  cuModuleLoadData(image: string | Uint8Array): number {
    const source = typeof image === 'string' ? Buffer.from(image) : hostMemory(image, 'image')
    const { buffer } = this
    buffer.clearText()
    // PTX must end in a zero byte, which does a cubin no harm.
    const ended = Buffer.concat([source, Buffer.alloc(1)])
    const code = this.live.cuModuleLoadData(buffer.first, ended, 2, buffer.jitOptions, buffer.jitValues)
    if (code !== RESULT.CUDA_SUCCESS) throw this.refusal('cuModuleLoadData', code, this.context, buffer.readText())
    return buffer.exact()
  }
  cuModuleUnload(module: number): void {
    this.check('cuModuleUnload', this.live.cuModuleUnload(exact(module, 'module')))
  }
  cuModuleGetFunction(module: number, name: string): number {
    const code = this.live.cuModuleGetFunction(this.first, exact(module, 'module'), text(name, 'name'))
    return this.exact('cuModuleGetFunction', code)
  }
  cuLaunchKernel(kernel: number, shape: LaunchShape, stream: number, args: KernelArguments): void {
    this.launch('cuLaunchKernel', kernel, shape, stream, args, 0) // no `extra`
  }
  cuLaunchCooperativeKernel(kernel: number, shape: LaunchShape, stream: number, args: KernelArguments): void {
    this.launch('cuLaunchCooperativeKernel', kernel, shape, stream, args)
  }
  cuFuncGetAttribute(attribute: number, kernel: number): number {
    const code = this.live.cuFuncGetAttribute(this.first, int(attribute, 'attribute'), exact(kernel, 'kernel'))
    return this.int('cuFuncGetAttribute', code)
  }
  cuFuncSetAttribute(kernel: number, attribute: number, value: number): void {
    const code = this.live.cuFuncSetAttribute(exact(kernel, 'kernel'), int(attribute, 'attribute'), int(value, 'value'))
    this.check('cuFuncSetAttribute', code)
  }
  cuOccupancyMaxActiveBlocksPerMultiprocessor(kernel: number, blockThreads: number, sharedBytes: number): number {
    const call = 'cuOccupancyMaxActiveBlocksPerMultiprocessor'
    const threads = int(blockThreads, 'blockThreads')
    const bytes = exact(sharedBytes, 'sharedBytes')
    return this.int(call, this.live[call](this.first, exact(kernel, 'kernel'), threads, bytes))
  }
  cuOccupancyMaxPotentialBlockSize(kernel: number, sharedBytes: number): { blocks: number; blockThreads: number } {
    const call = 'cuOccupancyMaxPotentialBlockSize'
    const bytes = exact(sharedBytes, 'sharedBytes')
    const blocks = this.int(call, this.live[call](this.first, this.second, exact(kernel, 'kernel'), 0, bytes, 0))
    return { blocks, blockThreads: this.buffer.intSecond() }
  }

  cuGraphDestroy(graph: number): void {
    this.check('cuGraphDestroy', this.live.cuGraphDestroy(exact(graph, 'graph')))
  }
  cuGraphInstantiate(graph: number): number {
    return this.exact('cuGraphInstantiate', this.live.cuGraphInstantiate(this.first, exact(graph, 'graph'), 0))
  }
  cuGraphLaunch(executable: number, stream: number): void {
    this.check('cuGraphLaunch', this.live.cuGraphLaunch(exact(executable, 'executable'), exact(stream, 'stream')))
  }
  cuGraphExecDestroy(executable: number): void {
    this.check('cuGraphExecDestroy', this.live.cuGraphExecDestroy(exact(executable, 'executable')))
  }

  /** The prototypes of both launches differ only in `extra`, the last parameter of cuLaunchKernel. */
  private launch(
    call: 'cuLaunchKernel' | 'cuLaunchCooperativeKernel',
    kernel: number,
    shape: LaunchShape,
    stream: number,
    args: KernelArguments,
    ...extra: number[]
  ): void {
    const { grid, block, sharedBytes } = shape
    const code = this.live[call](
      exact(kernel, 'kernel'),
      uint(grid[0], 'grid x'),
      uint(grid[1], 'grid y'),
      uint(grid[2], 'grid z'),
      uint(block[0], 'block x'),
      uint(block[1], 'block y'),
      uint(block[2], 'block z'),
      uint(sharedBytes, 'sharedBytes'),
      exact(stream, 'stream'),
      this.buffer.placeArguments(args),
      ...extra,
    )
    this.check(call, code)
  }

  /**
   * Judges a refused copy. Only cuMemcpy and cuMemcpyAsync copy memory of a pool in host memory. They take an unknown
   * address for host memory and crash on it, so the driver must know all `pointers`.
   */
  private copyAgain(call: CallName, code: number, pointers: readonly number[], copy: readonly number[]): void {
    const again = copy.length === 3 ? 'cuMemcpy' : 'cuMemcpyAsync'
    const isAgain = code === RESULT.CUDA_ERROR_INVALID_VALUE && this.isHostPools(pointers)
    this.check(call, isAgain ? this.live[again](...copy) : code)
  }

  private isHostPools(pointers: readonly number[]): boolean {
    const kinds = pointers.map(ptr => {
      const known = this.live.cuPointerGetAttribute(this.first, CU_POINTER_ATTRIBUTE_MEMORY_TYPE, ptr)
      return known === RESULT.CUDA_SUCCESS ? this.buffer.int() : 0
    })
    return kinds.includes(CU_MEMORYTYPE_HOST) && !kinds.includes(0)
  }
}

/** Returns the type of file descriptors, and refuses others: they are structs of 64 bytes, not numbers. */
function fileDescriptorType(handleType: number): number {
  const type = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
  if (int(handleType, 'handleType') === type) return type
  throw new OutOfRangeError(`handleType must be ${type}, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, not ${handleType}`)
}
