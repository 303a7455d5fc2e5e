import assert from 'node:assert/strict'
import { test } from 'node:test'
import { GiB, MiB } from '../../../core/base/bytes.js'
import { recordedOutOfMemories } from '../../trace/failures/out-of-memory.js'
import { Action } from '../../trace/trace.js'
import { TraceBuilder } from '../../trace/trace-builder.js'
import { outsideOf } from './outside-text.js'

const ADDRESS = 2 ** 40

/** The lines about failed requests with these free bytes on the device, beside a segment of 2 GiB or none. */
function linesFor(free: readonly number[], hasSegment = true): string[] {
  const builder = new TraceBuilder()
  if (hasSegment) builder.add(Action.segmentAlloc, ADDRESS, 2 * GiB, 0, 0)
  builder.add(Action.alloc, ADDRESS, 1 * GiB, 0, 0)
  for (const bytes of free) builder.add(Action.outOfMemory, bytes, 8 * GiB, 0, 0)
  return linesOf(recordedOutOfMemories(builder.build({ file: 'built' })))
}

const linesOf = (failures: Parameters<typeof outsideOf>[0]) => [...outsideOf(failures).lines]

test('a failed request tells what is free and reserved, and that the size of the device is not known', () => {
  const [line, ...more] = linesFor([3 * GiB])
  assert.match(
    line,
    /^At the failed request of event 2, 3 GiB of the device were free, and this program had reserved 2 GiB: 5 GiB/,
  )
  assert.match(line, /it is the size of the device less 5 GiB\.$/)
  assert.deepEqual(more, [])
})

test('failed requests tell how the memory of others changed', () => {
  assert.equal(linesFor([3 * GiB, 3 * GiB])[1], 'The sum was the same at all 2 failed requests.')
  assert.equal(
    linesFor([3 * GiB, 1 * GiB, 3 * GiB - 512 * MiB])[1],
    'Over 3 failed requests it varied by 2 GiB, and was 512 MiB more at the last than at the first.',
  )
  assert.match(linesFor([1 * GiB, 3 * GiB])[1], /was 2 GiB less at the last than at the first\.$/)
  assert.match(linesFor([2 * GiB, 1 * GiB, 2 * GiB])[1], /was as much at the last as at the first\.$/)
})

test('a recording that does not tell says so', () => {
  assert.match(linesFor([])[0], /is not in this file: .*, and none failed\.$/)
  assert.match(linesFor([Number.NaN])[0], /is not in this file: .*, and these do not\.$/)
  assert.match(linesFor([3 * GiB], false)[0], /3 GiB of the device were free\. What this program had reserved is not/)
})
