// A recording whose call stacks all differ, as of a program that compiles its code while it runs.

import assert from 'node:assert/strict'
import { test } from 'node:test'
import { collapsedStacks } from '../src/recordings/report/export/collapsed.js'
import { heldStacks } from '../src/recordings/report/export/moment.js'
import { reportPage } from '../src/recordings/report/page/page.js'
import { Action } from '../src/recordings/trace/trace.js'
import { TraceBuilder } from '../src/recordings/trace/trace-builder.js'

/** More than a call has arguments, and more than fits into 16 bits. */
const STACKS = 150_000
const [BASE, BYTES, FUNCTIONS] = [2 ** 40, 512, 1000]

test('the page and the collapsed stacks of 150,000 distinct call stacks have all bytes', () => {
  const builder = new TraceBuilder()
  const { stacks } = builder
  const main = stacks.entry('main.py', 1, 'main')
  builder.add(Action.segmentAlloc, BASE, STACKS * BYTES, 0, 0)
  for (let i = 0; i < STACKS; i++) {
    const stack = stacks.number([stacks.entry('made.py', i, `made_${i % FUNCTIONS}`), main])
    builder.add(Action.alloc, BASE + i * BYTES, BYTES, 0, i, stack)
  }
  const trace = builder.build({ file: 'made' })
  assert.equal(trace.stacks.count, STACKS + 1)
  const page = reportPage(trace)
  assert.ok(page.includes('73.24 MiB in use'), 'the bytes are in the verdict')
  assert.ok(page.length < 10_000_000, `${page.length} letters`)
  assert.equal(heldStacks(trace, STACKS).length, STACKS)
  const lines = collapsedStacks(trace).trimEnd().split('\n')
  assert.equal(
    lines.reduce((sum, line) => sum + Number(line.slice(line.lastIndexOf(' '))), 0),
    STACKS * BYTES,
  )
})
