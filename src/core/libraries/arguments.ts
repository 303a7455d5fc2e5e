// Checks of arguments for C functions. koffi converts without an error: 1.5 becomes 1, NaN becomes 0, and a number
// too large for its C type loses its upper bits. A NaN for a stream would mean the default stream. driver/native/
// uses them most.

import { OutOfRangeError, WrongTypeError } from '../base/argument-errors.js'
import { describe } from '../base/bytes.js'

const UINT32_MAX = 2 ** 32 - 1
const INT32_MAX = 2 ** 31 - 1

/** A size, an address or a handle. */
export function exact(value: number, argument: string): number {
  return within(value, 0, Number.MAX_SAFE_INTEGER, argument)
}

/** A C unsigned int. */
export function uint(value: number, argument: string): number {
  return within(value, 0, UINT32_MAX, argument)
}

/** A C int. */
export function int(value: number, argument: string): number {
  return within(value, -INT32_MAX - 1, INT32_MAX, argument)
}

/** A file descriptor. */
export function fileDescriptor(value: number, argument: string): number {
  return within(value, 0, INT32_MAX, argument)
}

/** A whole number from `least` to `most`; throws TypeError or RangeError that names the argument. */
export function within(value: number, least: number, most: number, argument: string): number {
  if (Number.isSafeInteger(value) && value >= least && value <= most) return value
  if (typeof value !== 'number') throw new WrongTypeError(`${argument} must be a number, not ${describe(value)}`)
  throw new OutOfRangeError(`${argument} must be a whole number from ${least} to ${most}, not ${value}`)
}

/** Host memory at a fixed address: reading `buffer` of a small typed array moves it off the JavaScript heap. */
export function hostMemory<View extends ArrayBufferView>(view: View, argument: string): View {
  if (!ArrayBuffer.isView(view)) throw new WrongTypeError(`${argument} must be a typed array, not ${describe(view)}`)
  void view.buffer
  return view
}

/** A string. A number would be dangerous: koffi would take it for an address. */
export function text(value: string, argument: string): string {
  if (typeof value === 'string') return value
  throw new WrongTypeError(`${argument} must be a string, not ${describe(value)}`)
}
