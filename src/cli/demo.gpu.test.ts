import assert from 'node:assert/strict'
import { test } from 'node:test'
import { demo } from './demo.js'

test('the demo runs on GPU 0', async () => {
  const lines: string[] = []
  await demo(0, line => lines.push(line))
  assert.match(lines[1], /0, 0\.5, 1, 1\.5/)
})
