// The grammar of all sizes that programs pass: numbers, text with a unit, and shares of a device's memory.

import { OutOfRangeError, WrongTypeError } from './argument-errors.js'
import { checkByteCount, describe, parseBytes } from './bytes.js'

/** A size where no device is known: bytes, or text with a unit, such as '4GiB', '1.5 GiB' or '80GB' (80·10⁹ bytes). */
export type FixedSize =
  | number
  | `${number}${'' | ' '}${'B' | 'KiB' | 'MiB' | 'GiB' | 'TiB' | 'kB' | 'KB' | 'MB' | 'GB' | 'TB'}`

/**
 * A size: bytes, text with a unit, such as '4GiB', '1.5 GiB' or '80GB' (80·10⁹ bytes), or a share such as '80%' of the
 * device's memory. Of pinned memory it is a share of the host's.
 */
export type ByteSize = FixedSize | `${number}%`

/** The memory that a share is of. */
interface Whole {
  readonly totalBytes: number
}

/**
 * `size` in bytes: a whole number from `least` to 2^53 - 1. A share is of `whole`, and refused if that is null. Throws
 * TypeError or RangeError, naming the argument.
 */
export function bytesOf(size: unknown, argument: string, whole: Whole | null, least: 0 | 1 = 1): number {
  const bytes = typeof size === 'string' ? bytesOfText(size, argument, whole) : size
  checkByteCount(bytes, argument, least)
  return bytes
}

/** As `bytesOf`, for a limit: Infinity stands for none. */
export function limitOf(size: unknown, argument: string, whole: Whole | null, least: 0 | 1 = 1): number {
  return size === Infinity ? Infinity : bytesOf(size, argument, whole, least)
}

function bytesOfText(text: string, argument: string, whole: Whole | null): number {
  if (/^[\d.]*$/.test(text)) {
    throw new WrongTypeError(
      `${argument} must be a number of bytes, or text with a unit such as '64KiB', not '${text}'`,
    )
  }
  const percent = /^\s*(\d+(?:\.\d+)?)\s*%\s*$/.exec(text)
  if (percent === null) return bytesWithUnit(text, argument, whole)
  const share = Number(percent[1]) / 100
  if (whole === null) throw new OutOfRangeError(`${argument} must be a size such as '4GiB': a share needs a device`)
  if (share > 1) throw new OutOfRangeError(`${argument} must be a size or a share up to '100%', not ${describe(text)}`)
  return Math.floor(share * whole.totalBytes)
}

function bytesWithUnit(text: string, argument: string, whole: Whole | null): number {
  try {
    return parseBytes(text)
  } catch {}
  const examples = whole === null ? "'64KiB', '1.5GiB' or '80GB'" : "'64KiB', '1.5GiB', '80GB' or '80%'"
  throw new OutOfRangeError(`${argument} must be bytes, or a size such as ${examples}, not ${describe(text)}`)
}
