// Attributes of cuMemPools, base class of created and imported pools.

import { POOL_ATTRIBUTE } from '../../constants.js'

/** The attributes of a pool. */
export abstract class PoolAttributes {
  /** a freed block may serve a stream that has waited for the free */
  reuseFollowEvents = true
  /** ... or any stream, if the free has completed */
  reuseOpportunistic = true
  /** ... or any stream, by a wait that the driver inserts */
  reuseInternal = true
  releaseThresholdBytes = 0
  reservedBytes = 0
  usedBytes = 0
  private reservedHighBytes = 0
  private usedHighBytes = 0

  /** The value of an attribute, in bytes or as 0 or 1; undefined for an unknown attribute. */
  attribute(attribute: number): number | undefined {
    switch (attribute) {
      case POOL_ATTRIBUTE.CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES:
        return Number(this.reuseFollowEvents)
      case POOL_ATTRIBUTE.CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC:
        return Number(this.reuseOpportunistic)
      case POOL_ATTRIBUTE.CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES:
        return Number(this.reuseInternal)
      case POOL_ATTRIBUTE.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD:
        return this.releaseThresholdBytes
      case POOL_ATTRIBUTE.CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT:
        return this.reservedBytes
      case POOL_ATTRIBUTE.CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH:
        return this.reservedHighBytes
      case POOL_ATTRIBUTE.CU_MEMPOOL_ATTR_USED_MEM_CURRENT:
        return this.usedBytes
      case POOL_ATTRIBUTE.CU_MEMPOOL_ATTR_USED_MEM_HIGH:
        return this.usedHighBytes
      default:
        return undefined
    }
  }

  /**
   * Sets an attribute; false if it cannot have the value. A high-water mark accepts only 0, which sets it to the
   * current value. Current values cannot be set.
   */
  setAttribute(attribute: number, value: number): boolean {
    const isSwitch = value === 0 || value === 1
    if (attribute === POOL_ATTRIBUTE.CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES && isSwitch) {
      this.reuseFollowEvents = value === 1
    } else if (attribute === POOL_ATTRIBUTE.CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC && isSwitch) {
      this.reuseOpportunistic = value === 1
    } else if (attribute === POOL_ATTRIBUTE.CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES && isSwitch) {
      this.reuseInternal = value === 1
    } else if (attribute === POOL_ATTRIBUTE.CU_MEMPOOL_ATTR_RELEASE_THRESHOLD && value >= 0) {
      this.releaseThresholdBytes = value
    } else if (attribute === POOL_ATTRIBUTE.CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH && value === 0) {
      this.reservedHighBytes = this.reservedBytes
    } else if (attribute === POOL_ATTRIBUTE.CU_MEMPOOL_ATTR_USED_MEM_HIGH && value === 0) {
      this.usedHighBytes = this.usedBytes
    } else return false
    return true
  }

  protected addReserved(bytes: number): void {
    this.reservedBytes += bytes
    this.reservedHighBytes = Math.max(this.reservedHighBytes, this.reservedBytes)
  }

  protected addUsed(bytes: number): void {
    this.usedBytes += bytes
    this.usedHighBytes = Math.max(this.usedHighBytes, this.usedBytes)
  }
}
