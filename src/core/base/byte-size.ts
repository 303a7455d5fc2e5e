// Sizes in options: numbers, or text with a unit.

import { describe, parseBytes } from './bytes.js'

/** A size in an option: bytes, or text with a unit, such as '4GiB', '1.5 GiB' or '80GB' (80·10⁹ bytes). */
export type ByteSize =
  | number
  | `${number}${'' | ' '}${'B' | 'KiB' | 'MiB' | 'GiB' | 'TiB' | 'kB' | 'KB' | 'MB' | 'GB' | 'TB'}`

/**
 * `size` in bytes. Throws RangeError, naming the option, for other text with a unit. The caller checks numbers, and
 * text without a unit.
 */
export function bytesOfSize(size: ByteSize, option: string): number {
  if (typeof size !== 'string' || /^[\d.]*$/.test(size)) return size as number
  try {
    return parseBytes(size)
  } catch {
    throw new RangeError(
      `${option} must be bytes, or a size such as '64KiB', '1.5GiB' or '80GB', not ${describe(size)}`,
    )
  }
}

/** An options object with some of its sizes read. */
type WithBytes<O, K extends keyof O> = { readonly [P in keyof O]: P extends K ? Exclude<O[P], string> : O[P] }

/** The options with the sizes of these names in bytes. Throws as `bytesOfSize`. */
export function readSizes<O extends object, K extends keyof O & string>(options: O, ...names: K[]): WithBytes<O, K> {
  const read: O = { ...options }
  for (const name of names) {
    if (typeof read[name] === 'string') read[name] = bytesOfSize(read[name] as ByteSize, name) as O[K]
  }
  return read as WithBytes<O, K>
}
