// Buffers that captured work uses or frees: until when the pool keeps them.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { MiB } from '../../../base/bytes.js'
import { PoolError } from '../../../base/errors.js'
import type { DeviceBuffer } from '../../buffer.js'
import { assertConsistent } from '../../pool.fixture.js'
import { capture, idleBytes, LIMIT, setUp, signal } from './graph-capture.fixture.js'

for (const backing of ['virtual', 'segments'] as const) {
  describe(`graphs: ${backing}`, () => {
    it('an ordinary buffer freed on a captured stream, or used by one, waits until the graph is closed', () => {
      for (const way of ['freed there', 'announced', 'by address'] as const) {
        const { device, pool, a, b } = setUp({ backing })
        const buffer = pool.allocate(20 * MiB, a)
        buffer.fill(5)
        let copy!: DeviceBuffer
        const graph = capture(a, () => {
          copy = pool.allocate(20 * MiB, a)
          copy.copyFrom(buffer)
          if (way === 'announced') buffer.recordUse(a)
          else if (way === 'by address') pool.deallocate(buffer.ptr)
          else buffer.free()
        })
        if (way === 'announced') buffer.free()
        assert.throws(() => buffer.free(), PoolError)
        assert.equal(pool.tryAllocate(30 * MiB, b), null)
        graph.launch(a)
        assert.equal(copy.readSync(3, 1)[0], 5)
        assertConsistent(pool)
        copy.free()
        graph.close()
        assert.equal(idleBytes(device, pool), LIMIT)
      }
    })

    it('a buffer of a closed stream, freed by address, does not join the graph of the next stream in its slot', () => {
      const { device, pool, a, b } = setUp({ backing })
      const { ptr } = pool.allocate(LIMIT, a)
      a.close()
      device.clocks.synchronize()
      const next = device.createStream()
      assert.equal(next.slot, a.lastSlot)
      assert.deepEqual([pool.live()[0].stream, pool.live().length], [null, 1])
      const graph = capture(next, () => pool.deallocate(ptr))
      device.clocks.synchronize()
      pool.allocate(LIMIT, b).free()
      graph.close()
    })

    for (const freed of ['in the capture', 'after it', 'after the close of the graph']) {
      it(`a buffer that was announced before the capture, and is freed ${freed}, waits for the graph`, () => {
        for (const debug of [false, true]) {
          const { device, a, b, c } = setUp({ backing })
          const pool = debug
            ? device.createPool({ maxPoolBytes: LIMIT, backing, debug: true })
            : device.createPool({ maxPoolBytes: LIMIT, backing })
          const buffer = pool.allocate(8 * MiB, a)
          buffer.recordUse(c) // c joins the capture of b
          const graph = capture(b, () => {
            signal(b, c)
            signal(c, b)
            if (freed === 'in the capture') buffer.free()
          })
          if (freed === 'after it') buffer.free()
          device.clocks.synchronize()
          pool.trimTo(0)
          assert.ok(device.freeBytes() <= LIMIT - 8 * MiB, 'the graph may use it')
          const release = device.hold(a)
          graph.launch(a)
          graph.close()
          if (freed === 'after the close of the graph') buffer.free(b)
          pool.trimTo(0)
          assert.ok(device.freeBytes() <= LIMIT - 8 * MiB, 'its launch may use it')
          release()
          assert.equal(idleBytes(device, pool), LIMIT)
        }
      })
    }

    it('a use that is announced in a capture lasts until the free, over work that is not captured', () => {
      const { device, pool, a, b } = setUp({ backing })
      const buffer = pool.allocate(20 * MiB, a)
      const graph = capture(b, () => buffer.recordUse(b))
      graph.close()
      device.clocks.synchronize()
      const release = device.hold(b)
      buffer.free()
      pool.trimTo(0)
      assert.ok(device.freeBytes() <= LIMIT - 20 * MiB)
      release()
      assert.equal(idleBytes(device, pool), LIMIT)
    })

    it('host memory that was announced before the capture waits for the graph', () => {
      const { device, a, b } = setUp({ backing })
      const pool = device.createHostPool({ maxPoolBytes: 1 * MiB, segmentBytes: 1 * MiB })
      const buffer = pool.allocate(1 * MiB)
      buffer.recordUse(a)
      const graph = capture(a, () => {})
      buffer.free()
      device.clocks.synchronize()
      assert.equal(pool.tryAllocate(1 * MiB), null)
      device.hold(b)
      graph.launch(b)
      graph.close()
      pool.processDeferred()
      assert.equal(pool.stats().pendingBytes, 1 * MiB)
      pool.allocate(1 * MiB)
      assert.equal(b.query(), true, 'the host waited for the launch')
    })

    it('a buffer whose use by a graph was announced waits for the launches on all streams also when it is freed after the close', () => {
      for (const index of [0, 1]) {
        const { device, pool, a, b, c } = setUp({ backing })
        const buffer = pool.allocate(20 * MiB, a)
        const graph = capture(a, () => {
          buffer.fill(3)
          buffer.recordUse(a)
        })
        graph.launch(b)
        graph.launch(c)
        const last = [b, c][index]
        const release = device.hold(last)
        graph.launch(last) // the other stream's launch does not come after this one
        graph.close()
        buffer.free()
        pool.trimTo(0)
        assert.ok(device.freeBytes() <= LIMIT - 20 * MiB, `launched last: ${index}`)
        release()
        assert.equal(idleBytes(device, pool), LIMIT)
      }
    })

    it('a buffer that two graphs use waits for the launches of both, whichever is closed first', () => {
      for (const index of [0, 1]) {
        const { device, pool, a, b, c } = setUp({ backing })
        const buffer = pool.allocate(20 * MiB, c)
        const graphs = [a, b].map(stream =>
          capture(stream, () => {
            buffer.fill(3, 0, MiB)
            buffer.recordUse(stream)
          }),
        )
        buffer.free()
        const launching = device.createStream()
        const release = device.hold(launching)
        graphs[index].launch(launching)
        graphs[index].close()
        graphs[1 - index].close()
        pool.trimTo(0)
        assert.ok(device.freeBytes() <= LIMIT - 20 * MiB, `launched: ${index}`)
        release()
        assert.equal(idleBytes(device, pool), LIMIT)
      }
    })

    it('a buffer of one graph that another graph uses stays until both are closed', () => {
      for (const firstGoes of [true, false]) {
        const { device, pool, a, b } = setUp({ backing })
        let between!: DeviceBuffer
        const first = capture(a, () => {
          between = pool.allocate(20 * MiB, a)
          between.fill(6)
        })
        const second = capture(b, () => {
          between.recordUse(b)
          pool.allocate(MiB, b).copyFrom(between, 0, 0, MiB)
          between.free(b)
        })
        assert.equal(between.freed, true)
        const order = firstGoes ? [first, second] : [second, first]
        order[0].close()
        assertConsistent(pool)
        assert.equal(pool.tryAllocate(60 * MiB, a), null)
        order[1].close()
        assert.ok(idleBytes(device, pool) >= LIMIT - 4 * MiB, 'but for the buffer of the second that is still held')
      }
    })

    it('frees before, in and after a capture keep their order', () => {
      const { device, pool, a, b } = setUp({ backing })
      const before = pool.allocate(20 * MiB, a)
      const release = device.hold(a)
      before.fill(1)
      before.free()
      const graph = capture(a, () => {
        assert.equal(device.calls('cuEventRecord'), 1, 'one mark before, none in the capture')
        // The held work is still under way: the captured work may not have its memory before that has completed.
        assert.equal(pool.allocate(MiB, a).byteLength, MiB)
      })
      assert.equal(device.calls('cuEventRecord'), 1)
      release()
      graph.launch(b)
      const after = pool.allocate(20 * MiB, a)
      const { ptr } = after
      after.fill(2)
      after.free()
      assert.equal(pool.allocate(20 * MiB, a).ptr, ptr)
      assertConsistent(pool)
    })
  })
}
