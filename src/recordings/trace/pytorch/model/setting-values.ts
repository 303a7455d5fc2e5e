// The values of PyTorch's settings. Each function throws RangeError with the name of the setting.

import { OutOfRangeError } from '../../../../core/base/argument-errors.js'
import { GiB, MiB } from '../../../../core/base/bytes.js'

/** `large_segment_size_mb` is above the largest request that shares a segment. */
const LEAST_LARGE_MB = 11
/** `large_segment_size_mb` by default, in bytes. */
export const LARGE_SEGMENT_BYTES = 20 * MiB
/** How many sizes `roundup_power2_divisions` tells apart. */
export const DIVISION_INTERVALS = 16

export function backend(value: string, name: string): 'native' | 'cudaMallocAsync' {
  if (value === 'native' || value === 'cudaMallocAsync') return value
  // ROCm has both names for it.
  if (value === 'hipMallocAsync') return 'cudaMallocAsync'
  throw wrong(name, 'must be native or cudaMallocAsync', value)
}

export function boolean(value: string, name: string): boolean {
  if (value === 'True' || value === 'False') return value === 'True'
  throw wrong(name, 'must be True or False', value)
}

export function share(value: string, name: string): number {
  const number = value === '' ? NaN : Number(value)
  if (number > 0 && number < 1) return number
  throw wrong(name, 'must be between 0 and 1', value)
}

/** A size in bytes. */
export function megabytes(value: string, name: string): number {
  const count = wholeNumber(value)
  if (count >= 0) return count * MiB
  throw wrong(name, 'must be a whole number', value)
}

/** A size in bytes, of a number of GiB like 40G or 0.5G. */
export function gibibytes(value: string, name: string): number {
  const count = /^[\d.]+G$/i.test(value) ? Number(value.slice(0, -1)) : NaN
  if (count > 0) return count * GiB
  throw wrong(name, 'must be a number of GiB like 40G, or a share of the device', value)
}

/** The bytes of a large segment. */
export function large(value: string, name: string): number {
  const bytes = megabytes(value, name)
  if (bytes >= LEAST_LARGE_MB * MiB) return bytes
  throw wrong(name, `must be a whole number of at least ${LEAST_LARGE_MB}`, value)
}

/**
 * One number, or a list. Each entry of a list names a size in MiB, or `>` for all above the last entry. The first size
 * counts below it, too. A list changes only the sizes that it names, so `before` are the divisions to its left.
 */
export function divisions(value: string, name: string, before: readonly number[] = []): number[] {
  if (!value.startsWith('[')) {
    if (isPowerOf2(wholeNumber(value))) return new Array(DIVISION_INTERVALS).fill(wholeNumber(value))
    throw wrong(name, 'must be a power of 2, or a list', value)
  }
  if (!value.endsWith(']')) throw new OutOfRangeError(`${name}: expected a closing bracket ']'`)
  const counts: number[] = Array.from({ length: DIVISION_INTERVALS }, (_, i) => before[i] ?? 0)
  let last = 0
  let isFirst = true
  for (const entry of entriesOf(value)) {
    const [size, text] = entry.split(':')
    const count = wholeNumber(text ?? '')
    if (count !== 0 && !isPowerOf2(count)) throw wrong(name, 'must have powers of 2, or 0, after each colon', entry)
    if (size === '>') {
      counts.fill(count, last + 1)
      continue
    }
    if (!isPowerOf2(wholeNumber(size))) throw wrong(name, 'must have powers of 2, or >, before each colon', entry)
    last = Math.min(DIVISION_INTERVALS - 1, Math.log2(wholeNumber(size)))
    if (isFirst) counts.fill(count, 0, last)
    isFirst = false
    counts[last] = count
  }
  return counts
}

/** The entries of a list in brackets. A comma at its end is passed over, as in PyTorch. */
function entriesOf(list: string): string[] {
  const entries = list.slice(1, -1).split(',')
  return entries.at(-1) === '' ? entries.slice(0, -1) : entries
}

function isPowerOf2(count: number): boolean {
  return count > 0 && Number.isInteger(Math.log2(count))
}

function wholeNumber(value: string): number {
  return /^\d{1,9}$/.test(value) ? Number(value) : NaN
}

function wrong(name: string, rule: string, value: string): RangeError {
  return new OutOfRangeError(`${name} ${rule}, not '${value}'`)
}
