// The host waits for as little work as makes room.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { MiB } from '../../../base/bytes.js'
import { assertConsistent } from '../../pool.fixture.js'
import { freePending, setUp } from './cross-stream.fixture.js'

for (const backing of ['virtual', 'segments'] as const) {
  describe(`waits for memory of other streams: ${backing}`, () => {
    it('the host waits for the oldest work that makes room, and for no other work', () => {
      const { device, pool, a, b, c } = setUp({ backing, crossStreamReuse: 'ordered' })
      const [first, second] = [pool.allocate(32 * MiB, a), pool.allocate(32 * MiB, b)]
      freePending(device, first)
      device.clocks.watcher.mark(a.slot)
      freePending(device, second)
      device.clocks.watcher.mark(b.slot)
      pool.allocate(32 * MiB, c)
      assert.deepEqual([a.query(), b.query()], [true, false])
      assertConsistent(pool)
    })

    it('the host does not wait for older work that makes too little room', () => {
      const { device, pool, a, b, c } = setUp({ backing, crossStreamReuse: 'ordered' })
      for (const [stream, size] of [
        [a, 24],
        [b, 40],
      ] as const) {
        freePending(device, pool.allocate(size * MiB, stream))
        device.clocks.watcher.mark(stream.slot)
      }
      pool.allocate(32 * MiB, c)
      assert.deepEqual([a.query(), b.query()], [false, true])
      assertConsistent(pool)
    })

    it('the host waits for the first mark of a stream that makes room', () => {
      const { device, pool, a, b } = setUp({ backing, crossStreamReuse: 'ordered' })
      const [first, , second, , third] = [14, 2, 32, 2, 14].map(size => pool.allocate(size * MiB, a))
      const buffers = [first, second, third] // live blocks keep them from merging
      const stamps = buffers.map(buffer => {
        freePending(device, buffer)
        return device.clocks.watcher.mark(a.slot)
      })
      pool.allocate(32 * MiB, b)
      assert.equal(device.clocks.completed[a.slot], stamps[1])
    })

    it('the host waits for exactly those streams that make room together', () => {
      const { device, pool, a, b, c } = setUp({ backing, crossStreamReuse: 'ordered' })
      const other = device.createStream()
      for (const [stream, size] of [
        [a, 16],
        [b, 20],
        [c, 28],
      ] as const) {
        freePending(device, pool.allocate(size * MiB, stream))
        device.clocks.watcher.mark(stream.slot)
      }
      pool.allocate(48 * MiB, other)
      // Not asked of the streams, since cuMemFree has waited for all of them where memory is in segments.
      const seen = [a, b, c].map(({ slot }) => device.clocks.completed[slot] > 0)
      assert.deepEqual(seen, [false, true, true])
      assertConsistent(pool)
    })

    it('the host waits for several streams whose adjacent blocks make room together', () => {
      const { device, pool, a, b, c } = setUp({ backing, crossStreamReuse: 'ordered' })
      pool.allocate(64 * MiB, a).free()
      a.synchronize()
      pool.processDeferred()
      const parts = [a, a, b, c].map((stream, index) => pool.allocate([24, 4, 18, 18][index] * MiB, stream))
      const first = parts[0].ptr
      for (const index of [0, 2, 3]) {
        freePending(device, parts[index])
        device.clocks.watcher.mark(parts[index].stream.slot)
      }
      const waited = [a, c].map(({ slot }) => device.clocks.completed[slot])
      const again = pool.allocate(36 * MiB, device.createStream())
      const [isA, isC] = [a, c].map(({ slot }, index) => device.clocks.completed[slot] > waited[index])
      // Blocks that are stitched need not be adjacent. The blocks that a and b freed are older, and large enough.
      assert.deepEqual([isA, isC], backing === 'segments' ? [false, true] : [true, false])
      if (backing === 'segments') assert.equal(again.ptr, first + 28 * MiB)
      assertConsistent(pool)
    })

    it('the host waits only for the uses of a block with other users when that block is large enough', () => {
      const { device, pool, a, b, c } = setUp({ backing, crossStreamReuse: 'ordered' })
      const [used, freed] = [pool.allocate(40 * MiB, a), pool.allocate(24 * MiB, c)]
      freePending(device, freed)
      device.clocks.watcher.mark(c.slot)
      device.hold(b)
      used.recordUse(b)
      used.free()
      pool.allocate(32 * MiB, device.defaultStream)
      assert.deepEqual([b.query(), c.query()], [true, false])
      assertConsistent(pool)
    })
  })
}
