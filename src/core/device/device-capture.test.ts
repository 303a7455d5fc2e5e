// Captures of a function as a graph.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { PoolError } from '../base/errors.js'
import { SimulatedDriver } from '../driver/simulated/simulated-driver.js'
import type { Stream } from '../order/stream.js'
import { openDevice } from './open.js'

describe('captures on a device', () => {
  const setUp = () => {
    const device = openDevice(new SimulatedDriver({ progress: 'eager' }))
    return { device, pool: device.createPool(), stream: device.createStream() }
  }

  it('a capture makes a graph of the submitted work, which can be launched again and again', () => {
    const { device, pool, stream } = setUp()
    const input = pool.allocate(1024, stream)
    let output = input
    using graph = device.capture(stream, () => {
      using scratch = pool.allocate(1024, stream)
      scratch.copyFrom(input)
      output = pool.allocate(1024, stream)
      output.copyFrom(scratch)
    })
    for (const value of [3, 4]) {
      input.fill(value)
      graph.launch(stream)
      assert.equal(output.readSync(1000, 1)[0], value)
    }
    device.close()
    graph.close()
    assert.throws(() => graph.launch(stream), PoolError)
  })

  it('a graph has the value that the function returned, with its type', () => {
    const { device, pool, stream } = setUp()
    const input = pool.upload(new Float32Array([1, 2]), stream)
    using graph = device.capture(stream, () => {
      const output = pool.allocateArray(Float32Array, 2, stream)
      output.copyFrom(input)
      return { output }
    })
    graph.launch(stream)
    assert.deepEqual([...graph.result.output.readSync()], [1, 2])
    stream.beginCapture()
    using other = stream.endCapture()
    const nothing: undefined = other.result
    assert.equal(nothing, undefined)
    device.close()
  })

  it('a capture leaves nothing behind if the function throws or is asynchronous', () => {
    const { device, pool, stream } = setUp()
    const fails = () => {
      pool.allocate(1024, stream).free()
      throw new RangeError('mine')
    }
    assert.throws(() => device.capture(stream, fails), /mine/)
    assert.throws(
      () => device.capture(stream, () => Promise.reject(new Error('not noticed'))),
      /capture: work must not be asynchronous/,
    )
    assert.throws(() => device.capture(stream, () => stream.abortCapture()), /not being captured/)
    assert.equal(stream.capture, null)
    stream.synchronize()
    pool.trimTo(0)
    assert.equal(device.memoryInfo().freeBytes, device.totalBytes)
    device.close()
  })

  it("the function's error is thrown, and a capture that the driver refuses to end can be aborted", () => {
    const driver = new SimulatedDriver({ progress: 'eager' })
    const device = openDevice(driver)
    const stream = device.createStream()
    driver.failCall({ call: 'cuStreamEndCapture', code: 999 })
    assert.throws(
      () =>
        device.capture(stream, () => {
          throw new Error('of the function')
        }),
      /of the function/,
    )
    assert.deepEqual([stream.capture !== null, driver.cuStreamIsCapturing(stream.handle)], [true, true])
    stream.abortCapture()
    assert.deepEqual([stream.capture, driver.cuStreamIsCapturing(stream.handle)], [null, false])
    device.close()
  })

  it('a bad stream, function or mode is refused', () => {
    const { device, stream } = setUp()
    const work = () => assert.fail('it should not run')
    assert.throws(() => device.capture({} as Stream, work), TypeError)
    using graph = device.capture(stream, () => {})
    const none = { name: 'TypeError', message: /^launch: stream must be a Stream/ }
    for (const other of [null, {}, device]) assert.throws(() => graph.launch(other as unknown as Stream), none)
    assert.throws(() => device.capture(stream, 5 as never), TypeError)
    assert.throws(() => device.capture(stream, work, 'none' as never), TypeError)
    assert.throws(() => device.capture(setUp().stream, work), PoolError)
    assert.throws(() => device.capture(device.defaultStream, work), PoolError)
    device.close()
    assert.throws(() => device.capture(stream, work), PoolError)
  })

  it("the device's close ends begun captures and launched graphs", () => {
    const { device, pool, stream } = setUp()
    const other = device.createStream()
    const graph = device.capture(other, () => pool.allocate(1024, other).fill(1))
    graph.launch(stream)
    stream.beginCapture()
    pool.allocate(4096, stream).fill(1)
    assert.throws(() => device.synchronize(), PoolError)
    device.close()
    assert.equal(device.context.released, true)
  })
})
