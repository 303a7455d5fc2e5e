// The attributes of the driver's pools by their CUDA names, and the values that each may have. Programs in tutorials
// write sizes into a pool's counters, as if that reserved memory. The driver refuses that without a reason, so the
// error here gives the reason and the alternative.

import { checkByteCount, describe } from '../../base/bytes.js'
import type { POOL_ATTRIBUTE } from '../../driver/constants.js'

/** An attribute by its name in the driver API. `setAttribute` accepts the runtime API's names, too. */
export type DriverPoolAttribute = keyof typeof POOL_ATTRIBUTE

/** The accepted values: true or false; a byte count; none; or 0, which restarts the peak. */
type Kind = 'switch' | 'threshold' | 'counter' | 'peak'

const ATTRIBUTES: Readonly<Record<DriverPoolAttribute, readonly [runtimeName: string, kind: Kind]>> = {
  CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES: ['cudaMemPoolReuseFollowEventDependencies', 'switch'],
  CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC: ['cudaMemPoolReuseAllowOpportunistic', 'switch'],
  CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES: ['cudaMemPoolReuseAllowInternalDependencies', 'switch'],
  CU_MEMPOOL_ATTR_RELEASE_THRESHOLD: ['cudaMemPoolAttrReleaseThreshold', 'threshold'],
  CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT: ['cudaMemPoolAttrReservedMemCurrent', 'counter'],
  CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH: ['cudaMemPoolAttrReservedMemHigh', 'peak'],
  CU_MEMPOOL_ATTR_USED_MEM_CURRENT: ['cudaMemPoolAttrUsedMemCurrent', 'counter'],
  CU_MEMPOOL_ATTR_USED_MEM_HIGH: ['cudaMemPoolAttrUsedMemHigh', 'peak'],
}

export const ATTRIBUTE_NAMES = Object.keys(ATTRIBUTES) as DriverPoolAttribute[]

const INSTEAD =
  'to keep memory in the pool set releaseThresholdBytes, to bound it create the pool with maxPoolBytes, and to have ' +
  'memory there beforehand allocate that much once and free it'

/** The attribute of a name in either API. Throws TypeError for an unknown name. */
export function attributeNamed(call: string, name: unknown): DriverPoolAttribute {
  const found = ATTRIBUTE_NAMES.find(each => each === name || ATTRIBUTES[each][0] === name)
  if (found !== undefined) return found
  throw new TypeError(`${call}: there is no pool attribute ${describe(name)}; there are ${ATTRIBUTE_NAMES.join(', ')}`)
}

/** The number to write so that the attribute has `value`. Throws TypeError or RangeError naming `what`. */
export function checkedValue(what: string, attribute: DriverPoolAttribute, value: unknown): number {
  switch (ATTRIBUTES[attribute][1]) {
    case 'switch':
      if (value === true || value === false || value === 0 || value === 1) return Number(value)
      throw new TypeError(`${what} must be true or false, not ${describe(value)}`)
    case 'threshold':
      if (value === Infinity) return value
      checkByteCount(value, what, 0)
      return value
    case 'peak':
      if (value === 0) return 0
      throw new RangeError(
        `${what} takes 0 alone, as resetPeaks() writes it, and begins again with the current value; ${INSTEAD}`,
      )
    case 'counter':
      throw new TypeError(`${what} can only be read: it follows what is allocated; ${INSTEAD}`)
  }
}
