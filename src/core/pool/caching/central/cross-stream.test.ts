// Memory of other streams that is safe, and how the pool knows that: cached blocks that go round, blocks behind an
// event, merged neighbours, blocks with several users, and what a completed stream settles.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { GiB, KiB, MiB } from '../../../base/bytes.js'
import type { Stream } from '../../../order/stream.js'
import type { DeviceBuffer } from '../../buffer.js'
import { assertConsistent, TestDevice } from '../../pool.fixture.js'
import { freePending, orderCalls, setUp, signal } from './cross-stream.fixture.js'

describe('cached blocks that go round between streams', () => {
  const SIZES = [4 * KiB, 16 * KiB, 64 * KiB, 256 * KiB]
  /** A tight pool would not cache all of these sizes. */
  const setUpLoose = () => setUp({ maxPoolBytes: 8 * GiB }, 8 * GiB)

  it('cost no driver call, no miss and no new memory', () => {
    const { device, pool, a, b, c } = setUpLoose()
    const ring = [a, b, c]
    let held: DeviceBuffer[] = []
    const turn = (step: number) => {
      const stream = ring[step % ring.length]
      signal(ring[(step + 2) % ring.length], stream)
      const calls = orderCalls(device, () => {
        const taken = SIZES.map(bytes => pool.allocate(bytes, stream))
        for (const buffer of held) buffer.free(stream)
        held = taken
      })
      for (const buffer of held) buffer.fill(step)
      return calls
    }
    for (let step = 0; step < 6; step++) turn(step)
    const { cacheMisses, reservedBytes, peakLiveBytes } = pool.stats()
    for (let step = 6; step < 60; step++) assert.deepEqual(turn(step), {}, `step ${step}`)
    const after = pool.stats()
    assert.deepEqual(
      [after.cacheMisses, after.reservedBytes, after.peakLiveBytes],
      [cacheMisses, reservedBytes, peakLiveBytes],
    )
    for (const buffer of held) buffer.free()
    assertConsistent(pool)
  })

  it('raise the peak of live bytes when another stream takes them', () => {
    const { pool, a, b, c } = setUpLoose()
    pool.allocate(512 * KiB, a).free()
    signal(a, b)
    const held = [pool.allocate(256 * KiB, c), pool.allocate(512 * KiB, b)]
    assert.equal(pool.stats().peakLiveBytes, 768 * KiB)
    assert.deepEqual(
      pool.live().map(({ byteLength, stream }) => [byteLength, stream]),
      [
        [512 * KiB, b.handle],
        [256 * KiB, c.handle],
      ],
    )
    const { ptr } = held[1]
    const streamAt = () =>
      pool.snapshot().ranges.flatMap(({ blocks }) => blocks.filter(block => block.ptr === ptr))[0].stream
    assert.equal(streamAt(), b.handle)
    held[1].free(c)
    assert.equal(streamAt(), c.handle)
    assertConsistent(pool)
  })

  it('come from the stream that gave the last block, as long as its frees are known to come before', () => {
    const { pool, a, b, c } = setUpLoose()
    /** Addresses of three blocks that a stream caches, from the top of its stack down. */
    const cache = (stream: Stream) => {
      const buffers = [0, 1, 2].map(() => pool.allocate(64 * KiB, stream))
      const addresses = buffers.map(({ ptr }) => ptr).reverse()
      for (const buffer of buffers) buffer.free()
      return addresses
    }
    const take = (stream: Stream) => pool.allocate(64 * KiB, stream).ptr
    const [given, other] = [cache(a), cache(c)]
    signal(a, b)
    assert.deepEqual([take(b), take(b)], given.slice(0, 2))
    const late = pool.allocate(64 * KiB, a)
    assert.equal(late.ptr, given[2])
    late.free()
    assert.ok(![...given, ...other].includes(take(b)), 'freed after the event, and of a stream that is not waited for')
    signal(c, b)
    assert.equal(take(b), other[0])
    assertConsistent(pool)
  })
})
for (const backing of ['virtual', 'segments', 'registrable'] as const) {
  for (const [kind, bytes] of [
    ['small', 64 * KiB],
    ['large', 16 * MiB],
  ] as const) {
    /** Nothing is left but one block. */
    const setUpLast = () => {
      const maxPoolBytes = Math.max(2 * MiB, 4 * bytes)
      const order = setUp({ backing, maxPoolBytes })
      for (let held = bytes; held < maxPoolBytes; held += bytes) order.pool.allocate(bytes, order.device.defaultStream)
      return order
    }

    describe(`memory of other streams: ${backing}, ${kind} blocks`, () => {
      it('a block whose last use comes before needs no driver call, over any number of streams', () => {
        const { device, pool, a, b, c } = setUpLast()
        const ptr = freePending(device, pool.allocate(bytes, a))
        signal(a, b)
        signal(b, c)
        const calls = orderCalls(device, () => assert.equal(pool.allocate(bytes, c).ptr, ptr))
        assert.deepEqual(calls, {})
        assert.equal(pool.stats().insertedWaits, 0)
        assertConsistent(pool)
      })

      it('a block freed after the event is not known to come before', () => {
        const { device, pool, a, b } = setUpLast()
        const buffer = pool.allocate(bytes, a)
        signal(a, b)
        const ptr = freePending(device, buffer)
        assert.equal(pool.allocate(bytes, b).ptr, ptr)
        assert.equal(pool.stats().insertedWaits, 1)
        assert.equal(b.query(), false)
      })

      it('neighbours that became one block depend on the later of their frees', () => {
        for (const first of [0, 1]) {
          const { device, pool, a, b } = setUpLast()
          const last = pool.allocate(bytes, a)
          const { ptr } = last
          last.free()
          a.synchronize()
          pool.trimTo(64 * MiB) // empties the cache
          const halves = [pool.allocate(bytes / 2, a), pool.allocate(bytes / 2, a)]
          freePending(device, halves[first])
          signal(a, b)
          freePending(device, halves[1 - first])
          assert.equal(pool.allocate(bytes, b).ptr, ptr)
          assert.equal(pool.stats().insertedWaits, 1)
          assertConsistent(pool)
        }
      })

      it('a block that went from stream to stream depends on its last user, and by that on all users', () => {
        const { device, pool, a, b, c } = setUpLast()
        const ptr = freePending(device, pool.allocate(bytes, a))
        signal(a, b)
        freePending(device, pool.allocate(bytes, b))
        signal(a, c)
        const last = pool.allocate(bytes, c)
        assert.deepEqual([last.ptr, pool.stats().insertedWaits], [ptr, 1], 'b has used it since')
        freePending(device, last)
        signal(c, a)
        assert.deepEqual([pool.allocate(bytes, a).ptr, pool.stats().insertedWaits], [ptr, 1])
        assertConsistent(pool)
      })

      it('a stream that comes after all users of a block gets the block without a driver call', () => {
        for (const knowsAll of [true, false]) {
          const { device, pool, a, b, c } = setUpLast()
          const buffer = pool.allocate(bytes, a)
          const { ptr } = buffer
          device.hold(b)
          buffer.recordUse(b)
          buffer.free()
          signal(a, c)
          if (knowsAll) signal(b, c)
          const calls = orderCalls(device, () => assert.equal(pool.allocate(bytes, c).ptr, ptr))
          assert.equal(Object.keys(calls).length === 0, knowsAll)
          assert.equal(pool.stats().insertedWaits, knowsAll ? 0 : 1)
          assertConsistent(pool)
        }
      })

      it('the last user of a block gets it without a driver call, though the block’s own stream waits for that user, too', () => {
        const { device, pool, a, b } = setUpLast()
        const buffer = pool.allocate(bytes, a)
        const { ptr } = buffer
        device.hold(b)
        buffer.recordUse(b)
        buffer.free()
        signal(a, b)
        signal(b, a)
        const calls = orderCalls(device, () => assert.equal(pool.allocate(bytes, b).ptr, ptr))
        assert.deepEqual(calls, {})
        assertConsistent(pool)
      })

      it('a block with other users settles by a wait of its own stream, and then serves streams that wait for that stream', () => {
        for (const settlesFirst of [true, false]) {
          const { device, pool, a, b, c } = setUpLast()
          const buffer = pool.allocate(bytes, a)
          const { ptr } = buffer
          device.hold(b)
          buffer.recordUse(b)
          buffer.free()
          signal(a, c)
          assert.equal(pool.processDeferred(), 0)
          signal(b, a)
          if (settlesFirst) assert.equal(pool.processDeferred(), 1)
          signal(a, c)
          assert.equal(pool.processDeferred(), settlesFirst ? 0 : 1)
          assert.equal(pool.allocate(bytes, c).ptr, ptr)
          assert.equal(pool.stats().insertedWaits, settlesFirst ? 0 : 1, 'the stamp is of when it was settled')
          assert.equal(c.query(), false)
          assertConsistent(pool)
        }
      })
    })
  }
}

it('a completed stream that had waited for another stream settles the blocks of both', () => {
  let completedByLater = 0
  for (let seed = 0; seed < 300; seed++) {
    const device = new TestDevice({ progress: 'seeded', seed })
    const pool = device.createPool({ maxPoolBytes: 64 * MiB })
    const [earlier, later] = [device.createStream(), device.createStream()]
    const buffers = [pool.allocate(4 * MiB, earlier), pool.allocate(2 * MiB), pool.allocate(8 * MiB, later)]
    buffers[0].free()
    const stamp = device.clocks.marked[earlier.slot] + 1
    signal(earlier, later)
    buffers[2].free()
    pool.trimTo(64 * MiB) // empties the cache
    pool.processDeferred()
    if (device.clocks.completed[earlier.slot] < stamp) continue
    completedByLater++
    assert.ok([0, 8 * MiB].includes(pool.stats().pendingBytes), `seed ${seed}`)
  }
  assert.ok(completedByLater > 100)
})
