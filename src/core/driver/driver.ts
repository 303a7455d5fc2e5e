// The driver contract: CUDA's driver functions under their own names, without policy. Everything above calls a GPU
// through it. native/ implements it over libcuda, simulated/ without a GPU; both pass driver.suite.ts. A function
// without a caller in src/ does not belong here.
//
// Opening: core/device/open.ts opens a driver of one kind, and a Context (context.ts) for each device. Another thread
// gets the same driver by shared-driver.ts. Other layers use this contract, not native/ or simulated/;
// test/layers.test.ts lists the exceptions.
//
// Device pointers, handles and sizes are JS numbers, exact below 2^53. A call returns its out-parameter and throws
// CudaError if the driver refuses; queries return a boolean. Host memory is passed as a typed array or DataView. As
// in CUDA, calls act on the current context of the thread.

import type { Bytes } from '../base/typed-arrays.js'
import type { NvmlAnswer } from '../libraries/nvml.js'

/** The shape of a launch: blocks in the grid, and threads in a block, along x, y and z. */
export interface LaunchShape {
  /** blocks along x, y and z */
  readonly grid: readonly [number, number, number]
  /** threads of a block along x, y and z */
  readonly block: readonly [number, number, number]
  /** dynamic shared memory of each block */
  readonly sharedBytes: number
}

/** Kernel arguments: their bytes in one piece, and the offset of each argument. */
export interface KernelArguments {
  /** the arguments one after another, aligned as the kernel expects them */
  readonly bytes: Uint8Array
  /** where each argument begins in `bytes` */
  readonly offsets: readonly number[]
}

/** One copy of a batch, between host memory and as many bytes at a device address. */
export interface BatchedCopy {
  /** memory in this process */
  readonly host: ArrayBufferView
  /** an address on the device */
  readonly ptr: number
}

/** Where all copies of a batch go. */
export type CopyDirection = 'toDevice' | 'toHost'

/** The most copies of one batch. */
export const MOST_BATCHED_COPIES = 1024

/** Properties of a cuMemPool, as numbers of cuda.h. */
export interface MemPoolProperties {
  /** CUmemAllocationType */
  readonly allocationType: number
  /** the sum of CUmemAllocationHandleType values that memory can be exported as; 0 for none */
  readonly handleTypes: number
  /** CUmemLocationType */
  readonly locationType: number
  /** number of the device or NUMA node */
  readonly locationId: number
  /** most bytes of the pool; 0: the driver chooses */
  readonly maxBytes: number
}

/** All functions of the CUDA driver that this library calls. */
export interface Driver {
  /** true if no GPU is behind it */
  readonly simulated: boolean
  /** for people: the path of the opened library, or the simulation and its seed */
  readonly origin: string
  /** calls since the driver was opened, by function; the native driver counts only after `countCalls()` */
  readonly calls: ReadonlyMap<string, number>
  /** seconds that the calls so far cost by the measured cost model; null on a real GPU, which a clock measures */
  readonly modelledSeconds: number | null
  /** The address of host memory in this process. Pinning affects whole pages, so other memory must keep off them. */
  hostAddress(host: ArrayBufferView): number
  /** The NUMA nodes of the host that have memory; an empty list if the system does not tell. */
  hostNodes(): readonly number[]
  /**
   * Makes fresh host memory fit for registering: huge pages where the system has them, on NUMA node `node`, or on any
   * for -1. Concerns the whole pages of `host` alone. False if the system refuses to bind memory to a node.
   */
  placeHost(host: ArrayBufferView, node: number): boolean
  /** Takes the node of `placeHost` back. For memory that is about to be used for something else. */
  unplaceHost(host: ArrayBufferView): void
  /**
   * Fills host memory with zeros in another thread, so that registering finds all of its pages, and takes this thread
   * less time. Leave the memory alone meanwhile. Resolves at once if every thread is busy.
   */
  fillHost(host: ArrayBufferView): Promise<void>
  /**
   * the processes that use a device, by NVML or by the simulated machine; null if they are not known
   * @internal
   */
  usersOf?(device: number): NvmlAnswer | null

  cuInit(): void
  cuDriverGetVersion(): number
  cuDeviceGetCount(): number
  cuDeviceGet(ordinal: number): number
  cuDeviceGetName(device: number): string
  /** 16 bytes that name the device on this machine and every other; of a MIG device its own */
  cuDeviceGetUuid(device: number): Bytes
  cuDeviceTotalMem(device: number): number
  cuDeviceGetAttribute(attribute: number, device: number): number
  /** whether kernels and copies of `device` can be given access to memory of `peer` */
  cuDeviceCanAccessPeer(device: number, peer: number): boolean
  cuDevicePrimaryCtxRetain(device: number): number
  cuDevicePrimaryCtxRelease(device: number): void
  cuCtxSetCurrent(context: number): void
  cuCtxSynchronize(): void
  /** gives the current context access to linear memory of `peerContext`; refused if it has access already */
  cuCtxEnablePeerAccess(peerContext: number): void

