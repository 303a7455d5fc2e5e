// Answers of cuDeviceGetAttribute (calls/device-calls.ts).

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

/** The only NUMA node of the simulated host. */
export const NUMA_NODE = 0

/** An attribute of simulated devices: that of an H200, without features switched off; undefined if unknown. */
export function deviceAttribute(attribute: number, options: CompleteOptions): number | undefined {
  const { virtualMemory, memoryPools, managedMemory, posixDescriptors, hostPools } = options
  switch (attribute) {
    case DEVICE_ATTRIBUTE.CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      return MOST_THREADS_PER_BLOCK
    case DEVICE_ATTRIBUTE.CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X:
    case DEVICE_ATTRIBUTE.CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Y:
    case DEVICE_ATTRIBUTE.CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_Z:
      return MOST_BLOCK[attribute - DEVICE_ATTRIBUTE.CU_DEVICE_ATTRIBUTE_MAX_BLOCK_DIM_X]
    case DEVICE_ATTRIBUTE.CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X:
    case DEVICE_ATTRIBUTE.CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Y:
    case DEVICE_ATTRIBUTE.CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_Z:
      return MOST_GRID[attribute - DEVICE_ATTRIBUTE.CU_DEVICE_ATTRIBUTE_MAX_GRID_DIM_X]
    case DEVICE_ATTRIBUTE.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK:
      return SHARED_BYTES_PER_BLOCK
    case DEVICE_ATTRIBUTE.CU_DEVICE_ATTRIBUTE_MAX_SHARED_MEMORY_PER_BLOCK_OPTIN:
      return OPTIN_SHARED_BYTES_PER_BLOCK
    case DEVICE_ATTRIBUTE.CU_DEVICE_ATTRIBUTE_COOPERATIVE_LAUNCH:
      return 1
    case DEVICE_ATTRIBUTE.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      return MULTIPROCESSORS
    case DEVICE_ATTRIBUTE.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR:
      return 9
    case DEVICE_ATTRIBUTE.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR:
      return 0
    case DEVICE_ATTRIBUTE.CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY:
      return Number(managedMemory)
    case DEVICE_ATTRIBUTE.CU_DEVICE_ATTRIBUTE_VIRTUAL_MEMORY_MANAGEMENT_SUPPORTED:
      return Number(virtualMemory)
    case DEVICE_ATTRIBUTE.CU_DEVICE_ATTRIBUTE_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR_SUPPORTED:
      return Number(virtualMemory && posixDescriptors)
    case DEVICE_ATTRIBUTE.CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED:
      return Number(memoryPools)
    case DEVICE_ATTRIBUTE.CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES:
      return memoryPools && posixDescriptors ? CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR : CU_MEM_HANDLE_TYPE_NONE
    case DEVICE_ATTRIBUTE.CU_DEVICE_ATTRIBUTE_HOST_NUMA_ID:
      return NUMA_NODE
    case DEVICE_ATTRIBUTE.CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED:
      return Number(memoryPools && hostPools)
    default:
      return undefined
  }
}
