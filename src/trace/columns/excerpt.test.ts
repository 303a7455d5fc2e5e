import assert from 'node:assert/strict'
import { describe, test } from 'node:test'
import { MiB } from '../../base/bytes.js'
import { curvesOf } from '../analysis/curves.js'
import { Action } from '../trace.js'
import { TraceBuilder } from '../trace-builder.js'
import { excerptOf } from './excerpt.js'

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
    builder.add(Action.alloc, 2 ** 41, MiB, 0, 1)
    const { blocks, metadata, tags } = excerptOf(builder.build({ file: 'labels' }), 1, 2)
    assert.equal(blocks.initial, 1)
    assert.deepEqual(
      [tags[blocks.tag[0]], metadata[blocks.metadata[0]], blocks.grantedBytes[0]],
      ['weights', 'layer 1', 2 * MiB],
    )
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
