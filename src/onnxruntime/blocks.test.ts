// The blocks of a device's pool that ONNX Runtime asks for, on the simulated device, without the library.

import assert from 'node:assert/strict'
import { after, describe, it } from 'node:test'
import { openDevice } from '../device/open.js'
import { SimulatedDriver } from '../driver/simulated/index.js'
import { DeviceBlocks, type Scope } from './blocks.js'

const scopeOf = (name: string): Scope => ({ name, pool: null, uses: new Set(), failure: null })

describe('blocks of a device', () => {
  const driver = new SimulatedDriver()
  const device = openDevice(driver)
  after(() => device.close())

  it('go back to the pool if their name is too long for a label', () => {
    using pool = device.createPool({ shared: true })
    const blocks = new DeviceBlocks(pool, true)
    const stream = device.createStream()
    for (const handle of [null, stream.handle]) {
      const scope = scopeOf('a session with a name that has more bytes than a label of a pool')
      assert.equal(
        blocks.scopes.run(scope, () => blocks.allocate(1000, handle)),
        0,
      )
      assert.match(String(scope.failure), /^RangeError: label must have at most 56 bytes/)
    }
    assert.deepEqual([pool.stats().liveBuffers, blocks.groups()], [0, []])
  })

  it('without a stream are handed out after the work of the stream that their pool takes them on', () => {
    using stream = device.createStream()
    using pool = device.createPool()
    const blocks = new DeviceBlocks(pool, true)
    const scope = { ...scopeOf('own'), pool: device.poolFor(stream) }
    driver.holdOperation(stream.handle)
    const ptr = blocks.scopes.run(scope, () => blocks.allocate(1000, null))
    assert.ok(driver.cuStreamQuery(stream.handle))
    blocks.free(ptr)
  })

  it('leave the default stream open when the streams of a session are forgotten', () => {
    using stream = device.createStream()
    const blocks = new DeviceBlocks(device.poolFor(stream), true)
    const [onDefault, weights] = [blocks.allocate(1000, device.defaultStream.handle), blocks.allocate(1000, null)]
    blocks.free(weights)
    blocks.free(onDefault)
    assert.ok(device.defaultStream.isOpen)
  })
})