  cuMemGetInfo(): { freeBytes: number; totalBytes: number }
  cuMemAlloc(bytes: number): number
  cuMemFree(ptr: number): void
  cuMemHostRegister(host: ArrayBufferView, flags: number): void
  cuMemHostUnregister(host: ArrayBufferView): void
  /** the address of registered host memory for kernels of the current context */
  cuMemHostGetDevicePointer(host: ArrayBufferView): number
  /** memory that migrates between the host and the devices on use; freed by cuMemFree */
  cuMemAllocManaged(bytes: number, flags: number): number
  /** how managed memory will be used; `advice` is a CUmem_advise, `device` a device or CU_DEVICE_CPU */
  cuMemAdvise(ptr: number, bytes: number, advice: number, device: number): void
  /** moves managed memory, in whole pages, to a device or to CU_DEVICE_CPU; cannot be captured */
  cuMemPrefetchAsync(ptr: number, bytes: number, device: number, stream: number): void
  /**
   * the contents of one range of managed memory are not needed any more; in no legacy default stream, and no captured
   * one; needs driver 13.0
   */
  cuMemDiscardBatchAsync(ptr: number, bytes: number, stream: number): void
  cuMemcpyHtoD(target: number, source: ArrayBufferView): void
  cuMemcpyDtoH(target: ArrayBufferView, source: number): void
  cuMemcpyDtoD(target: number, source: number, bytes: number): void
  cuMemcpyHtoDAsync(target: number, source: ArrayBufferView, stream: number): void
  cuMemcpyDtoHAsync(target: ArrayBufferView, source: number, stream: number): void
  cuMemcpyDtoDAsync(target: number, source: number, bytes: number, stream: number): void
  /**
   * 1 to 1,024 copies, which may run in any order; the host memory is registered, and read when its copy runs. In no
   * legacy default stream, and no captured one; needs driver 12.8. A GPU's driver may take an unknown `ptr` for host
   * memory
   */
  cuMemcpyBatchAsync(copies: readonly BatchedCopy[], direction: CopyDirection, stream: number): void
  /** between two contexts, through the host if peer access is not possible */
  cuMemcpyPeerAsync(
    target: number,
    targetContext: number,
    source: number,
    sourceContext: number,
    bytes: number,
    stream: number,
  ): void
  /** `count` bytes of `value` (0 to 255) */
  cuMemsetD8Async(target: number, value: number, count: number, stream: number): void
  /** `count` times the 2 bytes of `value` (0 to 65,535); `target` is a multiple of 2 */
  cuMemsetD16Async(target: number, value: number, count: number, stream: number): void
  /** `count` words of 4 bytes; `target` is a multiple of 4 */
  cuMemsetD32Async(target: number, value: number, count: number, stream: number): void

  /** the priorities that streams can have: lower numbers come first; both are 0 on a device without priorities */
  cuCtxGetStreamPriorityRange(): { least: number; greatest: number }
  cuStreamCreate(flags: number): number
  /** a priority beyond the range counts as the nearest one in it */
  cuStreamCreateWithPriority(flags: number, priority: number): number
  cuStreamGetPriority(stream: number): number
  cuStreamDestroy(stream: number): void
  cuStreamSynchronize(stream: number): void
  /** true if all work submitted so far has completed */
  cuStreamQuery(stream: number): boolean
  cuStreamWaitEvent(stream: number, event: number): void
  cuStreamGetCtx(stream: number): number
  /** unique in the process, unlike the handle, which is used again after a destroy; needs driver 12.0 */
  cuStreamGetId(stream: number): number
  cuStreamGetFlags(stream: number): number
  /** from now on, work submitted to the stream is recorded instead of run; `mode` is a CUstreamCaptureMode */
  cuStreamBeginCapture(stream: number, mode: number): void
  /** the graph of the recorded work; an invalidated capture ends with an error */
  cuStreamEndCapture(stream: number): number
  /** true until the capture is ended, even after it was invalidated */
  cuStreamIsCapturing(stream: number): boolean
  /** sets the mode for potentially unsafe calls of this thread during captures; returns the mode before */
  cuThreadExchangeStreamCaptureMode(mode: number): number
  cuEventCreate(flags: number): number
  cuEventDestroy(event: number): void
  cuEventRecord(event: number, stream: number): void
  /** true if complete, or never recorded */
  cuEventQuery(event: number): boolean
  cuEventSynchronize(event: number): void
  /** milliseconds between the latest records of two events with timing, which are both complete */
  cuEventElapsedTime(start: number, end: number): number

