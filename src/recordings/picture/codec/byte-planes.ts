// Whole numbers as byte planes: first the lowest byte of each, then the next one. Planes of alike bytes pack well.

import { FormatError } from '../../../core/base/errors.js'

type Numbers = ArrayLike<number>

/** Appends columns of numbers, and then is one array of bytes. */
export class PlaneWriter {
  private readonly parts: Uint8Array[] = []

  /** Whole numbers from 0 to 2^53 - 1. */
  numbers(values: Numbers): void {
    let most = 0
    for (let i = 0; i < values.length; i++) if (values[i] > most) most = values[i]
    let planes = 0
    while (planes < 7 && 256 ** planes <= most) planes++
    const head = new Uint8Array(5)
    new DataView(head.buffer).setUint32(0, values.length, true)
    head[4] = planes
    this.parts.push(head)
    for (let plane = 0; plane < planes; plane++) {
      const bytes = new Uint8Array(values.length)
      if (plane < 4 && planes <= 4) for (let i = 0; i < bytes.length; i++) bytes[i] = values[i] >>> (8 * plane)
      else for (let i = 0; i < bytes.length; i++) bytes[i] = Math.floor(values[i] / 256 ** plane) % 256
      this.parts.push(bytes)
    }
  }

  text(text: string): void {
    this.numbers(new TextEncoder().encode(text))
  }

  bytes(): Uint8Array {
    const whole = new Uint8Array(this.parts.reduce((sum, part) => sum + part.length, 0))
    let at = 0
    for (const part of this.parts) {
      whole.set(part, at)
      at += part.length
    }
    return whole
  }
}

/** Reads what a PlaneWriter wrote. Throws FormatError for bytes that end too early. */
export class PlaneReader {
  private at = 0
  /** A column of zeros takes no bytes, so that its length needs a bound of its own. */
  mostZeros: number

  constructor(private readonly whole: Uint8Array) {
    this.mostZeros = whole.length
  }

  integers(): Int32Array {
    const { length, planes } = this.head()
    if (planes > 4) throw new FormatError('the picture has a number that is too large')
    const values = new Int32Array(length)
    for (let plane = 0; plane < planes; plane++) {
      const bytes = this.take(length)
      for (let i = 0; i < length; i++) values[i] |= bytes[i] << (8 * plane)
    }
    return values
  }

  numbers(): Float64Array {
    const { length, planes } = this.head()
    const values = new Float64Array(length)
    for (let plane = 0; plane < planes; plane++) {
      const bytes = this.take(length)
      const scale = 256 ** plane
      for (let i = 0; i < length; i++) values[i] += bytes[i] * scale
    }
    return values
  }

  bytes(): Uint8Array {
    const { length, planes } = this.head()
    if (planes > 1) throw new FormatError('the picture has a byte that is too large')
    return planes === 0 ? new Uint8Array(length) : this.take(length).slice()
  }

  text(): string {
    return new TextDecoder().decode(this.bytes())
  }

  end(): void {
    if (this.at !== this.whole.length) throw new FormatError('the picture goes on after its end')
  }

  private head(): { length: number; planes: number } {
    const head = this.take(5)
    const length = new DataView(head.buffer, head.byteOffset).getUint32(0, true)
    const planes = head[4]
    const left = this.whole.length - this.at
    if (planes > 7 || length * planes > left || (planes === 0 && length > this.mostZeros)) {
      throw new FormatError('the picture ends too early')
    }
    return { length, planes }
  }

  private take(length: number): Uint8Array {
    if (this.at + length > this.whole.length) throw new FormatError('the picture ends too early')
    this.at += length
    return this.whole.subarray(this.at - length, this.at)
  }
}

/** The error for bytes that no page wrote. */
export function damaged(what: string): FormatError {
  return new FormatError(`the picture is damaged: ${what}`)
}

/** The column, or FormatError if it has another length. */
export function sized<T extends { readonly length: number }>(column: T, length: number, what: string): T {
  if (column.length !== length) throw damaged(`${column.length} ${what} instead of ${length}`)
  return column
}
