// libcuda itself behind the driver contract. Each method checks its numbers, because koffi would quietly make 1 of 1.5
// and 0 of NaN, passes everything by number, and reads the result out of the buffer memory. Functions are looked up in
// the library at their first call, so that an old driver can do all that it is able to do. One file, long as the contract is.
//
// Calls that act on the current context fail with DeviceLostError once a fault has killed it. Calls that name a device
// or a context do not, since another device of the same process still works.

import type { CudaError } from '../../base/errors.js'
import { exact, fileDescriptor, hostMemory, int, text, uint, within } from '../../libraries/arguments.js'
import {
  CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
  CU_MEM_ALLOC_GRANULARITY_MINIMUM,
  CU_MEM_HANDLE_TYPE_NONE,
  CU_MEMORYTYPE_HOST,
  CU_POINTER_ATTRIBUTE_MEMORY_TYPE,
  CU_STREAM_CAPTURE_STATUS_NONE,
  POOL_ATTRIBUTE,
  RESULT,
} from '../constants.js'
import type { Driver, KernelArguments, LaunchShape, MemPoolProperties } from '../driver.js'
import { StickyErrors } from '../sticky-errors.js'
import { fileDescriptorType } from './handle-type.js'
import { boundWhenCalled, type Functions, type Library, openLibrary } from './library.js'
import { MarshallingBuffer } from './marshalling-buffer.js'
import { FUNCTION_NAMES } from './table.js'

const NO_CONTEXT = 0

/** What an error names: a function of the contract. */
type CallName = Extract<keyof Driver, `cu${string}`>

export class NativeDriver implements Driver {
  readonly simulated = false
  readonly origin: string
  readonly calls = new Map<string, number>()
  readonly modelledSeconds = null

  get clockSeconds(): number {
    return performance.now() / 1000
  }

  private readonly bound: Functions
  /** what the methods call: `bound`, or the same with a counter in front */
  private functions: Functions
  private readonly buffer: MarshallingBuffer
  private readonly stickyErrors = new StickyErrors()
  private context = NO_CONTEXT

  constructor(private readonly library: Library) {
    this.origin = library.path
    this.buffer = new MarshallingBuffer(library.addressOf)
    this.bound = boundWhenCalled(library)
    this.functions = this.bound
  }

  /** Throws NoDeviceError where there is no CUDA driver. No device is touched before `cuInit`. */
  static open(): NativeDriver {
    return new NativeDriver(openLibrary())
  }

  hostAddress(host: ArrayBufferView): number {
    return this.library.addressOf(hostMemory(host, 'host'))
  }

  /** From here on `calls` counts. It costs about 50 ns a call. */
  countCalls(): void {
    const counted = {} as Functions
    for (const name of FUNCTION_NAMES) {
      counted[name] = (...args) => {
        this.calls.set(name, (this.calls.get(name) ?? 0) + 1)
        return this.bound[name](...args)
      }
    }
    this.functions = counted
  }

  cuInit(): void {
    this.check('cuInit', this.functions.cuInit(0), NO_CONTEXT)
  }

  cuDriverGetVersion(): number {
    this.check('cuDriverGetVersion', this.functions.cuDriverGetVersion(this.buffer.first), NO_CONTEXT)
    return this.buffer.int()
  }

  cuDeviceGetCount(): number {
    this.check('cuDeviceGetCount', this.functions.cuDeviceGetCount(this.buffer.first), NO_CONTEXT)
    return this.buffer.int()
  }

  cuDeviceGet(ordinal: number): number {
    this.check('cuDeviceGet', this.functions.cuDeviceGet(this.buffer.first, int(ordinal, 'ordinal')), NO_CONTEXT)
    return this.buffer.int()
  }

  cuDeviceGetName(device: number): string {
    const { text, textBytes } = this.buffer
    this.check('cuDeviceGetName', this.functions.cuDeviceGetName(text, textBytes, int(device, 'device')), NO_CONTEXT)
    return this.buffer.readText()
  }

  cuDeviceTotalMem(device: number): number {
    const code = this.functions.cuDeviceTotalMem(this.buffer.first, int(device, 'device'))
    this.check('cuDeviceTotalMem', code, NO_CONTEXT)
    return this.buffer.exact()
  }

  cuDeviceGetAttribute(attribute: number, device: number): number {
    const { first } = this.buffer
    const code = this.functions.cuDeviceGetAttribute(first, int(attribute, 'attribute'), int(device, 'device'))
    this.check('cuDeviceGetAttribute', code, NO_CONTEXT)
    return this.buffer.int()
  }

