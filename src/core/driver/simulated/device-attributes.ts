// Answers of cuDeviceGetAttribute (calls.ts).

import { CU_MEM_HANDLE_TYPE_NONE, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, DEVICE_ATTRIBUTE } from '../constants.js'
import {
  MOST_BLOCK,
  MOST_GRID,
  MOST_THREADS_PER_BLOCK,
  MULTIPROCESSORS,
  OPTIN_SHARED_BYTES_PER_BLOCK,
  SHARED_BYTES_PER_BLOCK,
} from './kernels/launch-limits.js'
import type { CompleteOptions } from './options.js'

const NAMES = Object.keys(DEVICE_ATTRIBUTE) as (keyof typeof DEVICE_ATTRIBUTE)[]

/** The compute capability of simulated devices, 9.0, in one number. */
export const ARCHITECTURE = 90

/** An attribute of simulated devices: that of an H200, without features switched off; undefined if unknown. */
export function deviceAttribute(attribute: number, options: CompleteOptions): number | undefined {
  const {
    virtualMemory,
    memoryPools,
    managedMemory,
    concurrentManagedAccess,
    posixDescriptors,
    hostPools,
    numaNodes,
    machine,
    fabricHandles,
    gpuDirectRdma,
  } = options
  const sharesPools = memoryPools && posixDescriptors && machine === null
  const pooledTypes = sharesPools ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE
  const values: Readonly<Record<keyof typeof DEVICE_ATTRIBUTE, number>> = {
    CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK: MOST_THREADS_PER_BLOCK,
    CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X: MOST_BLOCK[0],
    CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y: MOST_BLOCK[1],
    CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z: MOST_BLOCK[2],
    CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X: MOST_GRID[0],
    CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y: MOST_GRID[1],
    CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z: MOST_GRID[2],
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK: SHARED_BYTES_PER_BLOCK,
    CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN: OPTIN_SHARED_BYTES_PER_BLOCK,
    CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH: 1,
    CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT: MULTIPROCESSORS,
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR: Math.floor(ARCHITECTURE / 10),
    CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR: ARCHITECTURE % 10,
    CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY: Number(managedMemory),
    CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS: Number(managedMemory && concurrentManagedAccess),
    CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED: Number(virtualMemory),
    CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED: Number(virtualMemory && posixDescriptors),
    CU_DEVICE_ATTRIBUTE_GPU_DIRECT_RDMA_WITH_CUDA_VMM_SUPPORTED: Number(virtualMemory && gpuDirectRdma),
    CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED: Number(memoryPools),
    CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES: pooledTypes,
    CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_FABRIC_SUPPORTED: Number(virtualMemory && fabricHandles !== false),
    CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID: numaNodes - 1,
    CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED: Number(memoryPools && hostPools && numaNodes > 0),
  }
  const name = NAMES.find(each => DEVICE_ATTRIBUTE[each] === attribute)
  return name && values[name]
}
