import assert from 'node:assert/strict'
import { test } from 'node:test'
import { bytesOf, limitOf } from './byte-size.js'
import { checkByteCount, formatBytes, GiB } from './bytes.js'

const DEVICE = { totalBytes: 10 * GiB }

test('a size is a number of bytes, text with a unit, or a share of the whole', () => {
  assert.equal(bytesOf(1, 'x', DEVICE), 1)
  assert.equal(bytesOf('4GiB', 'x', DEVICE), 4 * GiB)
  assert.equal(bytesOf('80 GB', 'x', null), 80e9)
  assert.equal(bytesOf('50%', 'x', DEVICE), 5 * GiB)
  assert.equal(bytesOf(' 0.5 % ', 'x', DEVICE), Math.floor(0.05 * GiB))
  assert.equal(bytesOf('0%', 'x', DEVICE, 0), 0)
})

test('a limit may be Infinity, and a size may not', () => {
  assert.equal(limitOf(Infinity, 'x', DEVICE), Infinity)
  assert.equal(limitOf('10%', 'x', DEVICE), GiB)
  assert.throws(() => bytesOf(Infinity, 'x', DEVICE), { name: 'RangeError', message: /^x must be a whole number/ })
})

test('every other size is refused by its name', () => {
  const bad: readonly [unknown, 'RangeError' | 'TypeError', RegExp][] = [
    [
      '4 apples',
      'RangeError',
      /^x must be bytes, or a size such as '64KiB', '1.5GiB', '80GB' or '80%', not '4 apples'$/,
    ],
    ['64', 'TypeError', /^x must be a number of bytes, or text with a unit such as '64KiB', not '64'$/],
    ['', 'TypeError', /^x must be a number of bytes, or text with a unit such as '64KiB', not ''$/],
    ['101%', 'RangeError', /^x must be a size or a share up to '100%', not '101%'$/],
    ['-1%', 'RangeError', /^x must be bytes, or a size/],
    ['0%', 'RangeError', /^x must be a whole number of bytes from 1/],
    [0, 'RangeError', /^x must be a whole number of bytes from 1/],
    [1.5, 'RangeError', /^x must be a whole number/],
    [true, 'TypeError', /^x must be a number of bytes, not true$/],
    [4n, 'TypeError', /^x must be a number of bytes, not 4n$/],
    [null, 'TypeError', /^x must be a number of bytes, not null$/],
  ]
  for (const [size, name, message] of bad) assert.throws(() => bytesOf(size, 'x', DEVICE), { name, message })
})

test('a share is refused where no device is known', () => {
  const refused = { name: 'RangeError', message: "x must be a size such as '4GiB': a share needs a device" }
  assert.throws(() => bytesOf('80%', 'x', null), refused)
})

test('a byte count may be 0 where the call says so', () => {
  checkByteCount(0, 'x', 0)
  assert.throws(() => checkByteCount(-1, 'x', 0), /x must be a whole number of bytes from 0 to 2\^53 - 1, not -1/)
  assert.throws(() => checkByteCount(0, 'x'), /from 1 to/)
})

test('formatBytes refuses anything but a number', () => {
  assert.throws(() => formatBytes('x' as never), { name: 'TypeError', message: /formatBytes: bytes must be a number/ })
})
