import assert from 'node:assert/strict'
import { test } from 'node:test'
import { formatCount, formatNs, formatRate, formatRatio, formatShare, MISSING } from './number-format.js'

test('numbers have the unit that reads best', () => {
  for (const count of [0, 12, 999, 1000, -1, -999, -1000, 22868, 123456, 1234567, -1234567, 2 ** 53]) {
    assert.equal(formatCount(count), count.toLocaleString('en-US'))
  }
  assert.equal(formatShare(0.1894), '18.9 %')
  assert.equal(formatShare(1.06), '106 %')
  assert.equal(formatRatio(1.2389), '1.24')
  assert.equal(formatRatio(516.3), '516')
  assert.equal(formatRatio(1234.5), '1,235')
  assert.equal(formatNs(38.4), '38 ns')
  assert.equal(formatNs(52_100), '52.1 µs')
  assert.equal(formatNs(139_408_015), '139 ms')
  assert.equal(formatNs(3_519_855_000), '3.52 s')
  assert.equal(formatRate(1_920_000), '1.92 M/s')
  assert.equal(formatRate(84_600), '85 k/s')
  assert.equal(formatRate(12), '12 /s')
})

test('a missing number is a dash in every format', () => {
  for (const format of [formatCount, formatShare, formatRatio, formatNs, formatRate])
    assert.equal(format(null), MISSING)
})
