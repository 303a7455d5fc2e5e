// The rest of a slab that lies in memory which another stream used last: it waits for that stream.

import assert from 'node:assert/strict'
import { it } from 'node:test'
import { GiB, KiB, MiB } from '../../../base/bytes.js'
import type { DeviceBuffer } from '../../buffer.js'
import { assertConsistent } from '../../pool.fixture.js'
import { freePending, setUp, signal } from './cross-stream.fixture.js'

for (const placed of ['in free memory', 'in free and new memory'] as const) {
  // There is room for a slab in 4 MiB, and not in 1.
  const pendingBytes = placed === 'in free memory' ? 4 * MiB : 1 * MiB

  it(`the rest of a slab ${placed} waits for the stream that used the memory before`, () => {
    // A slab is less than a step, and a step less than each of these blocks.
    const { device, pool, a, b, c } = setUp({ maxPoolBytes: 512 * MiB }, 8 * GiB)
    const before = pool.allocate(12 * MiB - pendingBytes, b)
    const pending = pool.allocate(pendingBytes, b)
    signal(a, c) // c waits for the work of a so far
    const start = freePending(device, pending)
    pool.trimTo(64 * MiB) // takes the block out of the cache
    signal(b, a)
    const { reservedBytes } = pool.stats()
    const isBesideWork = ({ ptr }: DeviceBuffer) => ptr >= start && ptr < start + pendingBytes
    assert.equal(isBesideWork(pool.allocate(KiB, a)), true, 'the slab begins in the memory of b')
    assert.equal(pool.stats().reservedBytes > reservedBytes, placed === 'in free and new memory')
    assert.equal(isBesideWork(pool.allocate(KiB, c)), false)
    assert.equal(b.query(), false)
    before.free()
    assertConsistent(pool)
  })
}

it('the rest of a slab in memory of another stream is settled once the work is complete', () => {
  const { device, pool, a, b } = setUp()
  const pending = pool.allocate(12 * MiB, b)
  const { ptr } = pending
  const release = device.hold(b)
  pending.free()
  signal(b, a)
  const small = pool.allocate(KiB, a)
  assert.equal(small.ptr, ptr)
  release()
  signal(a, b)
  small.free(b) // so that the rest alone waits for a
  a.synchronize()
  b.synchronize()
  pool.processDeferred()
  assert.equal(pool.stats().pendingBytes, 0)
  pool.trimTo(0)
  assert.equal(pool.stats().reservedBytes, 0)
  assertConsistent(pool)
})
