// Copies between pinned memory and a stream that is captured: the graph makes them at each launch.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { KiB, MiB } from '../../base/bytes.js'
import { TestDevice } from '../pool.fixture.js'

const BYTES = 4 * KiB

function setUp() {
  const device = new TestDevice()
  const [pool, host] = [device.createPool(), device.createHostPool({ maxPoolBytes: 2 * MiB, segmentBytes: 1 * MiB })]
  const stream = device.createStream()
  return { device, pool, host, stream, target: pool.allocate(BYTES, stream) }
}

describe('pinned copies in a graph', () => {
  it('run at each launch, with the contents of that time', () => {
    const { host, stream, target } = setUp()
    const [input, output] = [host.allocate(BYTES), host.allocate(BYTES)]
    stream.beginCapture()
    input.copyTo(target)
    output.copyFrom(target)
    const graph = stream.endCapture()
    output.bytes.fill(0)
    for (const value of [5, 6]) {
      input.bytes.fill(value)
      graph.launch(stream)
      stream.synchronize()
      assert.equal(output.bytes[BYTES - 1], value)
    }
    graph.close()
  })

  it('keep freed memory from use until the graph is closed and its launches are complete', () => {
    const { device, host, stream, target } = setUp()
    const input = host.allocate(BYTES)
    input.bytes.fill(7)
    stream.beginCapture()
    input.copyTo(target)
    const graph = stream.endCapture()
    input.free()
    const most = (2 * MiB) / BYTES
    const others = (count: number) => {
      const held = Array.from({ length: count }, () => host.allocate(BYTES))
      for (const buffer of held) buffer.bytes.fill(0xee)
      for (const buffer of held) buffer.free()
    }
    others(most - 1)
    const rest = Array.from({ length: most - 1 }, () => host.allocate(BYTES))
    assert.equal(host.tryAllocate(BYTES), null, 'the graph has the rest')
    for (const buffer of rest) buffer.free()
    graph.launch(stream)
    assert.equal(target.readSync()[0], 7, 'the graph reads what it was captured with')
    const ticket = device.driver.holdOperation(stream.handle)
    graph.launch(stream)
    graph.close()
    others(most - 1)
    device.driver.releaseThrough(stream.handle, ticket)
    assert.equal(target.readSync()[0], 7, 'the last launch was not complete')
    others(most)
    host.check()
    host.close()
  })

  it('serve uses that are announced to a captured stream, by recordUse or at the free', () => {
    const { host, stream } = setUp()
    stream.beginCapture()
    const [announced, freed, allocated] = [host.allocate(BYTES), host.allocate(BYTES), host.allocate(BYTES, stream)]
    announced.recordUse(stream)
    freed.free(stream)
    announced.free()
    allocated.free()
    const graph = stream.endCapture()
    const { ptr } = host.allocate(BYTES)['block']
    host.check()
    graph.close()
    host.trimTo(0)
    assert.ok(ptr > 0)
    host.check()
    host.close()
  })

  it('of a pool that threads share are refused', () => {
    const device = new TestDevice()
    const { pool } = device.createSharedHost()
    const stream = device.createStream()
    const target = device.createPool().allocate(BYTES, stream)
    const buffer = pool.allocate(BYTES)
    stream.beginCapture()
    const captured = { name: 'PoolError', message: /^copy(To|From): the stream is being captured/ }
    assert.throws(() => buffer.copyTo(target), captured)
    assert.throws(() => buffer.copyFrom(target), captured)
    stream.endCapture().close()
    pool.close()
  })
})
