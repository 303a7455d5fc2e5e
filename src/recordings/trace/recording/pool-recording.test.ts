import assert from 'node:assert/strict'
import { beforeEach, test } from 'node:test'
import { KiB, MiB } from '../../../core/base/bytes.js'
import { OutOfMemoryError } from '../../../core/base/errors.js'
import { TestDevice } from '../../../core/pool/pool.fixture.js'
import type { Pool } from '../../../core/pool/pool.js'
import { fallback } from '../../../core/pool/wrappers/fallback.js'
import { limited } from '../../../core/pool/wrappers/limited.js'
import { tagged } from '../../../core/pool/wrappers/tagged.js'
import { framesOf, NEVER } from '../trace.js'
import { PoolRecording } from './pool-recording.js'
import { allocation, eventsOf, failure, free, recordingSuite } from './recording.suite.js'

let device: TestDevice
beforeEach(() => {
  device = new TestDevice()
})

const ownMethods = (pool: Pool) =>
  Object.getOwnPropertyNames(pool).filter(name => /^(allocate|tryAllocate|release)/.test(name))

test('a recording has the calls between its beginning and its end, and leaves the pool as it was', () => {
  const pool = device.createPool({ maxPoolBytes: 8 * MiB })
  const before = pool.allocate(500)
  const recording = new PoolRecording(pool, false)
  assert.ok(PoolRecording.isRecording(pool))
  const first = pool.allocate(1000)
  const second = pool.tryAllocate(2000)!
  before.free()
  pool.free(first)
  pool.deallocate(second.ptr)
  assert.equal(pool.tryAllocate(16 * MiB), null)
  recording.stop()
  recording.stop()
  pool.allocate(3000).free()
  assert.deepEqual(ownMethods(pool), [])
  assert.ok(!PoolRecording.isRecording(pool))
  assert.deepEqual(eventsOf(recording.trace('a')), [
    allocation(500),
    allocation(1000),
    allocation(2000),
    ...free(500),
    ...free(1000),
    ...free(2000),
    failure(16 * MiB),
  ])
  pool.check()
})

recordingSuite('PoolRecording', (pool, stacks = false) => {
  const recording = new PoolRecording(pool, stacks)
  return {
    pool,
    end: () => {
      recording.stop()
      return recording.trace('a')
    },
  }
})

test('a free by address that ends in the error of an observer is recorded', () => {
  const pool = device.createPool({ releaseThresholdBytes: 0 })
  const recording = new PoolRecording(pool, false)
  const { ptr } = pool.allocate(12 * MiB) // too large to be cached
  const leaving = () => {
    throw new Error('the observer refuses')
  }
  pool.observeSegments({ ready() {}, leaving })
  assert.throws(() => pool.deallocate(ptr), { message: 'the observer refuses' })
  recording.stop()
  assert.deepEqual(eventsOf(recording.trace('a')), [allocation(12 * MiB), ...free(12 * MiB)])
})

test('frees are recorded while the pool sleeps', async () => {
  const pool = device.createPool()
  const buffer = pool.allocate(1000)
  const recording = new PoolRecording(pool, false)
  await pool.sleep()
  buffer.free()
  recording.stop()
  assert.deepEqual(eventsOf(recording.trace('a')), [allocation(1000), ...free(1000)])
})

test('each kind of pool is recorded once for each call, with resets as frees', () => {
  const pools = {
    debug: device.createPool({ debug: true }),
    blocks: device.createBlockPool({ blockBytes: 4 * KiB, count: 4 }),
    plain: device.createPlainPool(),
    arena: device.createArenaPool({ bytes: MiB }),
  }
  for (const [kind, pool] of Object.entries(pools)) {
    const recording = new PoolRecording(pool, false)
    pool.allocate(1000).free()
    pool.allocate(2000)
    recording.stop()
    const expected = [allocation(1000), ...free(1000), allocation(2000)]
    assert.deepEqual(eventsOf(recording.trace(kind)), expected, kind)
    assert.deepEqual(ownMethods(pool), [], kind)
  }
  const { arena } = pools
  arena.reset()
  const recording = new PoolRecording(arena, false)
  arena.allocate(1000)
  arena.reset()
  arena.allocate(4000)
  recording.stop()
  assert.deepEqual(eventsOf(recording.trace('reset')), [allocation(1000), ...free(1000), allocation(4000)])
})

test('a wrapped pool is recorded behind its wrappers, with tags and stacks', () => {
  const pool = tagged(device.createPool())
  const recording = new PoolRecording(pool, 4)
  pool.inScope('weights', () => pool.allocate(1000)).free()
  recording.stop()
  const trace = recording.trace('a')
  assert.deepEqual(eventsOf(trace), [allocation(1000), ...free(1000)])
  assert.equal(trace.tags[trace.blocks.tag[0]], 'weights')
  assert.equal(trace.blocks.grantedBytes[0], 1024)
  assert.ok(framesOf(trace, 0).some(({ filename }) => filename.includes('pool-recording.test')))
})