  cuDeviceCanAccessPeer(device: number, peer: number): boolean {
    const code = this.functions.cuDeviceCanAccessPeer(this.buffer.first, int(device, 'device'), int(peer, 'peer'))
    this.check('cuDeviceCanAccessPeer', code, NO_CONTEXT)
    return this.buffer.int() !== 0
  }

  cuDevicePrimaryCtxRetain(device: number): number {
    const code = this.functions.cuDevicePrimaryCtxRetain(this.buffer.first, int(device, 'device'))
    this.check('cuDevicePrimaryCtxRetain', code, NO_CONTEXT)
    return this.buffer.exact()
  }

  cuDevicePrimaryCtxRelease(device: number): void {
    const code = this.functions.cuDevicePrimaryCtxRelease(int(device, 'device'))
    this.check('cuDevicePrimaryCtxRelease', code, NO_CONTEXT)
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

  cuStreamCreate(flags: number): number {
    this.check('cuStreamCreate', this.live.cuStreamCreate(this.buffer.first, uint(flags, 'flags')))
    return this.buffer.exact()
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
    this.check('cuStreamGetCtx', this.live.cuStreamGetCtx(exact(stream, 'stream'), this.buffer.first))
    return this.buffer.exact()
  }

  cuStreamGetId(stream: number): number {
    this.check('cuStreamGetId', this.live.cuStreamGetId(exact(stream, 'stream'), this.buffer.first))
    return this.buffer.exact()
  }

  cuStreamGetFlags(stream: number): number {
    this.check('cuStreamGetFlags', this.live.cuStreamGetFlags(exact(stream, 'stream'), this.buffer.first))
    return this.buffer.int()
  }

  cuStreamBeginCapture(stream: number, mode: number): void {
    this.check('cuStreamBeginCapture', this.live.cuStreamBeginCapture(exact(stream, 'stream'), int(mode, 'mode')))
  }

  cuStreamEndCapture(stream: number): number {
    this.check('cuStreamEndCapture', this.live.cuStreamEndCapture(exact(stream, 'stream'), this.buffer.first))
    return this.buffer.exact()
  }

  cuStreamIsCapturing(stream: number): boolean {
    this.check('cuStreamIsCapturing', this.live.cuStreamIsCapturing(exact(stream, 'stream'), this.buffer.first))
    return this.buffer.int() !== CU_STREAM_CAPTURE_STATUS_NONE
  }

  cuThreadExchangeStreamCaptureMode(mode: number): number {
    this.buffer.placeAmount(int(mode, 'mode'))
    const code = this.functions.cuThreadExchangeStreamCaptureMode(this.buffer.first)
    this.check('cuThreadExchangeStreamCaptureMode', code, NO_CONTEXT)
    return this.buffer.int()
  }

  cuEventCreate(flags: number): number {
    this.check('cuEventCreate', this.live.cuEventCreate(this.buffer.first, uint(flags, 'flags')))
    return this.buffer.exact()
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
    this.buffer.placeAmount(0) // of a policy, a C int, the driver writes only the lower half
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

  cuMemPoolExportPointer(ptr: number): Uint8Array<ArrayBuffer> {
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

  cuModuleLoadData(image: string | Uint8Array): number {
    const source = typeof image === 'string' ? Buffer.from(image) : hostMemory(image, 'image')
    const { buffer } = this
    buffer.clearText()
    // PTX must end in a zero byte; to a cubin it does no harm
    const ended = Buffer.concat([source, Buffer.alloc(1)])
    const code = this.live.cuModuleLoadData(buffer.first, ended, 2, buffer.jitOptions, buffer.jitValues)
    if (code !== RESULT.CUDA_SUCCESS) throw this.refusal('cuModuleLoadData', code, this.context, buffer.readText())
    return buffer.exact()
  }

  cuModuleUnload(module: number): void {
    this.check('cuModuleUnload', this.live.cuModuleUnload(exact(module, 'module')))
  }

  cuModuleGetFunction(module: number, name: string): number {
    const code = this.live.cuModuleGetFunction(this.buffer.first, exact(module, 'module'), text(name, 'name'))
    this.check('cuModuleGetFunction', code)
    return this.buffer.exact()
  }

  cuLaunchKernel(kernel: number, shape: LaunchShape, stream: number, args: KernelArguments): void {
    const { grid, block, sharedBytes } = shape
    const code = this.live.cuLaunchKernel(
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
      0,
    )
    this.check('cuLaunchKernel', code)
  }

  cuLaunchCooperativeKernel(kernel: number, shape: LaunchShape, stream: number, args: KernelArguments): void {
    const { grid, block, sharedBytes } = shape
    const code = this.live.cuLaunchCooperativeKernel(
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
    )
    this.check('cuLaunchCooperativeKernel', code)
  }

  cuFuncGetAttribute(attribute: number, kernel: number): number {
    const { first } = this.buffer
    const code = this.live.cuFuncGetAttribute(first, int(attribute, 'attribute'), exact(kernel, 'kernel'))
    this.check('cuFuncGetAttribute', code)
    return this.buffer.int()
  }

  cuFuncSetAttribute(kernel: number, attribute: number, value: number): void {
    const code = this.live.cuFuncSetAttribute(exact(kernel, 'kernel'), int(attribute, 'attribute'), int(value, 'value'))
    this.check('cuFuncSetAttribute', code)
  }

  cuOccupancyMaxActiveBlocksPerMultiprocessor(kernel: number, blockThreads: number, sharedBytes: number): number {
    const code = this.live.cuOccupancyMaxActiveBlocksPerMultiprocessor(
      this.buffer.first,
      exact(kernel, 'kernel'),
      int(blockThreads, 'blockThreads'),
      exact(sharedBytes, 'sharedBytes'),
    )
    this.check('cuOccupancyMaxActiveBlocksPerMultiprocessor', code)
    return this.buffer.int()
  }

  cuOccupancyMaxPotentialBlockSize(kernel: number, sharedBytes: number): { blocks: number; blockThreads: number } {
    const code = this.live.cuOccupancyMaxPotentialBlockSize(
      this.buffer.first,
      this.buffer.second,
      exact(kernel, 'kernel'),
      0,
      exact(sharedBytes, 'sharedBytes'),
      0,
    )
    this.check('cuOccupancyMaxPotentialBlockSize', code)
    return { blocks: this.buffer.int(), blockThreads: this.buffer.intSecond() }
  }

  cuGraphDestroy(graph: number): void {
    this.check('cuGraphDestroy', this.live.cuGraphDestroy(exact(graph, 'graph')))
  }

  cuGraphInstantiate(graph: number): number {
    this.check('cuGraphInstantiate', this.live.cuGraphInstantiate(this.buffer.first, exact(graph, 'graph'), 0))
    return this.buffer.exact()
  }

  cuGraphLaunch(executable: number, stream: number): void {
    this.check('cuGraphLaunch', this.live.cuGraphLaunch(exact(executable, 'executable'), exact(stream, 'stream')))
  }

  cuGraphExecDestroy(executable: number): void {
    this.check('cuGraphExecDestroy', this.live.cuGraphExecDestroy(exact(executable, 'executable')))
  }

  /** The functions for calls that act on the current context; throws DeviceLostError when that is lost. */
  private get live(): Functions {
    this.stickyErrors.guard(this.context)
    return this.functions
  }

  /**
   * Whether a copy was refused because memory lies in a host pool, which only the copies of any direction take. Those take
   * an unknown address for host memory and crash on it, so every pointer must be one that the driver knows.
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

  private check(call: CallName, code: number, context = this.context): void {
    if (code !== RESULT.CUDA_SUCCESS) throw this.refusal(call, code, context)
  }

  private answer(call: CallName, code: number): boolean {
    if (code === RESULT.CUDA_ERROR_NOT_READY) return false
    this.check(call, code)
    return true
  }

  private refusal(call: CallName, code: number, context: number, log = ''): CudaError {
    const name = this.describe('cuGetErrorName', code) || 'an unknown result'
    const text = this.describe('cuGetErrorString', code)
    return this.stickyErrors.refuse(context, call, code, name, log === '' ? text : `${text}: ${log}`)
  }

  private describe(by: 'cuGetErrorName' | 'cuGetErrorString', code: number): string {
    const { first } = this.buffer
    return this.bound[by](code, first) === RESULT.CUDA_SUCCESS ? this.library.textAt(this.buffer.exact()) : ''
  }
}

/** The policies of reuse are C ints; every other attribute of a pool is an amount of 64 bits. */
function isPolicy(attribute: number): boolean {
  return attribute <= POOL_ATTRIBUTE.CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES
}
