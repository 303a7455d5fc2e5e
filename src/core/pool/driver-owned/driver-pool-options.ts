import { OutOfRangeError, WrongTypeError } from '../../base/argument-errors.js'
import { type ByteSize, limitOf } from '../../base/byte-size.js'
import { describe } from '../../base/bytes.js'
import { checkOptionNames } from '../../base/option-names.js'
import {
  CU_MEM_ALLOCATION_TYPE_MANAGED,
  CU_MEM_ALLOCATION_TYPE_PINNED,
  CU_MEM_HANDLE_TYPE_NONE,
  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
  CU_MEM_LOCATION_TYPE_DEVICE,
  CU_MEM_LOCATION_TYPE_HOST,
  CU_MEM_LOCATION_TYPE_HOST_NUMA,
} from '../../driver/constants.js'
import type { Context } from '../../driver/context.js'
import type { MemPoolProperties } from '../../driver/driver.js'

/**
 * The kind of memory of a driver pool; every option may be left out. A pool keeps its options for life. Defaults are
 * in parentheses.
 */
export interface DriverPoolOptions {
  /**
   * 'pinned' memory stays at `location`; 'managed' memory prefers `location`, and moves to where it is used
   * ('pinned')
   */
  readonly allocationType?: 'pinned' | 'managed'
  /** where the memory lies: this device, the host, or a NUMA node of the host ('device') */
  readonly location?: 'device' | 'host' | { readonly numaNode: number }
  /** how the pool can be shared with other processes: by `exportTo`, or not at all ('none') */
  readonly handleTypes?: 'none' | 'posixFileDescriptor'
  /**
   * the most bytes that the pool may reserve; the driver rounds this up, on an H200 to multiples of 32 MiB (Infinity)
   */
  readonly maxPoolBytes?: ByteSize
}

const KEYS = ['allocationType', 'location', 'handleTypes', 'maxPoolBytes']
const ALLOCATION_TYPES = { pinned: CU_MEM_ALLOCATION_TYPE_PINNED, managed: CU_MEM_ALLOCATION_TYPE_MANAGED }
const HANDLE_TYPES = {
  none: CU_MEM_HANDLE_TYPE_NONE,
  posixFileDescriptor: CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
}
const MOST_NODE = 2 ** 31 - 1

/** The driver's properties of a pool of `device`. Throws TypeError or RangeError naming the option and the remedy. */
export function parseDriverPoolOptions(options: DriverPoolOptions, context: Context): MemPoolProperties {
  checkOptionNames('createDriverPool', options, KEYS)
  const { allocationType = 'pinned', location = 'device', handleTypes = 'none' } = options
  const maxPoolBytes = limitOf(options.maxPoolBytes ?? Infinity, 'maxPoolBytes', context)
  if (!isKey(ALLOCATION_TYPES, allocationType)) {
    throw new WrongTypeError(
      `allocationType must be 'pinned' or 'managed', not ${describe(allocationType)}: the driver has no type for devices, ` +
        "device memory is 'pinned' at the location 'device'",
    )
  }
  if (!isKey(HANDLE_TYPES, handleTypes)) {
    throw new WrongTypeError(
      `handleTypes must be 'none' or 'posixFileDescriptor', which exportTo() passes on, not ${describe(handleTypes)}`,
    )
  }
  const place = placeOf(location, context.device)
  if (handleTypes !== 'none' && allocationType === 'managed') {
    throw new OutOfRangeError(
      "handleTypes must be 'none' for managed memory, which the driver does not share; use 'pinned'",
    )
  }
  if (handleTypes !== 'none' && place.locationType === CU_MEM_LOCATION_TYPE_HOST) {
    throw new OutOfRangeError(
      "handleTypes must be 'none' at the location 'host', which the driver does not share; use 'device', or { numaNode }",
    )
  }
  return {
    allocationType: ALLOCATION_TYPES[allocationType],
    handleTypes: HANDLE_TYPES[handleTypes],
    ...place,
    maxBytes: maxPoolBytes === Infinity ? 0 : maxPoolBytes,
  }
}

function isKey(table: object, value: unknown): boolean {
  return typeof value === 'string' && Object.hasOwn(table, value)
}

function placeOf(location: DriverPoolOptions['location'], device: number) {
  if (location === 'device') return { locationType: CU_MEM_LOCATION_TYPE_DEVICE, locationId: device }
  if (location === 'host') return { locationType: CU_MEM_LOCATION_TYPE_HOST, locationId: 0 }
  if (typeof location !== 'object' || location === null || !('numaNode' in location)) {
    throw new WrongTypeError(
      `location must be 'device', 'host' or { numaNode: 0 }, not ${describe(location)}; ` +
        "for memory of another device use that device's createDriverPool",
    )
  }
  const { numaNode } = location
  if (!Number.isInteger(numaNode) || numaNode < 0 || numaNode > MOST_NODE) {
    throw new OutOfRangeError(`location: numaNode must be the number of a NUMA node from 0, not ${describe(numaNode)}`)
  }
  return { locationType: CU_MEM_LOCATION_TYPE_HOST_NUMA, locationId: numaNode }
}
