// A pool whose stream is captured: wrappers, counters, captures of other libraries, and calls that a capture forbids.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { MiB } from '../../../base/bytes.js'
import { CudaError, PoolError } from '../../../base/errors.js'
import { Stream } from '../../../order/stream.js'
import { assertConsistent, TestDevice } from '../../pool.fixture.js'
import { limited } from '../../wrappers/limited.js'
import { capture, idleBytes, LIMIT, setUp } from './graph-capture.fixture.js'

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
    for (const backing of ['virtual', 'segments', 'registrable'] as const) {
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
    assert.throws(() => graph.launch(a), /a pool or buffer that the graph uses is closed, freed or shorter/)
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
      () => arena.allocate(1, a),
      () => plain.allocate(1, a),
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
