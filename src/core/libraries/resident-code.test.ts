import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { test } from 'node:test'
import { MiB } from '../base/bytes.js'
import { dropCode } from './resident-code.js'

const residentBytes = () => 1024 * Number(/^RssFile:\s+(\d+) kB$/m.exec(readFileSync('/proc/self/status', 'utf8'))![1])

test('the code of a process leaves its memory, and runs on', {
  skip: process.platform !== 'linux' && `needs Linux, not ${process.platform}`,
}, () => {
  dropCode() // loads the C library
  assert.equal(JSON.stringify([...'code'].sort()), '["c","d","e","o"]')
  const before = residentBytes()
  dropCode()
  const after = residentBytes()
  assert.ok(before - after > MiB, `${before} bytes before, and ${after} after`)
  assert.equal(JSON.stringify([...'code'].sort()), '["c","d","e","o"]')
})
