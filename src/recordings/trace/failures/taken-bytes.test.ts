import assert from 'node:assert/strict'
import { test } from 'node:test'
import { fileURLToPath } from 'node:url'
import { MiB } from '../../../core/base/bytes.js'
import { readRecording } from '../formats/read-recording.js'
import { ReservedSegments } from '../reserved-segments.js'
import { Action, type Trace } from '../trace.js'
import { TraceBuilder } from '../trace-builder.js'
import { memoryAt } from './memory-at.js'
import { recordedOutOfMemories } from './out-of-memory.js'
import { takenBytes } from './taken-bytes.js'

for (const [obtained, idleBytes] of [
  [Action.segmentAlloc, 18 * MiB],
  [Action.segmentMap, 18.5 * MiB],
] as const) {
  test(`a rest that was not split off stays with its block when the next one is freed, event kind ${obtained}`, () => {
    const builder = new TraceBuilder()
    const base = 2 ** 40
    const add = (action: number, offset: number, bytes: number) => builder.add(action, base + offset, bytes, 0, 0)
    add(obtained, 0, 20 * MiB)
    for (const offset of [0, 2 * MiB]) add(Action.alloc, offset, 2 * MiB)
    add(Action.freeRequested, 0, 2 * MiB)
    add(Action.freeCompleted, 0, 2 * MiB)
    // The block of 2 MiB has half a MiB too much, which belongs to this request.
    add(Action.alloc, 0, 1.5 * MiB)
    add(Action.freeRequested, 2 * MiB, 2 * MiB)
    add(Action.freeCompleted, 2 * MiB, 2 * MiB)
    builder.add(Action.outOfMemory, NaN, 40 * MiB, 0, 0)
    const [failed] = recordedOutOfMemories(builder.build({ file: 'unsplit' }))
    assert.deepEqual([failed.idleBytes, failed.largestIdleBytes], [idleBytes, idleBytes])
  })
}

test('without granted sizes the idle pieces at the end of a recording are those that PyTorch has', () => {
  const path = fileURLToPath(new URL('../../../../../traces/multistream-random.pickle.gz', import.meta.url))
  const trace = readRecording(path)
  const { blocks } = trace
  const unknown = { ...trace, blocks: { ...blocks, grantedBytes: new Float64Array(blocks.count).fill(NaN) } }
  const segments = new ReservedSegments(trace.initialSegments)
  segments.applyEvents(trace, 0, trace.events)
  const idleOf = (each: Trace) => memoryAt(each, each.events, segments, takenBytes(each)).idle.map(({ bytes }) => bytes)
  assert.deepEqual(idleOf(unknown), idleOf(trace))
})
