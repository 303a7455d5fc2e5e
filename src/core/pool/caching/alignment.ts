import { OutOfRangeError } from '../../base/argument-errors.js'
import { describe, formatBytes } from '../../base/bytes.js'

/** Throws RangeError unless `alignment` is a power of two from 1 to `mostBytes`. */
export function checkAlignment(alignment: number, mostBytes: number): void {
  if (Number.isInteger(alignment) && alignment >= 1 && alignment <= mostBytes) {
    if (Number.isInteger(Math.log2(alignment))) return
  }
  throw new OutOfRangeError(
    `alignment must be a power of two of at most ${formatBytes(mostBytes)}, not ${describe(alignment)}`,
  )
}
