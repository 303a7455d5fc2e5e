import { CU_MEM_HANDLE_TYPE_NONE, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, DEVICE_ATTRIBUTE } from '../constants.js'
import { MOST_THREADS_PER_BLOCK } from './kernels.js'
import type { SimulatedOptions } from './options.js'

/** The one node of the simulated host. */
export const NUMA_NODE = 0

/** An attribute of every simulated device, those of an H200 but for what the options take away; undefined: none such. */
export function deviceAttribute(attribute: number, options: Required<SimulatedOptions>): number | undefined {
  const { virtualMemory, memoryPools, managedMemory, posixDescriptors, hostPools } = options
  switch (attribute) {
    case DEVICE_ATTRIBUTE.CU_DEVICE_ATTRIBUTE_MAX_THREADS_PER_BLOCK:
      return MOST_THREADS_PER_BLOCK
    case DEVICE_ATTRIBUTE.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT:
      return 132
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