test('a buffer ends when it is handed to another thread, and begins when it comes from one', () => {
  const { pool, attach } = device.createSharedPool()
  const other = attach()
  const recording = new PoolRecording(limited(pool, MiB), false)
  other.adopt(limited(pool, MiB).allocate(1000).transfer()).free()
  const sent = [2000, 3000].map(bytes => other.allocate(bytes).transfer())
  for (const buffer of pool.adoptAll(sent)) buffer.free()
  const stale = pool.adopt(other.allocate(4000).transfer())
  stale.free()
  assert.throws(() => stale.transfer(), { name: 'PoolError', message: /^transfer/ })
  recording.stop()
  const trace = recording.trace('a')
  assert.deepEqual(eventsOf(trace), [
    ...[allocation(1000), ...free(1000)],
    ...[allocation(2000), allocation(3000), ...free(2000), ...free(3000)],
    ...[allocation(4000), ...free(4000)],
  ])
  assert.ok(trace.complete)
  assert.deepEqual(
    Object.getOwnPropertyNames(pool).filter(name => /^(adopt|handOver)/.test(name)),
    [],
  )
})

test('a recording that is full ends by itself', () => {
  const pool = device.createPool()
  const recording = new PoolRecording(pool, false, 0, 5)
  for (let round = 0; round < 4; round++) pool.allocate(1000).free()
  assert.deepEqual(ownMethods(pool), [])
  assert.equal(recording.trace('a').allocations, 2)
})

test('a request that the fallback serves is no failure, and one that no pool serves is one failure', () => {
  const first = device.createPool({ maxPoolBytes: 8 * MiB })
  const pool = fallback(limited(first, 4 * MiB), device.createPlainPool())
  const recording = new PoolRecording(pool, false)
  pool.allocate(16 * MiB).free()
  pool.tryAllocate(6 * MiB)!.free()
  assert.throws(() => pool.allocate(1024 * MiB), OutOfMemoryError)
  assert.equal(pool.tryAllocate(2048 * MiB), null)
  assert.equal(first.tryAllocate(16 * MiB), null)
  recording.stop()
  assert.deepEqual(ownMethods(pool), [])
  assert.deepEqual(eventsOf(recording.trace('a')), [
    allocation(16 * MiB),
    ...free(16 * MiB),
    allocation(6 * MiB),
    ...free(6 * MiB),
    ...[1024, 2048, 16].map(mib => failure(mib * MiB)),
  ])
})

test('a failure at the limit of a wrapper is recorded', () => {
  const pool = limited(device.createPool(), 4 * MiB)
  const recording = new PoolRecording(pool, false)
  assert.throws(() => pool.allocate(6 * MiB), OutOfMemoryError)
  assert.equal(pool.tryAllocate(5 * MiB), null)
  recording.stop()
  assert.deepEqual(eventsOf(recording.trace('a')), [failure(6 * MiB), failure(5 * MiB)])
})

test('a reset or a close is recorded before the next event, and at the latest when the recording ends', () => {
  const arena = device.createArenaPool({ bytes: MiB })
  const pool = device.createPool()
  const recording = new PoolRecording(fallback(arena, pool), false)
  const buffer = pool.allocate(1000)
  arena.allocate(2000)
  arena.reset()
  buffer.free()
  pool.allocate(3000)
  pool.close()
  recording.stop()
  const expected = [allocation(1000), allocation(2000), ...free(2000), ...free(1000), allocation(3000), ...free(3000)]
  assert.deepEqual(eventsOf(recording.trace('a')), expected)
})

test('a reset or a close of one pool leaves the buffers of the others live', () => {
  const [first, second] = [device.createPool(), device.createPool()]
  const arena = device.createArenaPool({ bytes: MiB })
  const pool = fallback(fallback(first, second), arena)
  const listed = [first.allocate(1000), second.allocate(1000)]
  const recording = new PoolRecording(pool, false)
  const live = pool.allocate(2000)
  arena.allocate(3000)
  arena.reset()
  arena.allocate(4000)
  second.close()
  arena.allocate(5000)
  for (const buffer of [listed[0], live]) buffer.free()
  recording.stop()
  const { bytes, freeRequestedAt } = recording.trace('a').blocks
  assert.deepEqual([...bytes], [1000, 1000, 2000, 3000, 4000, 5000])
  assert.deepEqual([...freeRequestedAt], [10, 7, 12, 4, NEVER, NEVER])
})
