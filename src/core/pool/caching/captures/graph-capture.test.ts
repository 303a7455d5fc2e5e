// Memory of a graph: where memory for captured work comes from, when it is used again, and when it goes back.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { MiB } from '../../../base/bytes.js'
import { CudaError, PoolError } from '../../../base/errors.js'
import type { Stream } from '../../../order/stream.js'
import type { DeviceBuffer } from '../../buffer.js'
import { assertConsistent } from '../../pool.fixture.js'
import { capture, idleBytes, LIMIT, setUp, signal } from './graph-capture.fixture.js'

for (const backing of ['virtual', 'segments', 'registrable'] as const) {
  describe(`graphs: ${backing}`, () => {
    it('captured work runs at each launch, on memory that stays at its place', () => {
      const { pool, a, b } = setUp({ backing })
      const input = pool.allocate(MiB, a)
      input.fill(1)
      let output!: DeviceBuffer
      using graph = capture(a, () => {
        using scratch = pool.allocate(MiB, a)
        scratch.copyFrom(input)
        output = pool.allocate(MiB, a)
        output.copyFrom(scratch)
      })
      for (const value of [2, 3]) {
        input.fill(value)
        graph.launch(a)
        assert.equal(output.readSync(7, 1)[0], value)
        b.synchronize()
      }
      assertConsistent(pool)
    })

    it('memory freed in a capture is used again in it, on the same stream and along captured edges', () => {
      const { pool, a, b } = setUp({ backing })
      const seen: number[] = []
      const take = (stream: Stream) => {
        using buffer = pool.allocate(3 * MiB, stream)
        seen.push(buffer.ptr)
      }
      using _graph = capture(a, () => {
        take(a)
        take(a)
        signal(a, b)
        take(b)
        signal(b, a)
        take(a)
      })
      assert.equal(new Set(seen).size, 1, 'one block for all')
    })

    it('a list is served whole or not at all in a capture, too', () => {
      const { pool, a } = setUp({ backing })
      let [first, second]: DeviceBuffer[] = []
      using graph = capture(a, () => {
        assert.throws(() => pool.allocateMany([MiB, 2 * LIMIT], a), {
          message: /^allocateMany: .* sizes\[1\] found none/,
        })
        assert.equal(pool.tryAllocateMany([MiB, 2 * LIMIT], a), null)
        ;[first, second] = pool.allocateMany([MiB, MiB], a)
        first.fill(7)
        second.copyFrom(first)
      })
      graph.launch(a)
      assert.deepEqual([second.readSync(MiB - 1)[0], pool.stats().liveBuffers], [7, 2])
      assertConsistent(pool)
    })

    it('without a captured edge between two streams their memory stays apart', () => {
      const { device, pool, a, b } = setUp({ backing })
      using _graph = capture(a, () => {
        signal(a, b)
        const [x, y] = [pool.allocate(MiB, a), pool.allocate(MiB, b)]
        const work = device.driver
        x.fill(1)
        const point = work.submitted(a.handle)
        const { ptr } = x
        x.free()
        const other = pool.allocate(MiB, b)
        assert.equal(work.happensBefore(point, b.handle), false)
        assert.notEqual(other.ptr, ptr)
        signal(a, b)
        assert.equal(work.happensBefore(point, b.handle), true)
        assert.equal(pool.allocate(MiB, b).ptr, ptr, 'after the edge it is had')
        y.free()
        signal(b, a)
      })
    })

    it('memory that other streams use, or that was freed outside of the capture, is not used again in it', () => {
      const { device, pool, a, b, c } = setUp({ backing })
      using _graph = capture(a, () => {
        signal(a, b)
        const shared = pool.allocate(MiB, a)
        shared.recordUse(b)
        const freedOutside = pool.allocate(MiB, a)
        const usedOutside = pool.allocate(MiB, a)
        usedOutside.recordUse(c)
        const taken = [shared, freedOutside, usedOutside].map(({ ptr }) => ptr)
        shared.free()
        device.hold(c)
        freedOutside.free(c)
        usedOutside.free()
        for (let count = 0; count < 12; count++) assert.ok(!taken.includes(pool.allocate(MiB, a).ptr), `${count}`)
        signal(b, a)
      })
      for (const { ptr } of pool.live()) pool.deallocate(ptr)
      assertConsistent(pool)
    })

    it('memory of a graph is never handed out while the graph lives, and goes back when it is closed', () => {
      const { device, pool, a, b } = setUp({ backing })
      const graph = capture(a, () => pool.allocate(20 * MiB, a).free())
      assert.equal(pool.tryAllocate(50 * MiB, b), null)
      graph.close()
      pool.allocate(50 * MiB, b).free()
      assert.equal(idleBytes(device, pool), LIMIT)
    })

    it('memory goes back only when the launches have completed', () => {
      const { device, pool, a, b } = setUp({ backing })
      const graph = capture(a, () => {
        using buffer = pool.allocate(20 * MiB, a)
        buffer.fill(1)
      })
      const release = device.hold(b)
      graph.launch(b)
      graph.close()
      pool.trimTo(0)
      assert.ok(device.freeBytes() <= LIMIT - 20 * MiB, 'the launch is still under way')
      release()
      assert.equal(idleBytes(device, pool), LIMIT)
    })

    it('memory goes back only when the launches on all streams have completed', () => {
      const { device, pool, a, b } = setUp({ backing })
      const graph = capture(a, () => pool.allocate(20 * MiB, a).free())
      graph.launch(a)
      graph.launch(b) // comes after the first launch, but not after the third
      const release = device.hold(a)
      graph.launch(a)
      graph.close()
      pool.trimTo(0)
      assert.ok(device.freeBytes() <= LIMIT - 20 * MiB)
      release()
      assert.equal(idleBytes(device, pool), LIMIT)
    })

    it('a buffer held at the end stays valid, also after the graph was closed, and goes back to the graph when freed before', () => {
      for (const early of [true, false]) {
        const { device, pool, a, b } = setUp({ backing })
        let held!: DeviceBuffer
        const graph = capture(a, () => {
          held = pool.allocate(20 * MiB, a)
          held.fill(9)
        })
        graph.launch(a)
        if (early) {
          held.free()
          assert.equal(pool.tryAllocate(50 * MiB, b), null, 'the graph may still be launched')
          graph.launch(a)
          graph.close()
        } else {
          graph.close()
          assert.equal(held.readSync(5, 1)[0], 9)
          held.fill(4)
          assert.equal(held.readSync(5, 1)[0], 4)
          held.free()
        }
        assert.throws(() => held.ptr, PoolError)
        assert.equal(idleBytes(device, pool), LIMIT)
      }
    })

    it('a graph is not launched once a pool is closed whose buffers the captured work uses', () => {
      const { device, pool, a } = setUp({ backing })
      const other = device.createPool({ backing })
      const [inside, outside] = [pool.allocate(MiB, a), other.allocate(MiB, a)]
      const graphs = [capture(a, () => inside.fill(1)), capture(a, () => outside.fill(2))]
      for (const graph of graphs) graph.launch(a)
      other.close()
      graphs[0].launch(a)
      assert.throws(() => graphs[1].launch(a), { name: 'PoolError', message: /^launch: a pool .* is closed/ })
      a.synchronize()
      for (const graph of graphs) graph.close()
      assert.equal(inside.readSync(7, 1)[0], 1)
      assertConsistent(pool)
    })

    it('a stream that is captured again and again leaves nothing behind', () => {
      const { device, pool, a, b } = setUp({ backing })
      const buffer = pool.allocate(20 * MiB, a)
      buffer.recordUse(b)
      for (let round = 0; round < 5; round++) capture(b, () => {}).close()
      assert.ok(pool.central.arenas['arenas'].size <= 1)
      buffer.free()
      assert.equal(idleBytes(device, pool), LIMIT)
      pool.close()
      assert.equal(device.clocks.captureObservers.size, 0)
    })

    it('two graphs of a pool have separate memory, and close independently', () => {
      const { device, pool, a, b } = setUp({ backing })
      const held: DeviceBuffer[] = []
      const make = (stream: Stream, value: number) =>
        capture(stream, () => {
          const scratch = pool.allocate(4 * MiB, stream)
          scratch.fill(value)
          const output = pool.allocate(4 * MiB, stream)
          output.copyFrom(scratch)
          scratch.free()
          held.push(output)
        })
      const [first, second] = [make(a, 1), make(b, 2)]
      for (let round = 0; round < 3; round++) {
        first.launch(a)
        second.launch(b)
        second.launch(a)
        first.launch(b)
      }
      assert.deepEqual(
        held.map(buffer => buffer.readSync(9, 1)[0]),
        [1, 2],
      )
      first.close()
      held[0].free()
      const other = pool.allocate(8 * MiB, a)
      other.fill(7)
      second.launch(b)
      assert.equal(held[1].readSync(0, 1)[0], 2)
      assert.equal(other.readSync(8 * MiB - 1, 1)[0], 7)
      other.free()
      held[1].free()
      second.close()
      assert.equal(idleBytes(device, pool), LIMIT)
    })

    it('a capture that fails gives its memory back', () => {
      const { device, pool, a, b } = setUp({ backing })
      a.beginCapture()
      pool.allocate(20 * MiB, a).free()
      signal(a, b)
      pool.allocate(MiB, b).fill(1)
      assert.throws(
        () => a.endCapture(),
        (error: Error) => error instanceof CudaError && error.result === 904,
      )
      for (const stream of [a, b]) assert.equal(stream.query(), true, 'its streams run their work again')
      assert.equal(pool.live().length, 1)
      pool.deallocate(pool.live()[0].ptr)
      assert.equal(idleBytes(device, pool), LIMIT)
    })
  })
}
