// Streams that a device makes or adopts, and a stream's own pool.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { GiB, MiB } from '../base/bytes.js'
import { SimulatedDriver } from '../driver/simulated/simulated-driver.js'
import { MOST_STREAMS } from '../order/clocks.js'
import { openDevice } from './open.js'

describe('streams of a device', () => {
  it('the default stream is the legacy default stream', () => {
    using device = openDevice('simulated')
    assert.equal(device.defaultStream.handle, 0)
    assert.equal(device.adoptStream(0), device.defaultStream)
    const buffer = device.createPool().allocate(4)
    assert.equal(buffer.stream, device.defaultStream)
  })

  it('the default stream stays open when it is closed, until the device closes', () => {
    const device = openDevice('simulated')
    const pool = device.createPool()
    const { defaultStream } = device
    defaultStream.close()
    {
      using stream = device.adoptStream(0)
      pool.allocate(4, stream).free()
    }
    assert.equal(defaultStream.closed, false)
    pool.allocate(4).free()
    device.close()
    assert.equal(defaultStream.closed, true)
    defaultStream.close()
  })

  it('a stream made elsewhere is adopted once, and recognised by more than its handle', () => {
    const driver = new SimulatedDriver()
    using device = openDevice(driver)
    const handle = driver.cuStreamCreate(1)
    const stream = device.adoptStream(handle)
    assert.equal(stream.handle, handle)
    assert.equal(device.adoptStream(handle), stream)
    stream.close()
    assert.notEqual(device.adoptStream(handle), stream)
    device.adoptStream(handle).close()
    driver.cuStreamDestroy(handle)
    const again = driver.cuStreamCreate(1)
    const adopted = device.adoptStream(again)
    assert.equal(adopted.closed, false)
    assert.equal(device.adoptStream(2).handle, 2)
    for (const bad of [-1, 0.5, Number.NaN, '5', undefined]) {
      assert.throws(() => device.adoptStream(bad as number), { name: 'RangeError', message: /adoptStream: handle/ })
    }
    for (const bad of [3, 123_456]) {
      const message = new RegExp(
        `^adoptStream: handle must .*, not ${bad}, .*INVALID_HANDLE.*; pass that of an open stream$`,
      )
      assert.throws(() => device.adoptStream(bad), { name: 'RangeError', message })
    }
    driver.failCall({ call: 'cuStreamGetCtx', code: 999 })
    assert.throws(() => device.adoptStream(3), { name: 'CudaError', result: 999 })
  })

  it('adopting a stream of its own, or the default stream by its other handle, returns the existing object', () => {
    using device = openDevice(new SimulatedDriver())
    const own = device.createStream()
    assert.equal(device.adoptStream(own.handle), own)
    assert.equal(device.adoptStream(1), device.defaultStream)
    const { handle } = own
    own.close()
    const driver = device.driver
    assert.equal(driver.cuStreamCreate(1), handle)
    const adopted = device.adoptStream(handle)
    assert.notEqual(adopted, own)
    assert.equal(adopted.owned, false)
  })

  it('an adopted stream that was destroyed elsewhere is closed when its handle is reused', () => {
    const driver = new SimulatedDriver({ progress: 'eager' })
    using device = openDevice(driver)
    const stream = device.adoptStream(driver.cuStreamCreate(1))
    const { handle } = stream
    const pool = device.poolFor(stream)
    driver.holdOperation(handle)
    const work = driver.submitted(handle)
    driver.cuStreamDestroy(handle)
    assert.equal(driver.cuStreamCreate(1), handle)
    const next = device.adoptStream(handle)
    assert.deepEqual([stream.closed, pool.closed, next.closed], [true, true, false])
    assert.ok(driver.happensBefore(work, handle), 'its work was waited for')
    assert.ok(device.clocks.completed[stream.lastSlot] >= stream.lastStamp)
    stream.close()
    next.close()
    assert.equal(driver.calls.get('cuStreamDestroy'), 1, 'both are left to their owners')
  })

  it('a device closes though an adopted stream was destroyed elsewhere, and does not show the driver its handle', () => {
    for (const isLost of [false, true]) {
      const driver = new SimulatedDriver()
      const device = openDevice(driver)
      const stream = device.adoptStream(driver.cuStreamCreate(1))
      const buffer = device.createPool().allocate(1000, stream)
      buffer.fill(1)
      driver.cuStreamDestroy(stream.handle)
      if (isLost) {
        driver.failCall({ call: 'cuStreamQuery', code: 700 })
        assert.throws(() => device.defaultStream.query(), { result: 700 })
      }
      device.close()
      assert.deepEqual([stream.closed, buffer.freed, device.context.released], [true, true, true])
      stream.close()
    }
  })

  it('a stream of another device is refused', () => {
    const driver = new SimulatedDriver({ devices: 2 })
    using first = openDevice(driver, 0)
    using second = openDevice(driver, 1)
    const stream = second.createStream()
    assert.throws(() => first.adoptStream(stream.handle), { name: 'PoolError', message: /another device/ })
  })

  it('a stream beyond the limit is refused, and no stream is left in the driver', () => {
    using device = openDevice('simulated')
    const streams = Array.from({ length: MOST_STREAMS - 1 }, () => device.createStream())
    const made = () => device.driver.calls.get('cuStreamCreate')! - (device.driver.calls.get('cuStreamDestroy') ?? 0)
    assert.equal(made(), MOST_STREAMS - 1)
    assert.throws(() => device.createStream(), { name: 'PoolError', message: /2048 streams/ })
    assert.equal(made(), MOST_STREAMS - 1)
    streams[5].close()
    device.createStream()
  })
})

