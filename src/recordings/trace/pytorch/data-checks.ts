// Checks of data from a file; errors name the place in the file.

import { FormatError } from '../../../core/base/errors.js'

export function isDictionary(value: unknown): value is Record<string, unknown> {
  return typeof value === 'object' && value !== null && !Array.isArray(value) && !ArrayBuffer.isView(value)
}

export function dictionary(value: unknown, place: string): Record<string, unknown> {
  if (!isDictionary(value)) throw new FormatError(`${place} must be a dictionary`)
  return value
}

export function list(value: unknown, place: string): readonly unknown[] {
  if (!Array.isArray(value)) throw new FormatError(`${place} must be a list`)
  return value
}

/** The whole number under a key of the dictionary at `place`; by default `otherwise`. */
export function whole(
  from: Record<string, unknown>,
  key: string,
  place: string,
  what: string,
  otherwise?: number,
): number {
  const value = from[key] ?? otherwise
  if (!isWhole(value)) throw new FormatError(`${place}.${key} must be ${what}`)
  return value
}

export function isWhole(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0
}

/**
 * Whether a time in microseconds can be counted with: as nanoseconds, the difference of two of them fits into 64 bits.
 */
export function isTimeUs(value: unknown): value is number {
  return typeof value === 'number' && Math.abs(value) <= Number.MAX_SAFE_INTEGER
}
