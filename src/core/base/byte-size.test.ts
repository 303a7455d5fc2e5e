import assert from 'node:assert/strict'
import { test } from 'node:test'
import { bytesOfSize, readSizes } from './byte-size.js'
import { checkByteCount, formatBytes, GiB, KiB } from './bytes.js'

test('a size is a number as it is, or text that is read', () => {
  for (const number of [1, 0.5, Infinity]) assert.equal(bytesOfSize(number, 'x'), number)
  assert.equal(bytesOfSize('64' as '64B', 'x'), '64', 'for checkByteCount to refuse')
  assert.equal(bytesOfSize('4GiB', 'x'), 4 * GiB)
  assert.throws(() => bytesOfSize('4 apples' as '4B', 'maxBytes'), {
    name: 'RangeError',
    message: "maxBytes must be bytes, or a size such as '64KiB', '1.5GiB' or '80GB', not '4 apples'",
  })
})

test('the named sizes of options are read, and nothing else', () => {
  const options = { a: '1KiB', b: '1KiB', c: 5, d: undefined } as const
  assert.deepEqual(readSizes(options, 'a', 'c', 'd'), { a: KiB, b: '1KiB', c: 5, d: undefined })
  assert.equal(options.a, '1KiB')
})

test('a byte count may be 0 where the call says so', () => {
  checkByteCount(0, 'x', 0)
  assert.throws(() => checkByteCount(-1, 'x', 0), /x must be a whole number of bytes from 0 to 2\^53 - 1, not -1/)
  assert.throws(() => checkByteCount(0, 'x'), /from 1 to/)
})

test('formatBytes refuses anything but a number', () => {
  assert.throws(() => formatBytes('x' as never), { name: 'TypeError', message: /formatBytes: bytes must be a number/ })
})
