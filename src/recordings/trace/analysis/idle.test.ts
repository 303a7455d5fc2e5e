import assert from 'node:assert/strict'
import { test } from 'node:test'
import { MiB } from '../../../core/base/bytes.js'
import { Action, BEFORE, type Trace } from '../trace.js'
import { type FinalState, TraceBuilder } from '../trace-builder.js'
import { idleMomentOf, memoryAfter } from './idle-moment.js'
import { idleMemoryOf } from './pinned-segments.js'
import { poolsOf } from './pools.js'
import { waitingAfter, withWaiting } from './waiting.js'

const BASE = 2 ** 40

/** Segments of 100 MiB, one each GiB, with blocks at offsets in MiB. */
class Memory extends TraceBuilder {
  private now = 0

  segment(index: number, stream = 0, pool = 0, action: number = Action.segmentAlloc): void {
    this.notePool(this.add(action, BASE + index * 2 ** 30, 100 * MiB, stream, this.now++), pool)
  }

  block(index: number, offset: number, mebibytes: number, line: number, stream = 0, pool = 0): void {
    const stack = this.stacks.number([this.stacks.entry('cache.py', line, 'put')])
    const address = BASE + index * 2 ** 30 + offset * MiB
    this.notePool(this.add(Action.alloc, address, mebibytes * MiB, stream, this.now++, stack), pool)
  }

  free(index: number, offset: number, isCompleted = true): void {
    const address = BASE + index * 2 ** 30 + offset * MiB
    this.add(Action.freeRequested, address, 0, 0, this.now++)
    if (isCompleted) this.add(Action.freeCompleted, address, 0, 0, this.now++)
  }
}

function idleOf(trace: Trace) {
  const moment = idleMomentOf(trace)!
  return { event: moment.event, isFailure: moment.isFailure, ...idleMemoryOf(trace, moment.memory) }
}

test('small blocks keep the segments that they split, and whole segments are kept by none', () => {
  const memory = new Memory()
  for (const index of [0, 1, 2, 3]) memory.segment(index)
  memory.block(0, 40, 2, 7)
  memory.block(1, 98, 2, 7)
  // Of this segment more is in use than idle.
  memory.block(2, 0, 60, 8)
  const { event, isFailure, pins, wholeSegments, wholeBytes, idleBytes, pieces, largestBytes } = idleOf(
    memory.build({ file: 'built' }),
  )
  // The moment is the block for which the last segment was taken.
  assert.deepEqual([event, isFailure], [4, false])
  assert.deepEqual([wholeSegments, wholeBytes / MiB], [3, 300])
  assert.deepEqual([idleBytes / MiB, pieces, largestBytes / MiB], [398, 5, 100])
  assert.deepEqual(
    pins.map(pin => [pin.site, pin.blocks, pin.bytes / MiB, pin.idleBytes / MiB, pin.segments]),
    [['cache.py:7 put', 1, 2, 98, 1]],
  )
})

test('at a failed request the memory is that of the failure, and blocks of one line count together', () => {
  const memory = new Memory()
  for (const index of [0, 1, 2]) memory.segment(index)
  memory.block(0, 40, 2, 7)
  memory.block(1, 90, 4, 7)
  memory.block(1, 0, 30, 9)
  memory.block(2, 0, 60, 8)
  memory.add(Action.outOfMemory, 0, 200 * MiB, 0, 9)
  const { event, isFailure, pins, wholeSegments } = idleOf(memory.build({ file: 'built' }))
  assert.deepEqual([event, isFailure, wholeSegments], [7, true, 0])
  assert.deepEqual(
    pins.map(pin => [pin.site, pin.blocks, pin.bytes / MiB, pin.idleBytes / MiB, pin.segments]),
    [['cache.py:7 put', 2, 6, 98 + 66, 2]],
  )
})

