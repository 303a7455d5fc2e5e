// A handle names one use of a record by the record's generation. When the generations of a record are spent, the
// block moves to another record, and no handle of an earlier use ever matches again.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { KiB, MiB } from '../../base/bytes.js'
import { PoolError } from '../../base/errors.js'
import { State, Stride, Word } from '../../heap/records.js'
import type { DeviceBuffer } from '../buffer.js'
import { assertConsistent, TestDevice } from '../pool.fixture.js'
import type { CachingPool } from './caching-pool.js'

const LAST_GENERATION = 2 ** 28 - 1

/** Puts the generation of a freed buffer's record `left` before the last one. */
function age(pool: CachingPool, buffer: DeviceBuffer, left: number): void {
  assert.equal(buffer.freed, true)
  const tag = (LAST_GENERATION - left) * 8
  const isHanded = pool.records.state(buffer.record) === State.live
  if (isHanded) pool.caches.blockOf(buffer.record).tag = tag + State.cached
  else pool.records.words[buffer.record * Stride.words + Word.tag] = tag + pool.records.state(buffer.record)
}

/** Allocates and frees, again and again; every handle stays stale after its free. */
function cycle(pool: CachingPool, rounds: number, bytes: number, free: (buffer: DeviceBuffer) => void): Set<number> {
  const records = new Set<number>()
  const stale: DeviceBuffer[] = []
  for (let round = 0; round < rounds; round++) {
    const buffer = pool.allocate(bytes)
    assert.equal(buffer.freed, false)
    assert.equal(buffer.byteLength, bytes)
    assert.ok(stale.every(old => old.freed))
    records.add(buffer.record)
    free(buffer)
    stale.push(buffer)
    assert.throws(() => buffer.free(), PoolError)
    assert.throws(() => buffer.ptr, PoolError)
    assertConsistent(pool)
  }
  return records
}

for (const backing of ['virtual', 'segments'] as const) {
  describe(`spent generations: ${backing}`, () => {
    for (const [kind, bytes] of [
      ['cached', 4 * KiB],
      ['large', 6 * MiB],
    ] as const) {
      it(`a ${kind} block goes on at the same address, in another record`, () => {
        const pool = new TestDevice().createPool({ backing })
        const first = pool.allocate(bytes)
        const { ptr } = first
        first.free()
        age(pool, first, 3)
        const inUse = pool.records.inUse
        const records = cycle(pool, 8, bytes, buffer => {
          assert.equal(buffer.ptr, ptr)
          buffer.free()
        })
        assert.equal(records.size, 2, 'the block moved once')
        assert.equal(pool.records.inUse, inUse)
        assert.equal(first.freed, true)
      })

      it(`a ${kind} block is found by address, shared, and freed elsewhere in its last generation`, () => {
        const frees: readonly ((buffer: DeviceBuffer, pool: CachingPool, device: TestDevice) => void)[] = [
          (buffer, pool) => pool.deallocate(buffer.ptr),
          (buffer, _, device) => buffer.free(device.createStream()),
          (buffer, pool, device) => {
            buffer.recordUse(device.createStream())
            assert.equal(buffer.freed, false)
            assert.ok(buffer.ptr > 0)
            buffer.free()
            pool.processDeferred()
          },
        ]
        for (const free of frees) {
          const device = new TestDevice()
          const pool = device.createPool({ backing })
          const first = pool.allocate(bytes)
          first.free()
          age(pool, first, 2)
          cycle(pool, 6, bytes, buffer => free(buffer, pool, device))
          pool.allocate(64 * MiB).free()
          assertConsistent(pool)
        }
      })
    }

    it('a spent block merges with its neighbours, splits, and goes back to the device', () => {
      const device = new TestDevice()
      const pool = device.createPool({ backing, maxPoolBytes: '100%' })
      for (let round = 0; round < 6; round++) {
        const blocks = Array.from({ length: 6 }, () => pool.allocate(3 * MiB))
        for (const block of blocks) block.free()
        for (const block of blocks) age(pool, block, 1)
        const again = Array.from({ length: 6 }, () => pool.allocate(3 * MiB))
        assert.ok(blocks.every(block => block.freed))
        for (const block of again) block.free()
        assertConsistent(pool)
        pool.allocate(64 * MiB).free()
        pool.trimTo(0)
        assertConsistent(pool)
      }
      assert.equal(device.freeBytes(), device.totalBytes)
    })
  })
}
