import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { KiB, MiB } from '../../base/bytes.js'
import { TestDevice } from '../pool.fixture.js'
import type { CachingPool } from './caching-pool.js'

function setUp() {
  const device = new TestDevice()
  const pool = device.createPool()
  return { device, pool, a: device.createStream(), b: device.createStream() }
}

/** The streams of the blocks of one size, by handle. */
function streamsOf(pool: CachingPool, bytes: number): (number | null)[] {
  const blocks = pool.snapshot().ranges.flatMap(range => range.blocks)
  return blocks.filter(block => block.bytes === bytes && block.state !== 'absent').map(block => block.stream)
}

/** The block with memory at an address. */
function blockAt(pool: CachingPool, ptr: number) {
  const blocks = pool.snapshot().ranges.flatMap(range => range.blocks)
  const isMemory = ({ state }: (typeof blocks)[number]) => state !== 'absent' && state !== 'part'
  return blocks.find(block => isMemory(block) && block.ptr <= ptr && ptr < block.ptr + block.bytes)!
}

describe('a snapshot', () => {
  it('names the stream that a freed block waits for', () => {
    const { device, pool, a, b } = setUp()
    const first = pool.allocate(3 * MiB, a)
    const second = pool.allocate(5 * MiB, a)
    const third = pool.allocate(7 * MiB, a)
    pool.allocate(1 * MiB, a)
    third.recordUse(b)
    for (const stream of [a, b]) device.hold(stream)
    first.free()
    second.free(b)
    third.free()
    assert.deepEqual(
      [3, 5, 7].map(size => streamsOf(pool, size * MiB)),
      [[a.handle], [b.handle], [a.handle]],
    )
  })

  it('names the stream that caches a block, and the same stream once the block is back in its heap', () => {
    const { device, pool, a, b } = setUp()
    const kept = pool.allocate(64 * KiB, a)
    const block = pool.allocate(96 * KiB, a)
    const { ptr } = block
    pool.allocate(64 * KiB, a)
    device.hold(b)
    block.free(b)
    assert.deepEqual(streamsOf(pool, 96 * KiB), [b.handle])
    pool.trimTo(0)
    const { state, stream } = blockAt(pool, ptr)
    assert.deepEqual([state, stream], ['free', b.handle]) // it has merged with the rest of its slab
    kept.free()
  })
})

describe('the count of allocations', () => {
  it('grows by one for each, wherever the block comes from, and by none that is refused', () => {
    const { pool, a, b } = setUp()
    let expected = 0
    const take = (bytes: number, stream = a, alignment?: number) => {
      const buffer = pool.allocate(bytes, stream, alignment)
      assert.equal(pool.stats().allocations, ++expected)
      return buffer
    }
    take(1000).free() // new memory
    take(1000).free() // on top of the cache
    take(900).free() // the same class
    take(800).free() // the next class
    take(1000, b).free() // another stream's
    take(1000, a, 4096).free()
    take(8 * MiB).free()
    assert.equal(pool.tryAllocate(2 ** 40, a), null)
    assert.throws(() => pool.allocate(0, a), RangeError)
    assert.deepEqual([pool.stats().allocations, pool.stats().frees], [expected, expected])
  })
})
