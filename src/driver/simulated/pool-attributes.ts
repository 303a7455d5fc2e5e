import { POOL_ATTRIBUTE } from '../constants.js'
import type { MemoryPool } from './memory-pool.js'

const { CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT, CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH } =
  POOL_ATTRIBUTE
const { CU_MEMPOOL_ATTR_USED_MEM_CURRENT, CU_MEMPOOL_ATTR_USED_MEM_HIGH } = POOL_ATTRIBUTE

/** An attribute of a pool, in bytes; undefined when there is no such attribute. */
export function poolAttribute(pool: MemoryPool, attribute: number): number | undefined {
  switch (attribute) {
    case CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
      return pool.releaseThresholdBytes
    case CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
      return pool.reservedBytes
    case CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
      return pool.reservedHighBytes
    case CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
      return pool.usedBytes
    case CU_MEMPOOL_ATTR_USED_MEM_HIGH:
      return pool.usedHighBytes
    default:
      return undefined
  }
}

/** Sets an attribute; false when it cannot have that value. A high-water mark takes 0 alone, and then the current value. */
export function setPoolAttribute(pool: MemoryPool, attribute: number, value: number): boolean {
  if (attribute === CU_MEMPOOL_ATTR_RELEASE_THRESHOLD && value >= 0) pool.releaseThresholdBytes = value
  else if (attribute === CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH && value === 0) pool.reservedHighBytes = pool.reservedBytes
  else if (attribute === CU_MEMPOOL_ATTR_USED_MEM_HIGH && value === 0) pool.usedHighBytes = pool.usedBytes
  else return false
  return true
}
