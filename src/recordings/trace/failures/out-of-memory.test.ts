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

test('memory that waits for another stream is not called fragmentation, unless it would not have sufficed', () => {
  const failedWith = (inUse: number, waiting: number, asked: number) => {
    const builder = new TraceBuilder()
    const stack = builder.stacks.number([builder.stacks.entry('fsdp.py', 10, 'all_gather')])
    builder.add(Action.segmentAlloc, 2 ** 40, 700 * MiB, 0, 0)
    builder.add(Action.alloc, 2 ** 40, waiting * MiB, 0, 0, stack)
    builder.add(Action.alloc, 2 ** 40 + waiting * MiB, inUse * MiB, 0, 0)
    builder.add(Action.freeRequested, 2 ** 40, 0, 0, 0)
    builder.add(Action.outOfMemory, 100 * MiB, asked * MiB, 0, 0)
    return recordedOutOfMemories(builder.build({ file: 'built', saysCompleted: true }))[0]
  }
  const { verdict, waitingBytes, waitingHolders } = failedWith(0, 700, 200)
  assert.deepEqual([verdict, waitingBytes], ['waiting', 700 * MiB])
  assert.deepEqual(
    waitingHolders.map(({ site, blocks, bytes }) => [site, blocks, bytes / MiB]),
    [['fsdp.py:10 all_gather', 1, 700]],
  )
  assert.equal(failedWith(300, 100, 200).verdict, 'fragmentation')
  assert.equal(failedWith(650, 50, 200).verdict, 'tooLittle')
})

test('a request that no expandable segment can hold is called so, unless the memory is too little', () => {
  const failedWith = (asked: number, settings: string, free = 10_000) => {
    const builder = new TraceBuilder()
    builder.add(Action.segmentMap, 2 ** 40, 700 * MiB, 0, 0)
    builder.add(Action.outOfMemory, free * MiB, asked * MiB, 0, 0)
    const [failed] = recordedOutOfMemories(builder.build({ file: 'built', settings }))
    return [failed.verdict, failed.mostSegmentBytes, failed.capacityBytes]
  }
  const reserve = 'expandable_segments_reserve:1G'
  const most = 1040 * MiB
  assert.deepEqual(failedWith(1041, reserve), ['segmentTooSmall', most, 10_700 * MiB])
  assert.deepEqual(failedWith(1041, reserve, 100), ['tooLittle', most, 800 * MiB])
  assert.deepEqual(failedWith(1040, reserve), ['ownLimit', null, 700 * MiB])
  assert.equal(failedWith(2000, 'expandable_segments_reserve:0.1')[1], null)
  assert.equal(failedWith(2000, `${reserve},expandable_segments_reserve_by_class:[a:4G]`)[1], null)
})
