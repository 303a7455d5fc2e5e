import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { Random } from './random.js'
import { bfloat16, float16 } from './small-floats.js'

const FORMATS = [
  { format: float16, most: 65504, least: 2 ** -24, infinity: 0x7c00 },
  { format: bfloat16, most: (2 - 2 ** -7) * 2 ** 127, least: 2 ** -133, infinity: 0x7f80 },
]

describe('small floats', () => {
  for (const { format, most, least, infinity } of FORMATS) {
    it(`${format} returns each of its numbers unchanged`, () => {
      const all = Uint16Array.from({ length: 0x10000 }, (_, bits) => bits)
      const numbers = format.decode(all)
      const again = format.encode(numbers)
      for (const bits of all) {
        if (Number.isNaN(numbers[bits])) assert.ok((again[bits] & 0x7fff) > infinity)
        else assert.equal(again[bits], bits)
      }
    })

    it(`${format} rounds to the nearest number, and halves to the even one`, () => {
      const numbers = [...format.decode(Uint16Array.from({ length: infinity + 1 }, (_, bits) => bits))]
      numbers[infinity] = numbers[infinity - 1] + (numbers[infinity - 1] - numbers[infinity - 2])
      const random = new Random(7)
      for (let round = 0; round < 20_000; round++) {
        const below = random.below(infinity)
        const [a, b] = [numbers[below], numbers[below + 1]]
        const middle = (a + b) / 2
        const shift = (b - a) * 2 ** -random.below(40)
        const even = below % 2 === 0 ? below : below + 1
        const cases = [
          [middle, even],
          [Math.min(b, middle + shift), below + 1],
          [Math.max(a, middle - shift), below],
        ]
        for (const [value, bits] of cases) {
          if (value === middle && bits !== even) continue // the shift was too small for a double
          assert.deepEqual([...format.encode([value, -value])], [bits, bits | 0x8000], `${value}`)
        }
      }
    })

    it(`${format} has infinities, signed zeros, and a least and a largest number`, () => {
      const values = [0, -0, most, -most, least, least / 2, 2 * most, Infinity, -Infinity, 1e-300]
      const expected = [
        0,
        0x8000,
        infinity - 1,
        (infinity - 1) | 0x8000,
        1,
        0,
        infinity,
        infinity,
        infinity | 0x8000,
        0,
      ]
      assert.deepEqual([...format.encode(values)], expected)
      assert.ok(Number.isNaN(format.decode(format.encode([Number.NaN]))[0]))
    })

    it(`${format} refuses anything but arrays of numbers`, () => {
      for (const wrong of [undefined, null, 5, '12', {}]) {
        assert.throws(() => format.encode(wrong as never), { name: 'TypeError', message: /^encode: values must be/ })
        assert.throws(() => format.decode(wrong as never), { name: 'TypeError', message: /^decode: bits must be/ })
      }
      assert.throws(() => format.encode([1, '2'] as never), { name: 'TypeError', message: /numbers, not '2'/ })
    })
  }
})
