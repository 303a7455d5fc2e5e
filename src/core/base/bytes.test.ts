import assert from 'node:assert/strict'
import { test } from 'node:test'
import { GiB, KiB, MiB, parseBytes } from './bytes.js'

test('a size is read in bytes, powers of 1024 or powers of 1000, without the last part of a byte', () => {
  const sizes: [string, number][] = [
    ['512', 512],
    ['512 B', 512],
    ['64KiB', 64 * KiB],
    ['1.5 GiB', 1.5 * GiB],
    ['2g', 2 * GiB],
    ['0.5mib', MiB / 2],
    ['80GB', 80e9],
    ['80 gb', 80e9],
    ['1.5kB', 1500],
    ['2TB', 2e12],
    ['80GiB', 80 * GiB],
    ['3.9GiB', 4_187_593_113],
    ['0.1 KiB', 102],
  ]
  for (const [text, bytes] of sizes) assert.equal(parseBytes(text), bytes, text)
})

test('anything but text is refused by name', () => {
  for (const value of [64, null, undefined, { toString: 1 }, Symbol('64')] as unknown[]) {
    assert.throws(() => parseBytes(value as string), { name: 'TypeError', message: /text must be a string, not / })
  }
})

test('text that names no size is a RangeError that shows the forms', () => {
  for (const text of [
    '',
    'much',
    '3.9',
    '1.5 B',
    '-1',
    '1e9',
    '.5GiB',
    '3,9GiB',
    '2PiB',
    '9000000TiB',
    'NaN',
    '5iB',
    'GiB',
    '1 g b',
  ]) {
    assert.throws(() => parseBytes(text), { name: 'RangeError', message: /is not a size; write bytes, or like/ }, text)
  }
})
