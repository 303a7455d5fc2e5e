// The handle types for exports that the native driver supports.

import { int } from '../../libraries/arguments.js'
import { CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR } from '../constants.js'

/** Returns the type of file descriptors, and refuses others: they are structs of 64 bytes, not numbers. */
export function fileDescriptorType(value: number, argument: string): number {
  const type = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
  if (int(value, argument) === type) return value
  throw new RangeError(`${argument} must be ${type}, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, not ${value}`)
}
