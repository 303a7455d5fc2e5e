import { checkByteCount } from '../../base/bytes.js'
import { MAX_UNITS, powerOfTwoUnits, UNIT_BYTES } from '../../heap/size-classes.js'
import type { PoolConfig } from './options.js'
import { classUnits } from './stream-caches.js'

/**
 * The size of the block that serves `bytes`; MAX_UNITS for more than any pool can have. Throws TypeError or
 * RangeError for bad sizes.
 */
export function blockUnits(bytes: number, { minBlockBytes, powerOfTwo }: PoolConfig): number {
  checkByteCount(bytes, 'bytes')
  const units = Math.ceil(bytes / minBlockBytes) * (minBlockBytes / UNIT_BYTES)
  if (units > MAX_UNITS / 2) return MAX_UNITS
  return powerOfTwo ? powerOfTwoSize(units) : classUnits(units)
}

/** Powers of two from 512 B to 2 GiB; exact above. */
function powerOfTwoSize(units: number): number {
  return units > 2 ** 23 ? units : Math.max(2, powerOfTwoUnits(units))
}
