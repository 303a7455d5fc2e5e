import assert from 'node:assert/strict'
import { test } from 'node:test'
import { brailleChart } from './braille-chart.js'

const curve = (...values: number[]) => Float64Array.from(values)

test('an area has a dot for each eighth of the top, two columns and four rows of dots a letter', () => {
  const rising = { inUseBytes: curve(1, 2, 3, 4, 5, 6, 7, 8), reservedBytes: null }
  assert.deepEqual(brailleChart(rising, 8, 4, 2), ['⠀⠀⣠⣾', '⣠⣾⣿⣿'])
})

test('reserved bytes are a line above the area', () => {
  assert.deepEqual(brailleChart({ inUseBytes: curve(1, 1), reservedBytes: curve(4, 4) }, 4, 1, 1), ['⣉'])
})

test('a column shows the most of its events, so that no peak is lost', () => {
  const inUseBytes = new Float64Array(1000)
  inUseBytes[777] = 4
  const [line] = brailleChart({ inUseBytes, reservedBytes: null }, 4, 3, 1)
  assert.deepEqual([...line].filter(letter => letter !== '⠀').length, 1)
})

test('a scale stands on the left where it has room', () => {
  const lines = brailleChart({ inUseBytes: curve(0, 1024), reservedBytes: null }, 1024, 12, 3)
  assert.deepEqual(
    lines.map(line => line.slice(0, 6)),
    ['1 KiB ', '      ', '    0 '],
  )
  assert.ok(lines.every(line => line.length === 12))
})

test('a recording without bytes or events is an empty chart', () => {
  const none = { inUseBytes: curve(), reservedBytes: null }
  assert.deepEqual(brailleChart(none, 0, 6, 1), ['⠀⠀⠀⠀⠀⠀'])
})
