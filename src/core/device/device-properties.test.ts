import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { GiB, MiB } from '../base/bytes.js'
import { SimulatedDriver } from '../driver/simulated/simulated-driver.js'
import { openDevice } from './open.js'

describe('the properties of a device', () => {
  it('are those of an H200 on the simulated device, whose name and uuid say that it is one', () => {
    const driver = new SimulatedDriver({ devices: 2, capacityBytes: 64 * MiB, seed: 7 })
    using first = openDevice(driver)
    using second = openDevice(driver, 1)
    assert.deepEqual(second.properties, {
      name: 'simulated GPU',
      uuid: '73696d75-6c61-7465-6400-000000070001', // 'simulated', seed 7, device 1
      computeCapability: '9.0',
      multiprocessors: 132,
      totalBytes: 64 * MiB,
      maxThreadsPerBlock: 1024,
      maxSharedBytesPerBlock: 227 * 1024,
      leastPriority: 0,
      greatestPriority: -5,
    })
    assert.notEqual(first.properties.uuid, second.properties.uuid)
  })

  it('are asked for once, and not of a closed device', () => {
    const device = openDevice('simulated')
    assert.equal(device.properties, device.properties)
    assert.equal(device.properties.totalBytes, 140 * GiB)
    device.close()
    assert.throws(() => device.properties, { name: 'PoolError', message: /properties: the device is closed/ })
  })
})

describe('createStream', () => {
  it('gives a stream the priority that is asked for', () => {
    using device = openDevice('simulated')
    assert.equal(device.createStream().priority, 0)
    assert.equal(device.createStream({ priority: -5 }).priority, -5)
    assert.equal(device.defaultStream.priority, 0)
    const stream = device.createStream({ priority: -1 })
    const adopted = device.adoptStream(stream.handle)
    assert.equal(adopted.priority, -1)
    stream.close()
    assert.throws(() => stream.priority, { name: 'PoolError', message: /priority: the stream is closed/ })
  })

  it('refuses priorities beyond the range, and unknown options, and makes no stream', () => {
    using device = openDevice('simulated')
    for (const priority of [1, -6, 0.5, Number.NaN, '1', null]) {
      const bad = () => device.createStream({ priority: priority as number })
      assert.throws(bad, { name: 'RangeError', message: /priority must be a whole number from -5 to 0, not/ })
    }
    for (const [options, message] of [
      [{ prioritie: -1 }, /createStream: unknown option 'prioritie'; the options are priority/],
      ['x', /createStream: options must be an object/],
      [null, /createStream: options must be an object/],
    ] as const) {
      assert.throws(() => device.createStream(options as object), { name: 'TypeError', message })
    }
    assert.equal(device.driver.calls.has('cuStreamCreateWithPriority'), false)
  })
})

describe('createEvent', () => {
  it('makes events with timing, and refuses unknown options', () => {
    using device = openDevice('simulated')
    const [start, end] = [device.createEvent({ timing: true }), device.createEvent({ timing: true })]
    const stream = device.createStream()
    start.record(stream)
    end.record(stream)
    stream.synchronize()
    assert.ok(end.elapsedSince(start) >= 0)
    assert.equal(device.createEvent().timing, false)
    for (const [options, message] of [
      ['x', /createEvent: options must be an object/],
      [{ timed: true }, /createEvent: unknown option 'timed'; the options are timing/],
      [{ timing: 1 }, /createEvent: timing must be true or false, not 1/],
    ] as const) {
      assert.throws(() => device.createEvent(options as object), { name: 'TypeError', message })
    }
  })
})
