import assert from 'node:assert/strict'
import { test } from 'node:test'
import { MiB } from '../core/base/bytes.js'
import { TestDevice } from '../core/pool/pool.fixture.js'
import { partsOf, StreamNumbers, useOf } from './memory-parts.js'

test('memory that waits for work of a stream is pending, in all and by stream', () => {
  const device = new TestDevice()
  const pool = device.createPool()
  const [first, second] = [device.createStream(), device.createStream()]
  const held = pool.allocate(8 * MiB, second)
  const freed = pool.allocate(5 * MiB, first)
  const release = device.hold(first)
  freed.free()
  pool.trimTo(0)
  const snapshot = pool.snapshot()
  const blocks = snapshot.ranges.flatMap(range => range.blocks)
  const pending = blocks.filter(block => useOf(block) === 'pending')
  assert.deepEqual(
    pending.map(({ state }) => state),
    ['free'],
  )
  assert.equal(
    pending.reduce((sum, { bytes }) => sum + bytes, 0),
    pool.stats().pendingBytes,
  )
  const stats = { ...pool.stats(), maxPoolBytes: null }
  const parts = partsOf({ stats })
  assert.equal(parts.pending, stats.pendingBytes)
  assert.ok(parts.pending >= 5 * MiB)
  assert.equal(
    Object.values(parts).reduce((sum, bytes) => sum + bytes),
    stats.reservedBytes,
  )
  const numbers = new StreamNumbers()
  assert.deepEqual(numbers.bytesIn(snapshot), [
    { stream: 0, live: 0, cached: 0, pending: parts.pending },
    { stream: 1, live: 8 * MiB, cached: 0, pending: 0 },
  ])
  pool.allocate(MiB, device.defaultStream)
  const streams = numbers.bytesIn(pool.snapshot()).map(({ stream }) => stream)
  assert.deepEqual(streams, [0, 1, 2], 'a stream keeps its number')
  release()
  held.free()
})
