import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { MiB } from '../../../core/base/bytes.js'
import { curvesOf } from '../analysis/curves.js'
import { recordedOutOfMemories } from '../failures/out-of-memory.js'
import { readRecording } from '../formats/read-recording.js'
import { pickleSnapshot } from '../pytorch/pytorch-snapshot-writer.js'
import { Action, stackFrames, type Trace } from '../trace.js'
import { TraceBuilder } from '../trace-builder.js'
import { excerptOf } from './excerpt.js'

const again = (trace: Trace) => readRecording(pickleSnapshot(trace), { name: trace.file })

describe('an excerpt of a recording', () => {
  test('has the memory that is held from before it to the end, also if the recording has no segments', () => {
    const builder = new TraceBuilder()
    builder.add(Action.alloc, 2 ** 40, 100 * MiB, 0, 0)
    for (let i = 0; i < 20; i++) {
      for (const action of [Action.alloc, Action.freeRequested, Action.freeCompleted]) {
        builder.add(action, 2 ** 41, MiB, 0, builder.events)
      }
    }
    const trace = builder.build({ file: 'held' })
    const excerpt = excerptOf(trace, trace.events - 9, trace.events)
    assert.equal(excerpt.peakRequestedBytes, 101 * MiB)
    assert.equal(curvesOf(excerpt).inUseBytes.at(-1), 100 * MiB)
    assert.deepEqual([excerpt.complete, excerpt.recordedPeakReservedBytes], [false, null])
  })

  test('has the labels and the granted size of blocks that are held throughout', () => {
    const builder = new TraceBuilder()
    const held = builder.add(Action.alloc, 2 ** 40, MiB, 0, 0)
    builder.noteTag(held, 'weights')
    builder.noteMetadata(held, 'layer 1')
    builder.noteGranted(held, 2 * MiB)
    builder.notePool(held, builder.pools.number('0,5'))
    builder.add(Action.alloc, 2 ** 41, MiB, 0, 1)
    const { blocks, metadata, tags, pools } = excerptOf(builder.build({ file: 'labels' }), 1, 2)
    assert.equal(blocks.initial, 1)
    assert.deepEqual(
      [tags[blocks.tag[0]], metadata[blocks.metadata[0]], pools[blocks.pool[0]], blocks.grantedBytes[0]],
      ['weights', 'layer 1', '0,5', 2 * MiB],
    )
  })

  test('has the labels, stack, size and stream of blocks that were there before and are freed within it', () => {
    const builder = new TraceBuilder()
    const stack = builder.stacks.number([builder.stacks.entry('model.py', 3, 'forward')])
    const held = builder.add(Action.alloc, 2 ** 40, MiB, 7, 0, stack)
    builder.noteTag(held, 'weights')
    builder.noteMetadata(held, 'layer 1')
    builder.noteGranted(held, 2 * MiB)
    builder.add(Action.alloc, 2 ** 41, MiB, 7, 1)
    builder.add(Action.freeRequested, 2 ** 40, MiB, 9, 2)
    builder.add(Action.freeCompleted, 2 ** 40, MiB, 9, 3)
    const excerpt = excerptOf(builder.build({ file: 'labels' }), 1, 4)
    for (const { blocks, metadata, tags, stacks, streams } of [excerpt, again(excerpt)]) {
      assert.equal(blocks.initial, 1)
      assert.deepEqual(
        [tags[blocks.tag[0]], metadata[blocks.metadata[0]], blocks.grantedBytes[0], streams[blocks.stream[0]]],
        ['weights', 'layer 1', 2 * MiB, 7],
      )
      assert.deepEqual(stackFrames(stacks, blocks.stack[0]), [{ filename: 'model.py', line: 3, name: 'forward' }])
    }
  })

  test('stays the same when written and read again, with blocks that no event and no segment has', () => {
    const builder = new TraceBuilder()
    for (let slot = 0; slot < 4; slot++) {
      const stack = builder.stacks.number([builder.stacks.entry('model.py', slot, 'forward')])
      const held = builder.add(Action.alloc, 2 ** 40 + slot * MiB, MiB, 7, slot, stack)
      builder.noteTag(held, `tag ${slot}`)
      builder.notePool(held, builder.pools.number('0,5'))
    }
    builder.add(Action.freeRequested, 2 ** 40, MiB, 9, 4)
    builder.add(Action.freeRequested, 2 ** 40 + MiB, MiB, 9, 5)
    builder.add(Action.freeCompleted, 2 ** 40, MiB, 9, 6)
    builder.add(Action.alloc, 2 ** 41, MiB, 7, 7)
    const excerpt = excerptOf(builder.build({ file: 'held' }), 6, 8)
    const { blocks, pools, tags, stacks, saysCompleted, peakRequestedBytes, streams } = again(excerpt)
    assert.deepEqual([saysCompleted, peakRequestedBytes], [true, 3 * MiB])
    const described = (number: number) => [
      tags[blocks.tag[number]],
      pools[blocks.pool[number]],
      streams[blocks.stream[number]],
      stackFrames(stacks, blocks.stack[number])[0].line,
    ]
    assert.deepEqual(
      [0, 1, 2, 3].map(described),
      [0, 1, 2, 3].map(slot => [`tag ${slot}`, '0,5', 7, slot]),
    )
    assert.deepEqual([...blocks.freeRequestedAt], [...excerpt.blocks.freeRequestedAt])
  })

  test('keeps that a free was requested but has not completed when written and read again, without segments', () => {
    const builder = new TraceBuilder()
    for (const slot of [0, 1, 2]) builder.add(Action.alloc, 2 ** 40 + slot * MiB, MiB, 7, slot)
    builder.add(Action.freeRequested, 2 ** 40, MiB, 7, 3)
    builder.add(Action.alloc, 2 ** 41, MiB, 7, 4)
    builder.add(Action.freeCompleted, 2 ** 40, MiB, 7, 5)
    const excerpt = excerptOf(builder.build({ file: 'requested' }), 1, 5)
    assert.deepEqual([excerpt.saysCompleted, again(excerpt).saysCompleted], [true, true])
    const plain = new TraceBuilder()
    plain.add(Action.alloc, 2 ** 40, MiB, 7, 0)
    plain.add(Action.freeRequested, 2 ** 40, MiB, 7, 1)
    assert.equal(again(plain.build({ file: 'never' })).saysCompleted, false)
  })

  test('says how many events the recording lost', () => {
    const builder = new TraceBuilder()
    for (const address of [2 ** 40, 2 ** 41]) builder.add(Action.alloc, address, MiB, 0, builder.events)
    assert.equal(excerptOf(builder.build({ file: 'lossy', dropped: 5 }), 1, 2).dropped, 5)
  })

  test('without a completed free still has memory that waits for a stream, if the recording has completed frees', () => {
    const builder = new TraceBuilder()
    builder.add(Action.segmentAlloc, 2 ** 40, 20 * MiB, 0, 0)
    for (const slot of [0, 1]) builder.add(Action.alloc, 2 ** 40 + slot * 2 * MiB, 2 * MiB, 0, 1)
    builder.add(Action.freeRequested, 2 ** 40, 2 * MiB, 0, 2)
    builder.add(Action.freeRequested, 2 ** 40 + 2 * MiB, 2 * MiB, 0, 3)
    builder.add(Action.outOfMemory, NaN, 30 * MiB, 0, 4)
    builder.add(Action.freeCompleted, 2 ** 40, 2 * MiB, 0, 5)
    const trace = builder.build({ file: 'waiting' })
    const figures = (each: Trace) => {
      const [{ waitingBytes, idleBytes }] = recordedOutOfMemories(each)
      return [waitingBytes, idleBytes]
    }
    assert.deepEqual(figures(trace), [4 * MiB, 16 * MiB])
    const excerpt = excerptOf(trace, 5, 6)
    assert.deepEqual(figures(excerpt), [4 * MiB, 16 * MiB])
    assert.deepEqual(figures(readRecording(pickleSnapshot(excerpt), { name: 'written' })), [4 * MiB, 16 * MiB])
  })

  test('has the blocks whose free is never completed, if the recording has completed frees', () => {
    const builder = new TraceBuilder()
    for (const address of [2 ** 40, 2 ** 41]) builder.add(Action.alloc, address, MiB, 0, builder.events)
    for (const address of [2 ** 40, 2 ** 41]) builder.add(Action.freeRequested, address, MiB, 0, builder.events)
    const initialOf = () => {
      builder.add(Action.alloc, 2 ** 42, MiB, 0, builder.events)
      const trace = builder.build({ file: 'pending' })
      return Array.from(excerptOf(trace, trace.events - 1, trace.events).blocks.address).slice(0, -1)
    }
    assert.deepEqual(initialOf(), [])
    builder.add(Action.freeRequested, 2 ** 42, MiB, 0, builder.events)
    builder.add(Action.freeCompleted, 2 ** 40, MiB, 0, builder.events)
    builder.add(Action.freeCompleted, 2 ** 42, MiB, 0, builder.events)
    assert.deepEqual(initialOf(), [2 ** 41])
  })
})
