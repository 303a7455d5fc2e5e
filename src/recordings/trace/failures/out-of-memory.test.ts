import assert from 'node:assert/strict'
import { test } from 'node:test'
import { MiB } from '../../../core/base/bytes.js'
import { Action } from '../trace.js'
import { TraceBuilder } from '../trace-builder.js'
import { recordedOutOfMemories } from './out-of-memory.js'

for (const obtained of [Action.segmentAlloc, Action.segmentMap]) {
  test(`an idle piece of a private pool is usable for requests of that pool only, event kind ${obtained}`, () => {
    const builder = new TraceBuilder()
    const pool = builder.pools.number('0,1')
    builder.notePool(builder.add(obtained, 2 ** 40, 64 * MiB, 0, 0), pool)
    builder.add(obtained, 2 ** 40 + 64 * MiB, 20 * MiB, 0, 0)
    builder.add(Action.outOfMemory, 0, 40 * MiB, 0, 0)
    builder.notePool(builder.add(Action.outOfMemory, 0, 40 * MiB, 0, 0), pool)
    const failed = recordedOutOfMemories(builder.build({ file: 'built' }))
    assert.deepEqual(
      failed.map(({ largestIdleBytes, largestUsableBytes }) => [largestIdleBytes, largestUsableBytes]),
      [
        [64 * MiB, 20 * MiB],
        [64 * MiB, 64 * MiB],
      ],
    )
  })
}
