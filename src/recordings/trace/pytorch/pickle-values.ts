// Numbers and texts in a pickle: little-endian, signed if the value may be negative, text as UTF-8.

const TWO_32 = 2 ** 32
const LONGEST_CACHED_TEXT = 64
const CACHED_TEXTS = 4096

function u32(bytes: Uint8Array, at: number): number {
  return (bytes[at] | (bytes[at + 1] << 8) | (bytes[at + 2] << 16) | (bytes[at + 3] << 24)) >>> 0
}

/** A whole number of 0, 1, 2, 4 or 8 bytes. */
export function unsigned(bytes: Uint8Array, at: number, length: number): number {
  switch (length) {
    case 0:
      return 0
    case 1:
      return bytes[at]
    case 2:
      return bytes[at] | (bytes[at + 1] << 8)
    case 4:
      return u32(bytes, at)
    default:
      return u32(bytes, at) + u32(bytes, at + 4) * TWO_32
  }
}

/** A signed integer of at most 8 bytes. Both halves are exact, so their sum is rounded only once. */
export function littleEndian(bytes: Uint8Array, at: number, length: number): number {
  if (length === 0) return 0
  let high = (bytes[at + length - 1] << 24) >> 24
  if (length <= 4) {
    for (let i = at + length - 2; i >= at; i--) high = (high << 8) | bytes[i]
    return high
  }
  for (let i = at + length - 2; i >= at + 4; i--) high = (high << 8) | bytes[i]
  return high * TWO_32 + u32(bytes, at)
}

/** A signed integer of any length, rounded to the nearest number. */
export function longLittleEndian(bytes: Uint8Array, at: number, length: number): number {
  const hex = Buffer.from(bytes.subarray(at, at + length))
    .reverse()
    .toString('hex')
  return Number(BigInt.asIntN(8 * length, BigInt(`0x${hex}`)))
}

const NOT_ASCII = -1

function indexOf(bytes: Uint8Array, at: number, length: number): number {
  let hash = 0
  let union = 0
  for (let i = at; i < at + length; i++) {
    const byte = bytes[i]
    union |= byte
    hash = (Math.imul(hash, 31) + byte) | 0
  }
  return union >= 0x80 ? NOT_ASCII : hash & (CACHED_TEXTS - 1)
}

/** Texts of a file by their bytes: a snapshot repeats a few names a million times. */
export class TextCache {
  private readonly texts: string[] = new Array(CACHED_TEXTS).fill('')

  /** `expected` are ASCII literals of the source code: V8 compares these by their addresses. */
  constructor(
    private readonly bytes: Buffer,
    expected: readonly string[] = [],
  ) {
    for (const text of expected) this.texts[indexOf(Buffer.from(text), 0, text.length)] = text
  }

  read(at: number, length: number): string {
    if (length > LONGEST_CACHED_TEXT) return this.bytes.toString('utf8', at, at + length)
    const index = indexOf(this.bytes, at, length)
    if (index === NOT_ASCII) return this.bytes.toString('utf8', at, at + length)
    const cached = this.texts[index]
    if (this.holds(cached, at, length)) return cached
    const text = this.bytes.toString('latin1', at, at + length)
    this.texts[index] = text
    return text
  }

  private holds(text: string, at: number, length: number): boolean {
    if (text.length !== length) return false
    for (let i = 0; i < length; i++) if (text.charCodeAt(i) !== this.bytes[at + i]) return false
    return true
  }
}
