// Predictions beside measurements: traces/record/categories.py recorded programs with several sizes on a GPU.

import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { readRecording } from '../formats/read-recording.js'
import { predict } from './predict.js'

const path = (name: string) => fileURLToPath(new URL(`../../../../../traces/categories/${name}`, import.meta.url))
const recorded = (series: string, size: number) => readRecording(path(`series-${series}${size}.pickle.gz`))

/** The counts of PyTorch itself. */
function measured(series: string, size: number): { readonly max_allocated: number; readonly max_reserved: number } {
  return JSON.parse(readFileSync(path(`series-${series}${size}.json`), 'utf8'))
}

const SERIES = [
  { series: 'gpt-batch', sizes: [4, 8], others: [12, 16], inUseOff: 0.01, reservedOff: 0.001 },
  { series: 'lstm-batch', sizes: [4, 8], others: [12, 16], inUseOff: 0.01, reservedOff: 0.03 },
  // Work space of cuDNN depends on the algorithms that it chooses.
  { series: 'cnn-batch', sizes: [4, 8], others: [12, 16], inUseOff: 0.03, reservedOff: 0.17 },
  // Attention that keeps its weights: memory grows with the square of the length.
  { series: 'attention-length', sizes: [128, 256], others: [384, 512], inUseOff: 0.01, reservedOff: 0.001 },
] as const

for (const { series, sizes, others, inUseOff, reservedOff } of SERIES) {
  for (const size of others) {
    test(`${series} ${size} is predicted from ${sizes.join(' and ')}`, () => {
      const [first, second] = sizes.map(each => recorded(series, each))
      const { inUseBytes, asRecorded } = predict([first, second], { sizes, size })
      const { reservedBytes } = asRecorded
      // PyTorch counts bytes in use as it rounds them: up to 1 % more than these programs requested.
      const { max_allocated: inUse, max_reserved: reserved } = measured(series, size)
      assert.ok(inUse >= inUseBytes.low && inUse <= 1.01 * inUseBytes.high, 'in use, within the range')
      assert.ok(reserved >= reservedBytes.low && reserved <= reservedBytes.high, 'reserved, within the range')
      assert.ok(Math.abs(inUseBytes.estimate / inUse - 1) <= inUseOff, `${inUseBytes.estimate} for ${inUse}`)
      assert.ok(
        Math.abs(reservedBytes.estimate / reserved - 1) <= reservedOff,
        `${reservedBytes.estimate} for ${reserved}`,
      )
    })
  }
}

test('where memory does not grow in a line, the range says so', () => {
  const [first, second] = [recorded('attention-length', 128), recorded('attention-length', 256)]
  const { shares, inUseBytes } = predict([first, second], { sizes: [128, 256], size: 512 })
  assert.ok(shares.otherwise > 0.5)
  assert.ok(inUseBytes.high > 1.2 * inUseBytes.low)
})
