import assert from 'node:assert/strict'
import { test } from 'node:test'
import { PLAIN } from '../recordings/report/table.js'
import { columnsOf, inLocale, paintOf } from './terminal.js'

const TERMINAL = { isTTY: true, columns: 132 }
const PIPE = { isTTY: false, columns: 0 }

test('colour is for terminals, unless NO_COLOR or FORCE_COLOR says otherwise', () => {
  assert.notEqual(paintOf(TERMINAL, {}).bold('x'), 'x')
  assert.equal(paintOf(TERMINAL, { NO_COLOR: '1' }), PLAIN)
  assert.equal(paintOf(TERMINAL, { TERM: 'dumb' }), PLAIN)
  assert.equal(paintOf(PIPE, {}), PLAIN)
  assert.equal(paintOf(PIPE, { CI: 'true' }), PLAIN)
  assert.notEqual(paintOf(PIPE, { FORCE_COLOR: '1' }).bold('x'), 'x')
  assert.equal(paintOf(PIPE, { FORCE_COLOR: '0' }), PLAIN)
  assert.equal(paintOf(TERMINAL, { FORCE_COLOR: '1', NO_COLOR: '1' }), PLAIN)
})

test('text is as wide as the terminal, or 80 columns', () => {
  assert.equal(columnsOf(TERMINAL), 132)
  assert.equal(columnsOf(PIPE), 80)
})

test('a locale that is not UTF-8 gets ASCII alone, and no locale gets UTF-8', () => {
  const text = '─–−×✗•→…µ’█░▓▒·≥▁▂▃▄▅▆▇'
  for (const env of [{ LC_ALL: 'C' }, { LANG: 'POSIX' }, { LC_CTYPE: 'de_DE.ISO-8859-1', LANG: 'C.UTF-8' }]) {
    assert.match(inLocale(text, env), /^[\x20-\x7e]+$/, JSON.stringify(env))
  }
  for (const env of [{}, { LC_ALL: 'C.UTF-8' }, { LC_ALL: '', LANG: 'en_US.utf8' }]) {
    assert.equal(inLocale(text, env), text, JSON.stringify(env))
  }
})
