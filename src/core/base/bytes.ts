// Byte counts: units, text for people, parsing of options, and checks of arguments.

import { OutOfRangeError, WrongTypeError } from './argument-errors.js'
import { isOfAnotherCopy } from './readable.js'

/** 2^10 bytes. */
export const KiB = 1024
/** 2^20 bytes. */
export const MiB = 1024 * KiB
/** 2^30 bytes. */
export const GiB = 1024 * MiB
/** 2^40 bytes. */
export const TiB = 1024 * GiB

const UNITS: readonly [string, number][] = [
  ['TiB', TiB],
  ['GiB', GiB],
  ['MiB', MiB],
  ['KiB', KiB],
]

/** `3145728` → `3 MiB`, `1500` → `1.46 KiB`, `Infinity` → `no limit`. Throws TypeError for other types. */
export function formatBytes(bytes: number): string {
  if (typeof bytes !== 'number') throw new WrongTypeError(`formatBytes: bytes must be a number, not ${describe(bytes)}`)
  return inUnits(bytes, amount => Number(amount.toFixed(2)))
}

/** As `formatBytes`, rounded up: for the least that is needed. */
export function formatBytesUp(bytes: number): string {
  return inUnits(bytes, amount => Math.ceil(amount * 100) / 100)
}

function inUnits(bytes: number, round: (amount: number) => number): string {
  if (bytes === Infinity) return 'no limit'
  for (const [name, size] of UNITS) {
    if (Math.abs(bytes) >= size) return `${round(bytes / size)} ${name}`
  }
  return `${bytes} B`
}

/**
 * Reads `512`, `64KiB`, `3.9 GiB`, `80GB`. `KiB` to `TiB`, and a letter alone, mean powers of 1024; `kB` to `TB` mean
 * powers of 1000. Part of a byte is left out. Throws a RangeError that shows these forms.
 */
export function parseBytes(text: string): number {
  if (typeof text !== 'string') throw new WrongTypeError(`parseBytes: text must be a string, not ${describe(text)}`)
  const [, amount = '', letter = '', unit = ''] = /^\s*(\d+(?:\.\d+)?)\s*([kmgt]?)(i?b)?\s*$/i.exec(text) ?? []
  const base = letter !== '' && unit.toLowerCase() === 'b' ? 1000 : 1024
  const scale = base ** ' kmgt'.indexOf(letter.toLowerCase() || ' ')
  const exact = amount === '' || (letter === '' && unit.toLowerCase() === 'ib') ? NaN : Number(amount) * scale
  const bytes = letter === '' ? exact : Math.floor(exact)
  if (!Number.isSafeInteger(bytes)) {
    throw new OutOfRangeError(`'${text}' is not a size; write bytes, or like 64KiB, 1.5GiB or 80GB`)
  }
  return bytes
}

/** Throws TypeError or RangeError unless `bytes` is a whole number from `least` to 2^53 - 1. */
export function checkByteCount(bytes: unknown, argument: string, least: 0 | 1 = 1): asserts bytes is number {
  if (typeof bytes !== 'number')
    throw new WrongTypeError(`${argument} must be a number of bytes, not ${describe(bytes)}`)
  if (!Number.isSafeInteger(bytes) || bytes < least) {
    throw new OutOfRangeError(`${argument} must be a whole number of bytes from ${least} to 2^53 - 1, not ${bytes}`)
  }
}

/** The bytes from `offset` to the end of `wholeBytes`; none for a bad offset, which is refused later. */
export function bytesFrom(offset: number, wholeBytes: number): number {
  return Number.isSafeInteger(offset) && offset >= 0 ? Math.max(0, wholeBytes - offset) : 0
}

/** Names a bad value in an error message. */
export function describe(value: unknown): string {
  if (value === null || value === undefined) return String(value)
  if (typeof value === 'string') return `'${value}'`
  if (typeof value === 'bigint') return `${value}n`
  if (typeof value === 'function') return `the function ${String(value.name)}`
  if (typeof value !== 'object') return String(value)
  const name = String(value.constructor?.name ?? 'object')
  const text = `${/^[AEIO]/i.test(name) ? 'an' : 'a'} ${name}`
  return isOfAnotherCopy(value) ? `${text} of another copy of cuda-mempool: this program has loaded two` : text
}
