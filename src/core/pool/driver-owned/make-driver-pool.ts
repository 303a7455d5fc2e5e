// Makes driver pools, and explains refusals. The driver may refuse a pool that its attributes offer, so its own
// refusal is explained, too.

import { CudaError, PoolError } from '../../base/errors.js'
import {
  CU_MEM_ACCESS_FLAGS_PROT_READWRITE,
  CU_MEM_ALLOCATION_TYPE_MANAGED,
  CU_MEM_HANDLE_TYPE_NONE,
  CU_MEM_LOCATION_TYPE_DEVICE,
  CU_MEM_LOCATION_TYPE_HOST_NUMA,
  RESULT,
} from '../../driver/constants.js'
import type { Context } from '../../driver/context.js'
import type { MemPoolProperties } from '../../driver/driver.js'
import { asUnsupported } from '../../driver/unsupported.js'
import { relaxed } from '../../order/relaxed.js'

const NO_POOLS = 'this device or driver has no memory pools, which come with driver 11.2; use createPool()'
/** The driver's answers to properties that it does not support. */
const REFUSALS: readonly number[] = [
  RESULT.CUDA_ERROR_INVALID_VALUE,
  RESULT.CUDA_ERROR_INVALID_DEVICE,
  RESULT.CUDA_ERROR_NOT_PERMITTED,
  RESULT.CUDA_ERROR_NOT_SUPPORTED,
]

/** The device's default pool. Throws PoolError if the device or driver has no pools. */
export function defaultPoolOf(context: Context): number {
  const call = 'defaultDriverPool'
  requirePools(call, context)
  try {
    return context.activate().cuDeviceGetDefaultMemPool(context.device)
  } catch (error) {
    throw asUnsupported(error, `${call}: ${NO_POOLS}`)
  }
}

/**
 * A new pool, which the device can use wherever the memory lies. Throws PoolError if the driver has no pools of the
 * kind.
 */
export function makePool(context: Context, properties: MemPoolProperties): number {
  requirePools('createDriverPool', context)
  const isManaged = properties.allocationType === CU_MEM_ALLOCATION_TYPE_MANAGED
  const missing = missingOf(properties)
  if (missing !== null && !isOffered(context, properties)) {
    throw new PoolError(`createDriverPool: ${missing}`, 'ERR_NOT_SUPPORTED')
  }
  const driver = context.activate()
  let pool: number
  try {
    pool = relaxed(driver, () => driver.cuMemPoolCreate(properties))
  } catch (error) {
    if (missing === null) throw asUnsupported(error, `createDriverPool: ${NO_POOLS}`)
    if (!(error instanceof CudaError) || !REFUSALS.includes(error.result)) throw error
    throw new PoolError(`createDriverPool: ${missing} (${error.message})`, 'ERR_NOT_SUPPORTED', { cause: error })
  }
  if (properties.locationType === CU_MEM_LOCATION_TYPE_DEVICE || isManaged) return pool
  try {
    driver.cuMemPoolSetAccess(pool, CU_MEM_LOCATION_TYPE_DEVICE, context.device, CU_MEM_ACCESS_FLAGS_PROT_READWRITE)
    return pool
  } catch (error) {
    context.discard(() => relaxed(driver, () => driver.cuMemPoolDestroy(pool)))
    throw error
  }
}

function requirePools(call: string, context: Context): void {
  if (context.attribute('CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED') !== 1) {
    throw new PoolError(`${call}: ${NO_POOLS}`, 'ERR_NOT_SUPPORTED')
  }
}

/** Whether the device's attributes offer such a pool; for memory anywhere in the host no attribute exists. */
function isOffered(context: Context, { allocationType, handleTypes, locationType }: MemPoolProperties): boolean {
  if (handleTypes !== CU_MEM_HANDLE_TYPE_NONE) {
    if ((context.attribute('CU_DEVICE_ATTRIBUTE_MEMPOOL_SUPPORTED_HANDLE_TYPES') & handleTypes) === 0) return false
  }
  if (locationType === CU_MEM_LOCATION_TYPE_HOST_NUMA) {
    if (context.attribute('CU_DEVICE_ATTRIBUTE_HOST_NUMA_MEMORY_POOLS_SUPPORTED') !== 1) return false
  }
  return (
    allocationType !== CU_MEM_ALLOCATION_TYPE_MANAGED || context.attribute('CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY') === 1
  )
}

/** The reason and the remedy if such a pool is refused; null for the plainest kind. */
function missingOf({ allocationType, handleTypes, locationType, locationId }: MemPoolProperties): string | null {
  if (allocationType === CU_MEM_ALLOCATION_TYPE_MANAGED) {
    return "there are no pools of managed memory here, which come with driver 13.0; use createPool({ backing: 'managed' })"
  }
  if (handleTypes !== CU_MEM_HANDLE_TYPE_NONE) {
    return "pools of this kind cannot be shared here as file descriptors, which are a thing of Linux; use handleTypes 'none'"
  }
  if (locationType === CU_MEM_LOCATION_TYPE_HOST_NUMA) {
    return `there are no pools on NUMA node ${locationId} here; use the location 'host', or createHostPool()`
  }
  if (locationType !== CU_MEM_LOCATION_TYPE_DEVICE) {
    return 'there are no driver pools of host memory here; use createHostPool()'
  }
  return null
}
