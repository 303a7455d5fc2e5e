// The attributes of the driver's pools under the driver's names, and what each may be set to. Programs found in tutorials
// write sizes into the counters of a pool, as if that reserved memory; the driver refuses that without a word, so the
// reason and what to do instead are given here.

import { checkByteCount, describe } from '../../base/bytes.js'
import type { POOL_ATTRIBUTE } from '../../driver/constants.js'

/** An attribute as the driver API names it; the runtime API's names are understood, too. */
export type DriverPoolAttribute = keyof typeof POOL_ATTRIBUTE

/** What is accepted: true and false; a byte count; nothing; or 0, which starts the peak anew. */
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

/** The attribute of a name in either API; TypeError for any other. */
export function attributeNamed(call: string, name: unknown): DriverPoolAttribute {
  const found = ATTRIBUTE_NAMES.find(each => each === name || ATTRIBUTES[each][0] === name)
  if (found !== undefined) return found
  throw new TypeError(`${call}: there is no pool attribute ${describe(name)}; there are ${ATTRIBUTE_NAMES.join(', ')}`)
}

/** What to write so that the attribute has `value`. Throws TypeError or RangeError in the name of `what`. */
export function checkedValue(what: string, attribute: DriverPoolAttribute, value: unknown): number {
  switch (ATTRIBUTES[attribute][1]) {
    case 'switch':
      if (value === true || value === false || value === 0 || value === 1) return Number(value)
      throw new TypeError(`${what} must be true or false, not ${describe(value)}`)
    case 'threshold':
      if (value === 0 || value === Infinity) return value
      checkByteCount(value, what)
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
