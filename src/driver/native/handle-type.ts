import { int } from '../../libraries/arguments.js'
import { CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR } from '../constants.js'

/** The type of handle that is a number: others are structs, of which the driver would write or read 64 bytes. */
export function fileDescriptorType(value: number, argument: string): number {
  const type = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
  if (int(value, argument) === type) return value
  throw new RangeError(`${argument} must be ${type}, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR, not ${value}`)
}
