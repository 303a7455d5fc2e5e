// The CUDA driver as this library sees it: the driver's own functions under their own names, nothing that remembers a
// policy or decides. Two siblings stand below: native/ (libcuda through FFI) and simulated/ (a GPU in memory). Both pass
// driver.suite.ts. A function that no code under src/ calls does not belong here.
//
// Shapes: device pointers, handles and sizes are JS numbers (exact below 2^53). A call returns its out-parameter and
// throws CudaError when the driver refuses; only the queries have a second ordinary answer and return a boolean.
// Host memory is passed as a typed array or DataView. As in CUDA, calls act on the context current in this thread.

/** Where and how a kernel runs: blocks in the grid and threads in a block along x, y, z. */
export interface LaunchShape {
  readonly grid: readonly [number, number, number]
  readonly block: readonly [number, number, number]
  readonly sharedBytes: number
}

/** Kernel arguments as the driver wants them: their bytes in one piece, and where in it each one begins. */
export interface KernelArguments {
  readonly bytes: Uint8Array
  readonly offsets: readonly number[]
}

/** What a memory pool of the driver's is made of: numbers of cuda.h, `maxBytes` 0 for the driver's own choice. */
export interface MemPoolProperties {
  readonly allocationType: number
  readonly handleTypes: number
  readonly locationType: number
  readonly locationId: number
  readonly maxBytes: number
}

/** CUDA's driver: its own functions under their own names. `SimulatedDriver` is one; `openDevice` takes any. */
export interface Driver {
  /** true if no GPU is behind it */
  readonly simulated: boolean
  /** how this driver is reached, for people: the library that was opened, or the simulation and its seed */
  readonly origin: string
  /** how often each function was called since the driver was opened; the native driver counts only after `countCalls()` */
  readonly calls: ReadonlyMap<string, number>
  /** seconds that the calls so far would have cost by the measured cost model; null on a real GPU, where a clock tells */
  readonly modelledSeconds: number | null
  /** the clock by which this driver's calls take time, in seconds from any beginning: the machine's own, or the modelled one */
  readonly clockSeconds: number
  /** where host memory lies in this process, which no call tells: pages are pinned as a whole, so others must keep off them */
  hostAddress(host: ArrayBufferView): number

  cuInit(): void
  cuDriverGetVersion(): number
  cuDeviceGetCount(): number
  cuDeviceGet(ordinal: number): number
  cuDeviceGetName(device: number): string
  cuDeviceTotalMem(device: number): number
  cuDeviceGetAttribute(attribute: number, device: number): number
  /** whether kernels and copies of `device` may reach memory of `peer` */
  cuDeviceCanAccessPeer(device: number, peer: number): boolean
  cuDevicePrimaryCtxRetain(device: number): number
  cuDevicePrimaryCtxRelease(device: number): void
  cuCtxSetCurrent(context: number): void
  cuCtxSynchronize(): void
  /** lets the current context reach memory of another one; refused when it already does */
  cuCtxEnablePeerAccess(peerContext: number): void

  cuMemGetInfo(): { freeBytes: number; totalBytes: number }
  cuMemAlloc(bytes: number): number
  cuMemFree(ptr: number): void
  cuMemHostRegister(host: ArrayBufferView, flags: number): void
  cuMemHostUnregister(host: ArrayBufferView): void
  /** the address under which kernels of the current context reach registered host memory */
  cuMemHostGetDevicePointer(host: ArrayBufferView): number
  /** memory that moves between the host and the devices as it is used; freed by cuMemFree */
  cuMemAllocManaged(bytes: number, flags: number): number
  cuMemcpyHtoD(target: number, source: ArrayBufferView): void
  cuMemcpyDtoH(target: ArrayBufferView, source: number): void
  cuMemcpyDtoD(target: number, source: number, bytes: number): void
  cuMemcpyHtoDAsync(target: number, source: ArrayBufferView, stream: number): void
  cuMemcpyDtoHAsync(target: ArrayBufferView, source: number, stream: number): void
  cuMemcpyDtoDAsync(target: number, source: number, bytes: number, stream: number): void
  /** between two contexts, by way of the host where no peer access is possible */
  cuMemcpyPeerAsync(
    target: number,
    targetContext: number,
    source: number,
    sourceContext: number,
    bytes: number,
    stream: number,
  ): void
  /** `count` bytes of `value` (0 to 255) */
  cuMemsetD8(target: number, value: number, count: number): void
  cuMemsetD8Async(target: number, value: number, count: number, stream: number): void
  /** `count` words of 4 bytes, `target` a multiple of 4 */
  cuMemsetD32Async(target: number, value: number, count: number, stream: number): void

