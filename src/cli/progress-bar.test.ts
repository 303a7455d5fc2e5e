import assert from 'node:assert/strict'
import { test } from 'node:test'
import { ProgressBar } from './progress-bar.js'

function screen(isTTY: boolean, columns = 80) {
  const written: string[] = []
  const write = (text: string) => {
    written.push(text)
    return true
  }
  return { isTTY, columns, write: write as NodeJS.WriteStream['write'], written }
}

test('the bar appears after a second, moves at most ten times a second, and is erased', () => {
  const shown = screen(true)
  let time = 0
  const bar = new ProgressBar(shown, () => time)
  for (; time < 1000; time += 100) bar.update(0.1, 'reading')
  assert.deepEqual(shown.written, [])
  bar.update(0.5, 'reading')
  bar.update(0.6, 'reading')
  assert.equal(shown.written.length, 1)
  assert.match(shown.written[0], /█{12}░{12} {2}50 % reading$/)
  time += 100
  bar.update(1, 'replaying')
  assert.match(shown.written[1], /█{24} 100 % replaying$/)
  bar.clear()
  assert.deepEqual(shown.written.slice(2), ['\r\x1b[K'])
})

test('work within a second shows no bar', () => {
  const shown = screen(true)
  const bar = new ProgressBar(shown, () => 0)
  bar.update(0.5, 'reading')
  bar.clear()
  assert.deepEqual(shown.written, [])
})

test('output that is not a terminal shows no bar', () => {
  const shown = screen(false)
  let time = 0
  const bar = new ProgressBar(shown, () => time)
  time = 5000
  bar.update(0.5, 'reading')
  bar.clear()
  assert.deepEqual(shown.written, [])
})

test('the bar never wraps, and shows no control characters', () => {
  const shown = screen(true, 40)
  let time = 0
  const bar = new ProgressBar(shown, () => time)
  time = 5000
  bar.update(0.5, `a\x1b[2J${'very '.repeat(20)}long name`)
  assert.equal(shown.written[0].replace('\r\x1b[K', '').length, 39)
  assert.ok(shown.written[0].includes('a?[2J'))
})
