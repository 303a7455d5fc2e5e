import assert from 'node:assert/strict'
import { test } from 'node:test'
import { fileName, printable, printableJson, shortened, shown } from './shown-text.js'

const UNSEEN = '\x1b[2J\x07\t\n\x7f\u009b\u00ad\u200d\u2028\u2029\u202e\u2066\ufeff\u{e0001}'

test('escapes and letters without a shape become question marks', () => {
  assert.equal(printable('a\x1b[2J\nb'), 'a?[2J?b')
  assert.match(printable(UNSEEN), /^[?[2J]+$/)
  assert.equal(printable('größe 数 e\u0301 😀'), 'größe 数 e\u0301 😀')
})

test('a long text keeps its end, in whole letters', () => {
  assert.equal(shortened('x'.repeat(300)), 'x'.repeat(300))
  assert.equal(shortened('x'.repeat(1e5)), `…${'x'.repeat(299)}`)
  assert.equal(shortened('abcdef', 4), '…def')
  assert.equal(shortened('ab😀cd', 4), '…cd')
  assert.equal(shortened('ab😀cd', 5), '…😀cd')
  assert.equal(shortened('abe\u0301\u0301cd', 4), '…cd')
  assert.ok(shown('\u202e\u0301'.repeat(5e4)).length <= 300)
})

test('a file has its name on each system', () => {
  for (const path of [
    'run.pickle',
    'a/b/run.pickle',
    'C:\\a b\\run.pickle',
    '\\\\host\\share/run.pickle',
    'C:/run.pickle',
  ]) {
    assert.equal(fileName(path), 'run.pickle')
  }
})

test('JSON without unseen letters has the same value', () => {
  const value = { [UNSEEN]: [UNSEEN, '\ud800', 'größe', 1.5, null] }
  assert.match(printableJson(value), /^[^\p{Cc}\p{Cf}\p{Zl}\p{Zp}\p{Cs}]+$/u)
  assert.deepEqual(JSON.parse(printableJson(value)), value)
})

test('JSON has the end of a text that is longer than any name', () => {
  const name = `${'<int, '.repeat(1000)}>`
  assert.deepEqual(JSON.parse(printableJson([name, name.repeat(1000)])), [name, shortened(name.repeat(1000), 10_000)])
})
