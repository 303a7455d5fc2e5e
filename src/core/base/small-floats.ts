// Floating-point numbers of 16 bits, which kernels use and JavaScript has no arrays for: Float16Array exists from Node
// 24 on, and nothing for bfloat16.

import { WrongTypeError } from './argument-errors.js'
import { describe } from './bytes.js'
import { showAsText } from './readable.js'

const SINGLE_FRACTION_BITS = 23
const SINGLE_BIAS = 127
const single = new Float32Array(1)
const singleBits = new Uint32Array(single.buffer)

/** A format of floating-point numbers in 16 bits, as `float16` and `bfloat16`. */
export class SmallFloat {
  private readonly leastNormal: number
  private readonly infinity: number
  /** by bits: the number; made at the first `decode` */
  private numbers: Float32Array | null = null

  /** Made by this package only. */
  constructor(
    private readonly name: string,
    /** bits of the fraction */
    private readonly fractionBits: number,
    private readonly bias: number,
  ) {
    this.leastNormal = 2 ** (1 - bias)
    this.infinity = (2 * bias + 1) << fractionBits
  }

  /**
   * The numbers in this format, rounded to the nearest, halves to even, for a `Uint16Array` on the device. What is too
   * large becomes infinite. Throws TypeError unless `values` is an array of numbers.
   */
  encode(values: ArrayLike<number>): Uint16Array {
    checkNumbers('encode: values', values)
    const bits = new Uint16Array(values.length)
    for (let index = 0; index < bits.length; index++) {
      const value = values[index]
      if (typeof value !== 'number') checkNumbers('encode: values', value)
      bits[index] = this.bitsOf(value)
    }
    return bits
  }

  /** The numbers that `bits` stand for, without loss. Throws TypeError unless `bits` is an array of numbers. */
  decode(bits: ArrayLike<number>): Float32Array {
    checkNumbers('decode: bits', bits)
    this.numbers ??= Float32Array.from({ length: 0x10000 }, (_, each) => this.valueOfBits(each))
    const values = new Float32Array(bits.length)
    for (let index = 0; index < values.length; index++) values[index] = this.numbers[bits[index] & 0xffff]
    return values
  }

  /**
   * One number as its bits.
   * @internal
   */
  bitsOf(value: number): number {
    const { fractionBits, bias, infinity } = this
    single[0] = value
    let bits = singleBits[0] & 0x7fff_ffff
    // Rounding twice would be wrong, so the first step cuts off, and its last bit says whether it has lost anything.
    if (single[0] !== value) bits = (Math.abs(single[0]) > Math.abs(value) ? bits - 1 : bits) | 1
    const sign = (singleBits[0] >>> 16) & 0x8000
    if (Number.isNaN(value)) return infinity + 2 ** (fractionBits - 1)
    const size = Math.abs(value)
    if (size < this.leastNormal) return sign + roundEven((size / this.leastNormal) * 2 ** fractionBits)
    const shift = SINGLE_FRACTION_BITS - fractionBits
    const rebiased = bits - ((SINGLE_BIAS - bias) << SINGLE_FRACTION_BITS)
    const rounded = (rebiased + 2 ** (shift - 1) - 1 + ((rebiased >> shift) & 1)) >>> shift
    return sign + Math.min(rounded, infinity)
  }

  /** The number that bits stand for. */
  private valueOfBits(bits: number): number {
    const { fractionBits, bias, leastNormal } = this
    const exponent = (bits & 0x7fff) >> fractionBits
    const fraction = (bits & (2 ** fractionBits - 1)) * 2 ** -fractionBits
    const sign = bits & 0x8000 ? -1 : 1
    if (exponent === 2 * bias + 1) return fraction === 0 ? sign * Infinity : Number.NaN
    return sign * (exponent === 0 ? fraction * leastNormal : (1 + fraction) * 2 ** (exponent - bias))
  }

  /** One line for people, such as `SmallFloat { float16 }`; console.log shows it. */
  toString(): string {
    return `SmallFloat { ${this.name} }`
  }

  /** The plain values that JSON.stringify writes. */
  toJSON(): object {
    return { format: this.name }
  }
}

showAsText(SmallFloat)

/** Half precision (IEEE 754 binary16), CUDA's `__half`. */
export const float16 = new SmallFloat('float16', 10, 15)
/** The upper half of a float32, CUDA's `__nv_bfloat16`. */
export const bfloat16 = new SmallFloat('bfloat16', 7, 127)

/** Rounds a number from 0 on, and halves to the even neighbour. */
function roundEven(value: number): number {
  const below = Math.floor(value)
  const rest = value - below
  return rest > 0.5 || (rest === 0.5 && below % 2 === 1) ? below + 1 : below
}

function checkNumbers(what: string, values: unknown): asserts values is ArrayLike<number> {
  if (typeof values === 'object' && values !== null && 'length' in values) return
  throw new WrongTypeError(`${what} must be an array of numbers, not ${describe(values)}`)
}