  cuDeviceGetDefaultMemPool(device: number): number
  /** the current pool, from which cuMemAllocAsync allocates */
  cuDeviceGetMemPool(device: number): number
  cuDeviceSetMemPool(device: number, pool: number): void
  cuMemPoolCreate(properties: MemPoolProperties): number
  cuMemPoolDestroy(pool: number): void
  cuMemPoolGetAttribute(pool: number, attribute: number): number
  cuMemPoolSetAttribute(pool: number, attribute: number, value: number): void
  cuMemPoolTrimTo(pool: number, keepBytes: number): void
  cuMemPoolSetAccess(pool: number, locationType: number, locationId: number, flags: number): void
  /** CUmemAccess_flags of the location for this pool */
  cuMemPoolGetAccess(pool: number, locationType: number, locationId: number): number
  /** a file descriptor, which the caller closes */
  cuMemPoolExportToShareableHandle(pool: number, handleType: number): number
  /** a handle of the exported pool; the caller keeps the descriptor */
  cuMemPoolImportFromShareableHandle(descriptor: number, handleType: number): number
  /** 64 bytes that name a block of the pool to a process that imported the pool */
  cuMemPoolExportPointer(ptr: number): Bytes
  cuMemPoolImportPointer(pool: number, exported: Uint8Array): number
  cuMemAllocFromPoolAsync(bytes: number, pool: number, stream: number): number
  cuMemAllocAsync(bytes: number, stream: number): number
  cuMemFreeAsync(ptr: number, stream: number): void

  /** sizes and addresses of memory with `handleTypes` are multiples of this; `option` is the minimum by default */
  cuMemGetAllocationGranularity(device: number, option?: number, handleTypes?: number): number
  cuMemAddressReserve(bytes: number, alignment: number): number
  cuMemAddressFree(ptr: number, bytes: number): void
  /**
   * `handleTypes` says how the memory can be exported, and cannot change later; 0 for no export. `gpuDirectRdma`: other
   * devices on the bus, such as network cards, can use the memory; refused where attribute 110 is 0
   */
  cuMemCreate(bytes: number, device: number, handleTypes: number, gpuDirectRdma?: boolean): number
  cuMemRelease(handle: number): void
  cuMemMap(ptr: number, bytes: number, handle: number): void
  cuMemUnmap(ptr: number, bytes: number): void
  /**
   * access of `devices` to whole mappings: `flags` are CUmemAccess_flags, by default read and write; fills of memory
   * that may only be read, and copies into it, are refused with CUDA_ERROR_INVALID_VALUE
   */
  cuMemSetAccess(ptr: number, bytes: number, devices: readonly number[], flags?: number): void
  /** a file descriptor, which the caller closes */
  cuMemExportToShareableHandle(handle: number, handleType: number): number
  /** a handle of the same memory, which the caller releases; the caller keeps the descriptor */
  cuMemImportFromShareableHandle(descriptor: number, handleType: number): number

  /** `image` is PTX text, a cubin or a fatbin; the driver trusts the sizes in the latter two */
  cuModuleLoadData(image: string | Uint8Array): number
  cuModuleUnload(module: number): void
  cuModuleGetFunction(module: number, name: string): number
  /** copies `shape` and `args` before it returns */
  cuLaunchKernel(kernel: number, shape: LaunchShape, stream: number, args: KernelArguments): void
  /** all blocks run at the same time, so that they can wait for each other; refused if they do not fit */
  cuLaunchCooperativeKernel(kernel: number, shape: LaunchShape, stream: number, args: KernelArguments): void
  cuFuncGetAttribute(attribute: number, kernel: number): number
  cuFuncSetAttribute(kernel: number, attribute: number, value: number): void
  /** blocks of `blockThreads` threads that a multiprocessor can run at the same time */
  cuOccupancyMaxActiveBlocksPerMultiprocessor(kernel: number, blockThreads: number, sharedBytes: number): number
  /** the block size with the highest occupancy, and the number of such blocks that fill the device */
  cuOccupancyMaxPotentialBlockSize(kernel: number, sharedBytes: number): { blocks: number; blockThreads: number }

  cuGraphDestroy(graph: number): void
  /** an executable graph, which does not need `graph` any more */
  cuGraphInstantiate(graph: number): number
  /** runs after all work submitted to the stream, and after earlier launches of the same executable graph */
  cuGraphLaunch(executable: number, stream: number): void
  cuGraphExecDestroy(executable: number): void
}

/** The functions of the driver contract. */
export type CallName = Extract<keyof Driver, `cu${string}`>

/** The functions of mapped memory, from the reservation of its addresses to their end. */
export const MAPPING_CALLS = [
  'cuMemAddressReserve',
  'cuMemCreate',
  'cuMemMap',
  'cuMemSetAccess',
  'cuMemUnmap',
  'cuMemRelease',
  'cuMemAddressFree',
] as const satisfies readonly (keyof Driver)[]