  cuStreamCreate(flags: number): number
  cuStreamDestroy(stream: number): void
  cuStreamSynchronize(stream: number): void
  /** true when everything submitted so far has completed */
  cuStreamQuery(stream: number): boolean
  cuStreamWaitEvent(stream: number, event: number): void
  cuStreamGetCtx(stream: number): number
  /** unique while the process lives, unlike the handle, which is used again after a destroy (driver 12.0) */
  cuStreamGetId(stream: number): number
  cuStreamGetFlags(stream: number): number
  /** what is submitted to the stream from now on is recorded instead of run; `mode` is a CUstreamCaptureMode */
  cuStreamBeginCapture(stream: number, mode: number): void
  /** the graph of what was recorded; a capture that was invalidated ends with an error */
  cuStreamEndCapture(stream: number): number
  /** true also while a capture that was invalidated is not yet ended */
  cuStreamIsCapturing(stream: number): boolean
  /** sets how potentially unsafe calls of this thread are judged while there are captures; returns what it was */
  cuThreadExchangeStreamCaptureMode(mode: number): number
  cuEventCreate(flags: number): number
  cuEventDestroy(event: number): void
  cuEventRecord(event: number, stream: number): void
  /** true when complete, or never recorded */
  cuEventQuery(event: number): boolean
  cuEventSynchronize(event: number): void

  cuDeviceGetDefaultMemPool(device: number): number
  /** the pool that cuMemAllocAsync draws on */
  cuDeviceGetMemPool(device: number): number
  cuDeviceSetMemPool(device: number, pool: number): void
  cuMemPoolCreate(properties: MemPoolProperties): number
  cuMemPoolDestroy(pool: number): void
  cuMemPoolGetAttribute(pool: number, attribute: number): number
  cuMemPoolSetAttribute(pool: number, attribute: number, value: number): void
  cuMemPoolTrimTo(pool: number, keepBytes: number): void
  cuMemPoolSetAccess(pool: number, locationType: number, locationId: number, flags: number): void
  /** CUmemAccess_flags of the location */
  cuMemPoolGetAccess(pool: number, locationType: number, locationId: number): number
  /** a file descriptor, the caller's to close */
  cuMemPoolExportToShareableHandle(pool: number, handleType: number): number
  /** the descriptor stays the caller's */
  cuMemPoolImportFromShareableHandle(descriptor: number, handleType: number): number
  /** the 64 bytes by which a process that imported the pool finds a block of it */
  cuMemPoolExportPointer(ptr: number): Uint8Array<ArrayBuffer>
  cuMemPoolImportPointer(pool: number, exported: Uint8Array): number
  cuMemAllocFromPoolAsync(bytes: number, pool: number, stream: number): number
  cuMemAllocAsync(bytes: number, stream: number): number
  cuMemFreeAsync(ptr: number, stream: number): void

  cuMemGetAllocationGranularity(device: number): number
  cuMemAddressReserve(bytes: number, alignment: number): number
  cuMemAddressFree(ptr: number, bytes: number): void
  /** `handleTypes` for export, decided here for good; 0 for none */
  cuMemCreate(bytes: number, device: number, handleTypes: number): number
  cuMemRelease(handle: number): void
  cuMemMap(ptr: number, bytes: number, handle: number): void
  cuMemUnmap(ptr: number, bytes: number): void
  /** access for `devices`, over whole mappings: CUmemAccess_flags, when left out to read and write */
  cuMemSetAccess(ptr: number, bytes: number, devices: readonly number[], flags?: number): void
  /** a file descriptor, the caller's to close */
  cuMemExportToShareableHandle(handle: number, handleType: number): number
  /** a handle of the same memory, to be released like one's own; the descriptor stays the caller's */
  cuMemImportFromShareableHandle(descriptor: number, handleType: number): number

  /** `image` is PTX text or a cubin */
  cuModuleLoadData(image: string | Uint8Array): number
  cuModuleUnload(module: number): void
  cuModuleGetFunction(module: number, name: string): number
  /** `shape` and `args` are the caller's again when it returns */
  cuLaunchKernel(kernel: number, shape: LaunchShape, stream: number, args: KernelArguments): void
  /** all blocks run at the same time, so that they can wait for each other; refused when there is no room for them */
  cuLaunchCooperativeKernel(kernel: number, shape: LaunchShape, stream: number, args: KernelArguments): void
  cuFuncGetAttribute(attribute: number, kernel: number): number
  cuFuncSetAttribute(kernel: number, attribute: number, value: number): void
  /** how many blocks of so many threads run on one multiprocessor at the same time */
  cuOccupancyMaxActiveBlocksPerMultiprocessor(kernel: number, blockThreads: number, sharedBytes: number): number
  /** the block that fills the device best, and how many of them do */
  cuOccupancyMaxPotentialBlockSize(kernel: number, sharedBytes: number): { blocks: number; blockThreads: number }

  cuGraphDestroy(graph: number): void
  /** an executable graph, which needs `graph` no longer */
  cuGraphInstantiate(graph: number): number
  /** runs after what was submitted to the stream, and after earlier launches of the same executable graph */
  cuGraphLaunch(executable: number, stream: number): void
  cuGraphExecDestroy(executable: number): void
}