test('private pools keep what is theirs, and each pool and stream has its sums', () => {
  const memory = new Memory()
  const pool = memory.pools.number('0,1')
  memory.segment(0)
  memory.segment(1, 7, pool)
  memory.segment(2, 7, pool)
  memory.segment(3, 5)
  memory.block(1, 0, 30, 7, 7, pool)
  memory.block(0, 0, 20, 7)
  memory.block(0, 20, 10, 7)
  memory.free(0, 20, false)
  memory.free(1, 0)
  memory.block(1, 0, 30, 7, 7, pool)
  const trace = memory.build({ file: 'built' })
  const { privateBytes, wholeBytes } = idleOf(trace)
  assert.deepEqual([privateBytes / MiB, wholeBytes / MiB], [170, 200])
  const pools = poolsOf(trace, memoryAfter(trace, trace.events - 1))
  assert.deepEqual(
    pools.map(each => [each.pool, each.stream, each.reservedBytes / MiB, each.inUseBytes / MiB, each.idleBytes / MiB]),
    [
      ['0,1', 7, 200, 30, 170],
      ['0,0', 0, 100, 20, 70],
      ['0,0', 5, 100, 0, 100],
    ],
  )
  assert.deepEqual(
    pools.map(each => [each.waitingBytes / MiB, each.largestIdleBytes / MiB]),
    [
      [0, 100],
      [10, 70],
      [0, 100],
    ],
  )
})

test('a snapshot without events has its idle memory, its pools, and who keeps it', () => {
  const builder = new TraceBuilder()
  const stack = builder.stacks.number([builder.stacks.entry('cache.py', 7, 'put')])
  const final: FinalState = {
    segments: [
      { address: BASE, bytes: 100 * MiB, stream: 0, expandable: false },
      { address: BASE + 2 ** 30, bytes: 20 * MiB, stream: 0, expandable: false },
    ],
    blocks: [{ address: BASE, bytes: 10 * MiB, stream: 0, pending: false, stack }],
  }
  const trace = builder.build({ file: 'state', final })
  const { event, pins, wholeBytes, idleBytes } = idleOf(trace)
  assert.deepEqual([event, idleBytes / MiB, wholeBytes / MiB], [BEFORE, 110, 20])
  assert.deepEqual(
    pins.map(pin => [pin.site, pin.blocks, pin.idleBytes / MiB]),
    [['cache.py:7 put', 1, 90]],
  )
  assert.equal(poolsOf(trace, memoryAfter(trace, BEFORE))[0].inUseBytes, 10 * MiB)
  assert.equal(withWaiting(trace), null)
})

test('a recording without segments has no idle memory', () => {
  const memory = new Memory()
  memory.block(0, 0, 10, 7)
  assert.equal(idleMomentOf(memory.build({ file: 'built' })), null)
})

test('blocks in use and waiting have a peak of their own', () => {
  const memory = new Memory()
  memory.block(0, 0, 10, 7)
  memory.free(0, 0, false)
  memory.block(1, 0, 12, 7)
  memory.free(1, 0)
  const trace = memory.build({ file: 'built' })
  const { bytes, peakBytes, peakEvent } = withWaiting(trace)!
  assert.deepEqual(
    [...bytes].map(each => each / MiB),
    [10, 10, 22, 22, 10],
  )
  assert.deepEqual([peakBytes / MiB, peakEvent, trace.peakRequestedBytes / MiB], [22, 2, 12])
  assert.deepEqual(waitingAfter(trace, peakEvent), [0])
})

test('a block whose address is handed out again waits no longer, though no event says so', () => {
  const memory = new Memory()
  memory.block(0, 0, 10, 7)
  memory.free(0, 0, false)
  memory.block(0, 0, 6, 7)
  memory.free(0, 0)
  const { bytes } = withWaiting(memory.build({ file: 'built' }))!
  assert.deepEqual(
    [...bytes].map(each => each / MiB),
    [10, 10, 6, 6, 0],
  )
})
