// The handle types for exports that the native driver supports.

import { int } from '../../libraries/arguments.js'
import { CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR } from '../constants.js'

/** Returns `value` if it is the type of file descriptors. Other types are structs of 64 bytes, which would corrupt memory. */
export function fileDescriptorType(value: number, argument: string): number {
  const type = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
  if (int(value, argument) === type) return value
  throw new RangeError(`${argument} must be ${type}, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, not ${value}`)
}
