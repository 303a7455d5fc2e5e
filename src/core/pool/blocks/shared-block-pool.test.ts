// Block pools that threads share. One thread plays all of them and the pool server; with real threads:
// test/shared-kinds.test.ts.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { KiB, MiB } from '../../base/bytes.js'
import { PoolError } from '../../base/errors.js'
import { TestDevice } from '../pool.fixture.js'
import { poolSuite } from '../pool.suite.js'
import { limited } from '../wrappers/limited.js'

for (const count of [48, 5]) {
  poolSuite(`block pool shared by threads, ${count} at a time`, () => {
    const device = new TestDevice({ capacityBytes: 256 * MiB })
    const { pool } = device.createSharedBlocks({ blockBytes: 3 * MiB, count, maxCount: 48 })
    return { device, pool, check: () => pool.check(), close: () => pool.close() }
  })
}
poolSuite('limited block pool shared by threads', () => {
  const device = new TestDevice({ capacityBytes: 256 * MiB })
  const { pool } = device.createSharedBlocks({ blockBytes: 3 * MiB, count: 48 })
  return { device, pool: limited(pool, 144 * MiB), check: () => pool.check(), close: () => pool.close() }
})

describe('a block pool that threads share', () => {
  it('hands out maxCount blocks to all threads together', () => {
    const device = new TestDevice()
    const { pool, attach } = device.createSharedBlocks({ blockBytes: 300 * KiB, count: 3, maxCount: 8 })
    assert.deepEqual([pool.blockBytes, pool.count, pool.availableBlocks], [304 * KiB, 3, 8])
    const other = attach()
    const held = Array.from({ length: 8 }, (_, index) => (index % 2 === 0 ? pool : other).allocate(1 + index))
    assert.deepEqual([pool.count, pool.availableBlocks, other.availableBlocks], [8, 0, 0])
    assert.equal(new Set(held.map(({ ptr }) => ptr)).size, 8)
    for (const front of [pool, other]) {
      assert.equal(front.tryAllocate(1), null)
      assert.throws(() => front.allocate(1), {
        name: 'OutOfMemoryError',
        message: /all 8 blocks are handed out: free some, raise maxCount/,
      })
      assert.throws(() => front.allocate(304 * KiB + 1), {
        name: 'OutOfMemoryError',
        message: /a block has 311296 bytes/,
      })
    }
    for (const buffer of held) buffer.free()
    device.defaultStream.synchronize()
    assert.deepEqual([pool.count, pool.availableBlocks], [8, 8])
    const again = Array.from({ length: 8 }, () => other.allocate(304 * KiB))
    assert.equal(pool.tryAllocate(1), null, 'what lay in places of another thread was found')
    for (const buffer of again) buffer.free()
    pool.check()
    assert.deepEqual(other.close(), { heldBuffers: 0, heldBytes: 0 })
    assert.deepEqual(pool.close(), { heldBuffers: 0, heldBytes: 0 })
    assert.equal(device.freeBytes(), device.totalBytes)
  })

  it('does not give a block to another stream before its work has completed', () => {
    const device = new TestDevice()
    const { pool, attach } = device.createSharedBlocks({ blockBytes: 1 * MiB, count: 2 })
    const [one, two] = [device.createStream(), device.createStream()]
    const first = pool.allocate(1, one)
    const { ptr } = first
    device.hold(one)
    first.fill(1)
    first.free()
    const other = attach()
    const second = other.allocate(1, two)
    assert.notEqual(second.ptr, ptr)
    assert.ok(device.clocks.completed[one.slot] < device.clocks.marked[one.slot] + 1)
    const third = other.allocate(1, two) // waits on the host, so that the held stream continues
    assert.equal(third.ptr, ptr)
    assert.equal(third.readSync(0, 1)[0], 1)
    pool.check()
  })

  it('aligns every block by its size when the driver does not', () => {
    const device = new TestDevice()
    device.context.activate().cuMemAlloc(256)
    const { pool } = device.createSharedBlocks({ blockBytes: 128 * KiB, count: 2, maxCount: 4 })
    assert.equal(pool.alignment, 128 * KiB)
    for (let index = 0; index < 4; index++) assert.equal(pool.allocate(1, undefined, 128 * KiB).ptr % (128 * KiB), 0)
    assert.throws(() => pool.allocate(1, undefined, 256 * KiB), { name: 'RangeError', message: /alignment/ })
    pool.check()
  })

  it('buffers move between threads, once', () => {
    const { pool, attach } = new TestDevice().createSharedBlocks({ blockBytes: 1 * KiB, count: 2 })
    const other = attach()
    const buffer = pool.allocate(100)
    const sent = buffer.transfer()
    assert.throws(() => buffer.free(), PoolError)
    const adopted = other.adopt(sent)
    assert.throws(() => other.adopt(sent), { name: 'PoolError', message: /adopt/ })
    assert.deepEqual([adopted.byteLength, adopted.pool === other], [100, true])
    adopted.free()
    assert.throws(() => adopted.free(), PoolError)
    assert.equal(pool.availableBlocks, 2)
    pool.check()
  })

  it('refuses too many blocks and too much memory, and leaks none', () => {
    const device = new TestDevice()
    const make = (options: object) => device.createSharedBlocks(options as never)
    for (const [options, name, message] of [
      [{ blockBytes: 1, count: 1, maxCount: 2 ** 20 }, 'RangeError', /at most 262144 blocks/],
      [{ blockBytes: 33 * MiB, count: 2 }, 'OutOfMemoryError', /createBlockPool: no room for 6[68] MiB/],
      [{ blockBytes: 256 * 2 ** 30, count: 8 }, 'OutOfMemoryError', /createBlockPool: no room for 2 TiB/],
    ] as const) {
      assert.throws(() => make(options), { name, message })
      assert.equal(device.freeBytes(), device.totalBytes)
    }
  })
})