describe('the pool of one stream', () => {
  it('it is the same for the same stream, allocates on it, and shares no memory', () => {
    using device = openDevice('simulated')
    const [a, b] = [device.createStream(), device.createStream()]
    const pool = device.poolFor(a, { maxPoolBytes: 8 * MiB })
    assert.equal(device.poolFor(a), pool)
    assert.notEqual(device.poolFor(b), pool)
    assert.equal(device.poolFor(device.defaultStream), device.poolFor(device.defaultStream))
    assert.equal(pool.allocate(1 * MiB).stream, a)
    assert.deepEqual([pool.stats().maxPoolBytes, device.poolFor(b).stats().maxPoolBytes], [8 * MiB, 4 * GiB])
    assert.deepEqual([pool.stats().liveBuffers, device.poolFor(b).stats().liveBuffers], [1, 0])
  })

  it("the stream's close closes it, and gives its memory back", () => {
    const driver = new SimulatedDriver({ capacityBytes: 1 * GiB })
    using device = openDevice(driver)
    for (const stream of [device.createStream(), device.adoptStream(driver.cuStreamCreate(1))]) {
      const used = driver.usedBytes()
      const pool = device.poolFor(stream)
      const held = pool.allocate(3 * MiB)
      driver.holdOperation(stream.handle)
      held.fill(1)
      stream.close()
      assert.deepEqual([pool.closed, held.freed, driver.usedBytes()], [true, true, used])
      assert.throws(() => pool.allocate(1), { name: 'PoolError', message: /pool is closed/ })
      assert.throws(() => device.poolFor(stream), { name: 'PoolError', message: /stream is closed/ })
      held[Symbol.dispose]()
    }
  })

  it('only the first call takes options, and the pool can be closed before its stream', () => {
    using device = openDevice('simulated')
    const stream = device.createStream()
    const pool = device.poolFor(stream)
    assert.throws(() => device.poolFor(stream, {}), { name: 'PoolError', message: /options at the first call only/ })
    pool.close()
    const next = device.poolFor(stream, { backing: 'segments' })
    assert.equal(next.snapshot().backing, 'segments')
    next.allocate(1).free()
    stream.close()
    assert.equal(next.closed, true)
  })

  it('anything but an open stream of the device is refused, and so are bad options', () => {
    using device = openDevice('simulated')
    using other = openDevice('simulated')
    const closed = device.createStream()
    closed.close()
    for (const bad of [undefined, null, 0, {}]) {
      assert.throws(() => device.poolFor(bad as never), { name: 'TypeError', message: /poolFor: stream must be/ })
    }
    assert.throws(() => device.poolFor(other.createStream()), { name: 'PoolError', message: /another device/ })
    assert.throws(() => device.poolFor(closed), { name: 'PoolError', message: /stream is closed/ })
    const stream = device.createStream()
    assert.throws(() => device.poolFor(stream, { maxPoolBytes: -1 }), { name: 'RangeError', message: /maxPoolBytes/ })
    device.poolFor(stream, { maxPoolBytes: 4 * MiB }).allocate(1)
  })

  it('a second close of the stream finishes a refused close, and leaves nothing behind', () => {
    for (let nth = 1; nth < 12; nth++) {
      const driver = new SimulatedDriver({ capacityBytes: 1 * GiB })
      const device = openDevice(driver)
      const stream = device.createStream()
      device.poolFor(stream).allocate(3 * MiB)
      driver.failCall({ call: '*', nth, code: 999 })
      try {
        stream.close()
      } catch (error) {
        assert.equal((error as Error).name, 'CudaError')
        stream.close()
      }
      driver.clearFaults()
      assert.equal(stream.closed, true)
      assert.throws(() => driver.cuStreamGetId(stream.handle), { name: 'CudaError', result: 400 })
      device.close()
      assert.equal(driver.usedBytes(), 0)
    }
  })
})

describe('a stream with a pool of its own', () => {
  it('its stream stays open while another stream is captured, since the pool cannot be closed then', () => {
    const driver = new SimulatedDriver({ capacityBytes: 1 * GiB })
    const device = openDevice(driver)
    const captured = device.createStream()
    const adopted = driver.cuStreamCreate(1)
    for (const stream of [device.createStream(), device.adoptStream(adopted)]) {
      const used = driver.usedBytes()
      const pool = device.poolFor(stream)
      pool.allocate(1 * MiB).free()
      captured.beginCapture()
      assert.throws(() => stream.close(), { name: 'PoolError', message: /close: a stream is being captured/ })
      assert.deepEqual([stream.closed, pool.closed, device.poolFor(stream)], [false, false, pool])
      captured.abortCapture()
      stream.close()
      assert.deepEqual([stream.closed, pool.closed, driver.usedBytes()], [true, true, used])
    }
    assert.equal(device.adoptStream(adopted).closed, false)
    device.close()
  })
})
