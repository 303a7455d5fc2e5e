// The foreign-function table, read by native/library.ts: for each function of the driver contract its symbol in
// libcuda, its C parameters as in cuda.h, and the first CUDA version whose driver has it. A wrong row corrupts memory
// instead of failing. So native/header.test.ts compares each row with the installed headers, and one rule derives
// koffi's prototype from the C text. The simulated driver takes the names from here.

import type { CallName } from './driver.js'

/** Functions of libcuda besides those of the driver contract: for copies, and for the names of errors. */
const BESIDES = ['cuMemcpy', 'cuMemcpyAsync', 'cuPointerGetAttribute', 'cuGetErrorName', 'cuGetErrorString'] as const

export type FunctionName = CallName | (typeof BESIDES)[number]

type Row = readonly [symbol: string, parameters: string, since: string]

export const DRIVER_TABLE: Readonly<Record<FunctionName, Row>> = {
  cuGetErrorName: ['cuGetErrorName', 'CUresult error, const char **pStr', '6.0'],
  cuGetErrorString: ['cuGetErrorString', 'CUresult error, const char **pStr', '6.0'],

  cuInit: ['cuInit', 'unsigned int Flags', '2.0'],
  cuDriverGetVersion: ['cuDriverGetVersion', 'int *driverVersion', '2.2'],
  cuDeviceGetCount: ['cuDeviceGetCount', 'int *count', '2.0'],
  cuDeviceGet: ['cuDeviceGet', 'CUdevice *device, int ordinal', '2.0'],
  cuDeviceGetName: ['cuDeviceGetName', 'char *name, int len, CUdevice dev', '2.0'],
  cuDeviceGetUuid: ['cuDeviceGetUuid_v2', 'CUuuid *uuid, CUdevice dev', '11.4'],
  cuDeviceTotalMem: ['cuDeviceTotalMem_v2', 'size_t *bytes, CUdevice dev', '3.2'],
  cuDeviceGetAttribute: ['cuDeviceGetAttribute', 'int *pi, CUdevice_attribute attrib, CUdevice dev', '2.0'],
  cuDeviceCanAccessPeer: ['cuDeviceCanAccessPeer', 'int *canAccessPeer, CUdevice dev, CUdevice peerDev', '4.0'],
  cuDevicePrimaryCtxRetain: ['cuDevicePrimaryCtxRetain', 'CUcontext *pctx, CUdevice dev', '7.0'],
  cuDevicePrimaryCtxRelease: ['cuDevicePrimaryCtxRelease_v2', 'CUdevice dev', '11.0'],
  cuCtxSetCurrent: ['cuCtxSetCurrent', 'CUcontext ctx', '4.0'],
  cuCtxSynchronize: ['cuCtxSynchronize', 'void', '2.0'],
  cuCtxEnablePeerAccess: ['cuCtxEnablePeerAccess', 'CUcontext peerContext, unsigned int Flags', '4.0'],

  cuMemGetInfo: ['cuMemGetInfo_v2', 'size_t *free, size_t *total', '3.2'],
  cuMemAlloc: ['cuMemAlloc_v2', 'CUdeviceptr *dptr, size_t bytesize', '3.2'],
  cuMemFree: ['cuMemFree_v2', 'CUdeviceptr dptr', '3.2'],
  cuMemHostRegister: ['cuMemHostRegister_v2', 'void *p, size_t bytesize, unsigned int Flags', '6.5'],
  cuMemHostUnregister: ['cuMemHostUnregister', 'void *p', '4.0'],
  cuMemHostGetDevicePointer: ['cuMemHostGetDevicePointer_v2', 'CUdeviceptr *pdptr, void *p, unsigned int Flags', '3.2'],
  cuMemAllocManaged: ['cuMemAllocManaged', 'CUdeviceptr *dptr, size_t bytesize, unsigned int flags', '6.0'],
  // The first versions: the second ones need driver 12.2, and add only the NUMA nodes of the host as places.
  cuMemAdvise: ['cuMemAdvise', 'CUdeviceptr devPtr, size_t count, CUmem_advise advice, CUdevice device', '8.0'],
  cuMemPrefetchAsync: [
    'cuMemPrefetchAsync',
    'CUdeviceptr devPtr, size_t count, CUdevice dstDevice, CUstream hStream',
    '8.0',
  ],
  cuMemDiscardBatchAsync: [
    'cuMemDiscardBatchAsync',
    'CUdeviceptr *dptrs, size_t *sizes, size_t count, unsigned long long flags, CUstream hStream',
    '13.0',
  ],
  cuMemcpy: ['cuMemcpy', 'CUdeviceptr dst, CUdeviceptr src, size_t ByteCount', '4.0'],
  cuMemcpyAsync: ['cuMemcpyAsync', 'CUdeviceptr dst, CUdeviceptr src, size_t ByteCount, CUstream hStream', '4.0'],
  cuPointerGetAttribute: ['cuPointerGetAttribute', 'void *data, CUpointer_attribute attribute, CUdeviceptr ptr', '4.0'],
  cuMemcpyHtoD: ['cuMemcpyHtoD_v2', 'CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount', '3.2'],
  cuMemcpyDtoH: ['cuMemcpyDtoH_v2', 'void *dstHost, CUdeviceptr srcDevice, size_t ByteCount', '3.2'],
  cuMemcpyDtoD: ['cuMemcpyDtoD_v2', 'CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount', '3.2'],
  cuMemcpyHtoDAsync: [
    'cuMemcpyHtoDAsync_v2',
    'CUdeviceptr dstDevice, const void *srcHost, size_t ByteCount, CUstream hStream',
    '3.2',
  ],
  cuMemcpyDtoHAsync: [
    'cuMemcpyDtoHAsync_v2',
    'void *dstHost, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream',
    '3.2',
  ],
  cuMemcpyDtoDAsync: [
    'cuMemcpyDtoDAsync_v2',
    'CUdeviceptr dstDevice, CUdeviceptr srcDevice, size_t ByteCount, CUstream hStream',
    '3.2',
  ],
  // The first version: the second one needs driver 13.0, and differs only in failIdx, which it lacks.
  cuMemcpyBatchAsync: [
    'cuMemcpyBatchAsync',
    'CUdeviceptr *dsts, CUdeviceptr *srcs, size_t *sizes, size_t count, CUmemcpyAttributes *attrs, ' +
      'size_t *attrsIdxs, size_t numAttrs, size_t *failIdx, CUstream hStream',
    '12.8',
  ],
  cuMemcpyPeerAsync: [
    'cuMemcpyPeerAsync',
    'CUdeviceptr dstDevice, CUcontext dstContext, CUdeviceptr srcDevice, CUcontext srcContext, size_t ByteCount, ' +
      'CUstream hStream',
    '4.0',
  ],
  cuMemsetD8Async: ['cuMemsetD8Async', 'CUdeviceptr dstDevice, unsigned char uc, size_t N, CUstream hStream', '3.2'],
  cuMemsetD16Async: ['cuMemsetD16Async', 'CUdeviceptr dstDevice, unsigned short us, size_t N, CUstream hStream', '3.2'],
  cuMemsetD32Async: ['cuMemsetD32Async', 'CUdeviceptr dstDevice, unsigned int ui, size_t N, CUstream hStream', '3.2'],

  cuCtxGetStreamPriorityRange: ['cuCtxGetStreamPriorityRange', 'int *leastPriority, int *greatestPriority', '5.5'],
  cuStreamCreate: ['cuStreamCreate', 'CUstream *phStream, unsigned int Flags', '2.0'],
  cuStreamCreateWithPriority: [
    'cuStreamCreateWithPriority',
    'CUstream *phStream, unsigned int flags, int priority',
    '5.5',
  ],
  cuStreamGetPriority: ['cuStreamGetPriority', 'CUstream hStream, int *priority', '5.5'],
  cuStreamDestroy: ['cuStreamDestroy_v2', 'CUstream hStream', '4.0'],
  cuStreamSynchronize: ['cuStreamSynchronize', 'CUstream hStream', '2.0'],
  cuStreamQuery: ['cuStreamQuery', 'CUstream hStream', '2.0'],
  cuStreamWaitEvent: ['cuStreamWaitEvent', 'CUstream hStream, CUevent hEvent, unsigned int Flags', '3.2'],
  cuStreamGetCtx: ['cuStreamGetCtx', 'CUstream hStream, CUcontext *pctx', '9.2'],
  cuStreamGetId: ['cuStreamGetId', 'CUstream hStream, unsigned long long *streamId', '12.0'],
  cuStreamGetFlags: ['cuStreamGetFlags', 'CUstream hStream, unsigned int *flags', '5.5'],
  cuStreamBeginCapture: ['cuStreamBeginCapture_v2', 'CUstream hStream, CUstreamCaptureMode mode', '10.1'],
  cuStreamEndCapture: ['cuStreamEndCapture', 'CUstream hStream, CUgraph *phGraph', '10.0'],
  cuStreamIsCapturing: ['cuStreamIsCapturing', 'CUstream hStream, CUstreamCaptureStatus *captureStatus', '10.0'],
  cuThreadExchangeStreamCaptureMode: ['cuThreadExchangeStreamCaptureMode', 'CUstreamCaptureMode *mode', '10.1'],
  cuEventCreate: ['cuEventCreate', 'CUevent *phEvent, unsigned int Flags', '2.0'],
  cuEventDestroy: ['cuEventDestroy_v2', 'CUevent hEvent', '4.0'],
  cuEventRecord: ['cuEventRecord', 'CUevent hEvent, CUstream hStream', '2.0'],
  cuEventQuery: ['cuEventQuery', 'CUevent hEvent', '2.0'],
  cuEventSynchronize: ['cuEventSynchronize', 'CUevent hEvent', '2.0'],
  // The first version: the second one needs driver 12.8, and differs only for events that are not complete.
  cuEventElapsedTime: ['cuEventElapsedTime', 'float *pMilliseconds, CUevent hStart, CUevent hEnd', '2.0'],

  cuDeviceGetDefaultMemPool: ['cuDeviceGetDefaultMemPool', 'CUmemoryPool *pool_out, CUdevice dev', '11.2'],
  cuDeviceGetMemPool: ['cuDeviceGetMemPool', 'CUmemoryPool *pool, CUdevice dev', '11.2'],
  cuDeviceSetMemPool: ['cuDeviceSetMemPool', 'CUdevice dev, CUmemoryPool pool', '11.2'],
  cuMemPoolCreate: ['cuMemPoolCreate', 'CUmemoryPool *pool, const CUmemPoolProps *poolProps', '11.2'],
  cuMemPoolDestroy: ['cuMemPoolDestroy', 'CUmemoryPool pool', '11.2'],
  cuMemPoolGetAttribute: ['cuMemPoolGetAttribute', 'CUmemoryPool pool, CUmemPool_attribute attr, void *value', '11.2'],
  cuMemPoolSetAttribute: ['cuMemPoolSetAttribute', 'CUmemoryPool pool, CUmemPool_attribute attr, void *value', '11.2'],
  cuMemPoolTrimTo: ['cuMemPoolTrimTo', 'CUmemoryPool pool, size_t minBytesToKeep', '11.2'],
  cuMemPoolSetAccess: ['cuMemPoolSetAccess', 'CUmemoryPool pool, const CUmemAccessDesc *map, size_t count', '11.2'],
  cuMemPoolGetAccess: [
    'cuMemPoolGetAccess',
    'CUmemAccess_flags *flags, CUmemoryPool memPool, CUmemLocation *location',
    '11.2',
  ],
  cuMemPoolExportToShareableHandle: [
    'cuMemPoolExportToShareableHandle',
    'void *handle_out, CUmemoryPool pool, CUmemAllocationHandleType handleType, unsigned long long flags',
    '11.2',
  ],
  cuMemPoolImportFromShareableHandle: [
    'cuMemPoolImportFromShareableHandle',
    'CUmemoryPool *pool_out, void *handle, CUmemAllocationHandleType handleType, unsigned long long flags',
    '11.2',
  ],
  cuMemPoolExportPointer: ['cuMemPoolExportPointer', 'CUmemPoolPtrExportData *shareData_out, CUdeviceptr ptr', '11.2'],
  cuMemPoolImportPointer: [
    'cuMemPoolImportPointer',
    'CUdeviceptr *ptr_out, CUmemoryPool pool, CUmemPoolPtrExportData *shareData',
    '11.2',
  ],
  cuMemAllocFromPoolAsync: [
    'cuMemAllocFromPoolAsync',
    'CUdeviceptr *dptr, size_t bytesize, CUmemoryPool pool, CUstream hStream',
    '11.2',
  ],
  cuMemAllocAsync: ['cuMemAllocAsync', 'CUdeviceptr *dptr, size_t bytesize, CUstream hStream', '11.2'],
  cuMemFreeAsync: ['cuMemFreeAsync', 'CUdeviceptr dptr, CUstream hStream', '11.2'],

  cuMemGetAllocationGranularity: [
    'cuMemGetAllocationGranularity',
    'size_t *granularity, const CUmemAllocationProp *prop, CUmemAllocationGranularity_flags option',
    '10.2',
  ],
  cuMemAddressReserve: [
    'cuMemAddressReserve',
    'CUdeviceptr *ptr, size_t size, size_t alignment, CUdeviceptr addr, unsigned long long flags',
    '10.2',
  ],
  cuMemAddressFree: ['cuMemAddressFree', 'CUdeviceptr ptr, size_t size', '10.2'],
  cuMemCreate: [
    'cuMemCreate',
    'CUmemGenericAllocationHandle *handle, size_t size, const CUmemAllocationProp *prop, unsigned long long flags',
    '10.2',
  ],
  cuMemRelease: ['cuMemRelease', 'CUmemGenericAllocationHandle handle', '10.2'],
  cuMemMap: [
    'cuMemMap',
    'CUdeviceptr ptr, size_t size, size_t offset, CUmemGenericAllocationHandle handle, unsigned long long flags',
    '10.2',
  ],
  cuMemUnmap: ['cuMemUnmap', 'CUdeviceptr ptr, size_t size', '10.2'],
  cuMemSetAccess: ['cuMemSetAccess', 'CUdeviceptr ptr, size_t size, const CUmemAccessDesc *desc, size_t count', '10.2'],
  cuMemExportToShareableHandle: [
    'cuMemExportToShareableHandle',
    'void *shareableHandle, CUmemGenericAllocationHandle handle, CUmemAllocationHandleType handleType, ' +
      'unsigned long long flags',
    '10.2',
  ],
  cuMemImportFromShareableHandle: [
    'cuMemImportFromShareableHandle',
    'CUmemGenericAllocationHandle *handle, void *osHandle, CUmemAllocationHandleType shHandleType',
    '10.2',
  ],

  // The form with options also returns the log of the PTX compiler.
  cuModuleLoadData: [
    'cuModuleLoadDataEx',
    'CUmodule *module, const void *image, unsigned int numOptions, CUjit_option *options, void **optionValues',
    '2.1',
  ],
  cuModuleUnload: ['cuModuleUnload', 'CUmodule hmod', '2.0'],
  cuModuleGetFunction: ['cuModuleGetFunction', 'CUfunction *hfunc, CUmodule hmod, const char *name', '2.0'],
  cuLaunchKernel: [
    'cuLaunchKernel',
    'CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ, unsigned int blockDimX, ' +
      'unsigned int blockDimY, unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream, ' +
      'void **kernelParams, void **extra',
    '4.0',
  ],
  cuLaunchCooperativeKernel: [
    'cuLaunchCooperativeKernel',
    'CUfunction f, unsigned int gridDimX, unsigned int gridDimY, unsigned int gridDimZ, unsigned int blockDimX, ' +
      'unsigned int blockDimY, unsigned int blockDimZ, unsigned int sharedMemBytes, CUstream hStream, ' +
      'void **kernelParams',
    '9.0',
  ],
  cuFuncGetAttribute: ['cuFuncGetAttribute', 'int *pi, CUfunction_attribute attrib, CUfunction hfunc', '2.2'],
  cuFuncSetAttribute: ['cuFuncSetAttribute', 'CUfunction hfunc, CUfunction_attribute attrib, int value', '9.0'],
  cuOccupancyMaxActiveBlocksPerMultiprocessor: [
    'cuOccupancyMaxActiveBlocksPerMultiprocessor',
    'int *numBlocks, CUfunction func, int blockSize, size_t dynamicSMemSize',
    '6.5',
  ],
  cuOccupancyMaxPotentialBlockSize: [
    'cuOccupancyMaxPotentialBlockSize',
    'int *minGridSize, int *blockSize, CUfunction func, CUoccupancyB2DSize blockSizeToDynamicSMemSize, ' +
      'size_t dynamicSMemSize, int blockSizeLimit',
    '6.5',
  ],

  cuGraphDestroy: ['cuGraphDestroy', 'CUgraph hGraph', '10.0'],
  cuGraphInstantiate: [
    'cuGraphInstantiateWithFlags',
    'CUgraphExec *phGraphExec, CUgraph hGraph, unsigned long long flags',
    '11.4',
  ],
  cuGraphLaunch: ['cuGraphLaunch', 'CUgraphExec hGraphExec, CUstream hStream', '10.0'],
  cuGraphExecDestroy: ['cuGraphExecDestroy', 'CUgraphExec hGraphExec', '10.0'],
}

export const FUNCTION_NAMES = Object.keys(DRIVER_TABLE) as FunctionName[]

/** The functions of the driver contract. */
export const CALL_NAMES = FUNCTION_NAMES.filter(
  (name): name is CallName => !(BESIDES as readonly string[]).includes(name),
)

/** The prototype for koffi: the C prototype, with CUDA's types replaced by the number types that are passed. */
export function koffiPrototype(name: FunctionName): string {
  const [symbol, parameters] = DRIVER_TABLE[name]
  return `int ${symbol}(${parameters.split(', ').map(koffiType).join(', ')})`
}

/**
 * Host memory and strings stay pointers, for which koffi accepts typed arrays and strings. Devices and enumerations
 * are ints. All other pointers, handles and device addresses are 64-bit numbers, because koffi returns a `void *` as
 * BigInt.
 */
function koffiType(parameter: string): string {
  const type = parameter.replace(/\w+$/, '').trim()
  if (type === '' || /^(const )?void \*$|^const char \*$/.test(type)) return parameter
  if (type.includes('*')) return 'uint64_t'
  if (/^CU(device|result|memAllocationHandleType|streamCaptureMode|\w+_\w+)$/.test(type)) return 'int'
  return type.startsWith('CU') ? 'uint64_t' : type
}
