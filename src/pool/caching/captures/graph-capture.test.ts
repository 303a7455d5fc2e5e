// Graphs and the caching pool: where memory for captured work comes from, when it is used again, and when it goes
// back. The file is long because the cases run over both backings with one set-up.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { MiB } from '../../../base/bytes.js'
import { CudaError, PoolError } from '../../../base/errors.js'
import { Stream } from '../../../order/stream.js'
import type { DeviceBuffer } from '../../buffer.js'
import { assertConsistent, TestDevice } from '../../pool.fixture.js'
import { limited } from '../../wrappers/limited.js'
import { capture, idleBytes, LIMIT, setUp, signal } from './graph-capture.fixture.js'

for (const backing of ['virtual', 'segments'] as const) {
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

    it('a capture that fails gives its memory back', () => {
      const { device, pool, a, b } = setUp({ backing })
      a.beginCapture()
      pool.allocate(20 * MiB, a).free()
      signal(a, b)
      pool.allocate(MiB, b).fill(1)
      assert.throws(
        () => a.endCapture(),
        (error: Error) => error instanceof CudaError && error.code === 904,
      )
      for (const stream of [a, b]) assert.equal(stream.query(), true, 'its streams run their work again')
      assert.equal(pool.live().length, 1)
      pool.deallocate(pool.live()[0].ptr)
      assert.equal(idleBytes(device, pool), LIMIT)
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

describe('graphs and the rest of the pool', () => {
  it('wrappers, arrays and frees by address work in a capture', () => {
    const { pool, a } = setUp()
    const wrapped = limited(pool, 10 * MiB)
    using graph = capture(a, () => {
      const array = wrapped.allocateArray(Float32Array, 1024, a)
      const buffer = wrapped.allocate(MiB, a, 4096)
      assert.equal(buffer.ptr % 4096, 0)
      assert.throws(() => wrapped.allocate(10 * MiB, a))
      array.free()
      pool.free(pool.allocate(MiB, a))
      buffer.free()
      pool.deallocate(pool.allocate(5 * MiB, a).ptr)
    })
    assert.equal(wrapped.handedOutBytes, 0)
    graph.launch(a)
    assertConsistent(pool)
  })

  it('the counters count the live blocks of a capture', () => {
    const { pool, a } = setUp()
    const graph = capture(a, () => {
      pool.allocate(MiB, a).free()
      pool.allocate(2 * MiB, a)
    })
    const { liveBuffers, liveBytes, requestedBytes, peakLiveBytes } = pool.stats()
    assert.deepEqual([liveBuffers, liveBytes, requestedBytes, peakLiveBytes], [1, 2 * MiB, 2 * MiB, 2 * MiB])
    graph.close()
    assertConsistent(pool)
  })

  it('an announced capture of another library is served like our own', () => {
    const { device, pool, a } = setUp()
    const { driver } = device
    pool.beginCapture(a)
    driver.cuStreamBeginCapture(a.handle, 0)
    const buffer = pool.allocate(20 * MiB, a)
    buffer.fill(8)
    assert.throws(() => pool.endCapture(a), /still captured/)
    assert.throws(() => a.endCapture(), /announced/)
    const executable = driver.cuGraphInstantiate(driver.cuStreamEndCapture(a.handle))
    const memory = pool.endCapture(a)
    buffer.free()
    const release = device.hold(a)
    driver.cuGraphLaunch(executable, a.handle)
    memory.noteLaunch(a)
    driver.cuGraphExecDestroy(executable)
    memory.close()
    pool.trimTo(0)
    assert.ok(device.freeBytes() <= LIMIT - 20 * MiB)
    release()
    assert.equal(idleBytes(device, pool), LIMIT)
    assert.throws(() => memory.noteLaunch(a), PoolError)
  })

  it('an unannounced capture is refused as soon as the driver is needed', () => {
    const { device, pool, a } = setUp()
    device.driver.cuStreamBeginCapture(a.handle, 0)
    const before = pool.stats()
    assert.throws(() => pool.allocate(MiB, a), /captured by another library; call pool\.beginCapture\(stream\)/)
    assert.deepEqual({ ...pool.stats(), cacheMisses: 0 }, { ...before, cacheMisses: 0 })
    assert.throws(() => pool.beginCapture(a), /announce it before/)
    assert.equal(device.driver.cuStreamEndCapture(a.handle) > 0, true, 'and the capture is whole')
    pool.allocate(MiB, a).free()
  })

  it('growth and queries never break a capture in global mode, announced or not', () => {
    for (const backing of ['virtual', 'segments'] as const) {
      const { device, pool, a, b, c } = setUp({ backing })
      const release = device.hold(b)
      pool.allocate(30 * MiB, b).free()
      device.driver.cuStreamBeginCapture(c.handle, 0) // by another library
      const one = pool.allocate(4 * MiB, a)
      a.beginCapture('global')
      pool.allocate(24 * MiB, a).free()
      const other = pool.allocate(2 * MiB, b)
      pool.processDeferred()
      pool.trimTo(0)
      a.endCapture().close()
      release()
      assert.equal(pool.tryAllocate(60 * MiB, a), null, 'waits, too')
      device.driver.cuGraphDestroy(device.driver.cuStreamEndCapture(c.handle))
      for (const buffer of [one, other]) buffer.free()
      assert.throws(() => {
        device.driver.cuStreamBeginCapture(c.handle, 0)
        device.driver.cuMemAlloc(512)
      }, CudaError)
    }
  })

  it('a graph refuses to launch once its pool is closed', () => {
    const { device, pool, a } = setUp()
    const graph = capture(a, () => pool.allocate(MiB, a).fill(1))
    pool.close()
    assert.throws(() => graph.launch(a), /a pool that the graph has memory of is closed/)
    graph.close()
    assert.equal(device.freeBytes(), LIMIT)
  })

  it('calls that a capture forbids are refused, and the capture goes on', () => {
    const { device, pool, a, b } = setUp()
    const blocks = device.createBlockPool({ blockBytes: MiB, count: 1 })
    const arena = device.createArenaPool({ bytes: MiB })
    const plain = device.createPlainPool()
    const debug = device.createPool({ debug: true })
    const fromDebug = debug.allocate(MiB, a)
    const fromBlocks = blocks.allocate(MiB, a)
    const fromArena = arena.allocate(MiB, a)
    const fromPlain = plain.allocate(MiB, a)
    const pools = [pool, debug, blocks, arena, plain, device.createDriverPool(), device.createHostPool()]
    const onClosed = device.createStream()
    const plainOnClosed = plain.allocate(MiB, onClosed)
    onClosed.close()
    a.beginCapture()
    const buffer = pool.allocate(MiB, a)
    for (const refused of [
      ...pools.map(each => () => each.close()),
      () => fromPlain.copyFromSync(fromBlocks),
      () => debug.allocate(1, a),
      () => fromDebug.free(),
      () => fromDebug.recordUse(a),
      () => buffer.write(new Uint8Array(4)),
      () => buffer.readSync(),
      () => buffer.writeSync(new Uint8Array(4)),
      () => blocks.allocate(1, a),
      () => arena.allocate(1, a),
      () => plain.allocate(1, a),
      () => fromBlocks.free(),
      () => fromBlocks.recordUse(a),
      () => fromArena.free(),
      () => fromPlain.free(),
      () => pool.beginCapture(a),
      () => pool.endCapture(b),
      () => pool.beginCapture(device.defaultStream),
    ]) {
      assert.throws(refused, PoolError, `${refused}`)
    }
    plainOnClosed.free() // waits for its own stream alone
    assert.throws(() => pool.beginCapture({} as Stream), TypeError)
    assert.throws(() => pool.allocate(0, a), RangeError)
    assert.throws(() => pool.allocate(1, a, 3), RangeError)
    assert.throws(() => pool.beginCapture(new TestDevice().createStream()), PoolError)
    const graph = a.endCapture()
    for (const held of [fromBlocks, fromArena, fromPlain, fromDebug, buffer]) held.free()
    for (const each of pools.slice(2)) each.close()
    graph.close()
  })

  it('copies that the driver makes on the default stream are refused where that would break the capture', () => {
    const { device, pool, a, b } = setUp()
    const buffer = pool.allocate(4, b)
    const blocking = new Stream(device.clocks, device.driver.cuStreamCreate(0), false)
    for (const [stream, isOrdered] of [
      [a, false],
      [blocking, true],
    ] as const) {
      stream.beginCapture()
      for (const copy of [() => buffer.readSync(), () => buffer.writeSync(new Uint8Array(4))]) {
        if (isOrdered)
          assert.throws(copy, { name: 'PoolError', message: /^\w+Sync: .*ordered with the default stream/ })
        else copy()
      }
      stream.endCapture().close()
    }
    buffer.free()
  })

  it('deterministic pools and pools that are not stream-ordered serve captures, too', () => {
    for (const options of [{ deterministic: true }, { streamOrdered: false }]) {
      const { device, pool, a } = setUp(options)
      const graph = capture(a, () => {
        using buffer = pool.allocate(20 * MiB, a)
        buffer.fill(1)
      })
      graph.launch(a)
      graph.close()
      device.clocks.synchronize()
      assert.equal(idleBytes(device, pool), LIMIT)
    }
  })

  it('a capture waits on the host for memory when all of the device’s memory is pending', () => {
    const { device, pool, a, b } = setUp()
    device.hold(b)
    const pending = pool.allocate(60 * MiB, b)
    pending.fill(1)
    pending.free()
    const graph = capture(a, () => {
      pool.allocate(40 * MiB, a).free()
      assert.equal(pool.tryAllocate(80 * MiB, a), null)
    })
    assert.equal(b.query(), true)
    graph.close()
  })
})
