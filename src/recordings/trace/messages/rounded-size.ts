// Sizes as messages print them: rounded to two decimals of a unit, or cut to whole units. So a sum of them has bounds.

/** A printed size, in whole bytes. */
export interface RoundedSize {
  /** as printed */
  readonly bytes: number
  /** the least that is printed so */
  readonly least: number
  /** the most that is printed so */
  readonly most: number
}

const POWER: Readonly<Record<string, number>> = { k: 1, m: 2, g: 3, t: 4, p: 5 }
/** Half of the last of two decimals, in units. */
const HALF_DECIMAL = 0.005
/** Above this the figures of a driver that cannot tell are: 2^64 - 1 bytes. */
const MOST_BYTES = 2 ** 63

/** An unsigned or signed number, as patterns of messages take it in: so bounded that no text makes them slow. */
export const NUMBER = '([-+]?(?:\\d{1,500}(?:[.,]\\d{1,500})?(?:e[-+]?\\d{1,5})?|nan|inf(?:inity)?))'
/** A number and its unit, in a text without spaces. */
export const SIZE = `${NUMBER}(bytes?|[KMGTP]i?B|B)`

/**
 * A size from the texts of `SIZE`. PyTorch's MB and GB are powers of 1024, too. A bad number has bytes that are NaN,
 * infinite or below 0.
 */
export function roundedSize(amount: string, unit: string): RoundedSize {
  const power = POWER[unit[0].toLowerCase()] ?? 0
  const scale = unit.toLowerCase().startsWith('b') ? 1 : 1024 ** power
  const number = Number(amount.replace(',', '.').replace(/^([-+]?)inf(inity)?$/i, '$1Infinity'))
  const bytes = Math.round(number * scale)
  const margin = scale === 1 ? 0 : Math.ceil(HALF_DECIMAL * scale)
  return { bytes, least: bytes - margin, most: bytes + margin }
}

/** A size that was cut to whole units, as in a table of memory_summary(). */
export function truncatedSize(amount: string, unit: string): RoundedSize {
  const { bytes } = roundedSize(amount, unit)
  const { bytes: one } = roundedSize('1', unit)
  return { bytes, least: bytes, most: bytes + one - 1 }
}

export function exactSize(bytes: number): RoundedSize {
  return { bytes, least: bytes, most: bytes }
}

/** Whether a size can be one: not what a driver prints that cannot tell, no damaged number. */
export function isPossible({ bytes }: RoundedSize): boolean {
  return bytes >= 0 && bytes < MOST_BYTES
}

export function plus(...sizes: readonly RoundedSize[]): RoundedSize {
  return {
    bytes: sizes.reduce((sum, each) => sum + each.bytes, 0),
    least: sizes.reduce((sum, each) => sum + each.least, 0),
    most: sizes.reduce((sum, each) => sum + each.most, 0),
  }
}

export function minus(from: RoundedSize, size: RoundedSize): RoundedSize {
  return { bytes: from.bytes - size.bytes, least: from.least - size.most, most: from.most - size.least }
}

/** Whether one size is surely above another: 'yes', 'no', or 'unsure' within the rounding of both. */
export function exceeds(one: RoundedSize, other: RoundedSize): 'yes' | 'no' | 'unsure' {
  if (one.least > other.most) return 'yes'
  return one.most <= other.least ? 'no' : 'unsure'
}
