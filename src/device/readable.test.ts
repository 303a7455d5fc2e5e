// Public objects hold the whole state of a pool. console.log, templates and JSON.stringify show a line of it.

import assert from 'node:assert/strict'
import { describe, it } from 'node:test'
import { inspect } from 'node:util'
import { MiB } from '../base/bytes.js'
import { limited } from '../pool/wrappers/limited.js'
import { openDevice } from './open.js'

const ADDRESS = '0x[0-9a-f]+'

/** The line that console.log shows, which templates show too. */
function lineOf(value: object): string {
  const line = inspect(value)
  assert.equal(line, `${value}`)
  assert.equal(inspect({ value }), inspect({ value: { [inspect.custom]: () => line } }), 'within another object, too')
  return line
}

function plain(value: object): unknown {
  return JSON.parse(JSON.stringify(value))
}

describe('a public object in a log', () => {
  it('is a line for a buffer, live and freed', () => {
    using device = openDevice('simulated')
    const stream = device.createStream()
    const buffer = device.createPool().allocate(1 * MiB, stream)
    const { ptr } = buffer
    assert.match(lineOf(buffer), new RegExp(`^DeviceBuffer \\{ 1 MiB at ${ADDRESS}, stream ${ADDRESS}, live \\}$`))
    assert.ok(lineOf(buffer).includes(`0x${ptr.toString(16)},`))
    const { handle } = stream
    assert.deepEqual(plain(buffer), { ptr, byteLength: 1 * MiB, stream: handle, device: 0, freed: false })
    buffer.free()
    assert.equal(lineOf(buffer), 'DeviceBuffer { freed }')
    assert.deepEqual(plain(buffer), { freed: true })
  })

  it('is a line for every kind of buffer and array', () => {
    using device = openDevice('simulated')
    const pool = device.createPool()
    const array = pool.allocateArray(Float32Array, 4)
    assert.match(lineOf(array), /^DeviceArray \{ 4 Float32Array elements, 16 B at 0x[0-9a-f]+, live \}$/)
    assert.deepEqual(plain(array), { type: 'Float32Array', length: 4, byteLength: 16, ptr: array.ptr, freed: false })
    array.free()
    assert.equal(lineOf(array), 'DeviceArray { 4 Float32Array elements, freed }')
    const host = device.createHostPool()
    assert.equal(lineOf(host.allocate(4096)), 'HostBuffer { 4 KiB of pinned memory, live }')
    assert.equal(lineOf(host.allocateArray(Float32Array, 2)), 'HostArray { 8 B of pinned memory, live }')
    assert.match(
      lineOf(device.createGrowableBuffer({ bytes: 5 })),
      /^GrowableBuffer \{ 5 B at .*, the default stream, /,
    )
    const debug = device.createPool({ debug: true }).allocate(100)
    assert.match(lineOf(debug), /^DeviceBuffer \{ 100 B at /)
  })

  it('is a line with the counters for every kind of pool, open and closed', () => {
    using device = openDevice('simulated')
    const pools = [
      device.createPool({ maxPoolBytes: 64 * MiB }),
      device.createPool({ debug: true }),
      device.createPool({ shared: true }),
      device.createArenaPool({ bytes: 1 * MiB }),
      device.createBlockPool({ blockBytes: 4096, count: 4 }),
      device.createPlainPool(),
      device.createDriverPool(),
      device.createHostPool(),
    ]
    for (const pool of pools) {
      const name = pool.constructor.name.replace('Own', '')
      assert.match(lineOf(pool), new RegExp(`^${name} \\{ 0 B live in 0 buffers, .* reserved.*, \\d+ % idle \\}$`))
      assert.equal((plain(pool) as { pool: string }).pool, name)
      pool.close()
      assert.equal(lineOf(pool), `${name} { closed }`)
      assert.deepEqual(plain(pool), { pool: name, device: 0, closed: true })
    }
  })

  it('has the figures of a pool and of the pool that a wrapper wraps', () => {
    using device = openDevice('simulated')
    const pool = device.createPool({ maxPoolBytes: 64 * MiB })
    pool.allocate(3 * MiB)
    const line = 'CachingPool { 3 MiB live in 1 buffer, 4 MiB reserved of 64 MiB, 25 % idle }'
    assert.equal(lineOf(pool), line)
    assert.equal(lineOf(limited(pool, 10 * MiB)), `LimitedPool around ${line}`)
    assert.deepEqual(plain(pool), { pool: 'CachingPool', device: 0, closed: false, ...pool.stats() })
    const unlimited = device.createPool({ maxPoolBytes: Infinity })
    assert.equal((plain(unlimited) as { limitBytes: null }).limitBytes, null)
  })

  it('is a line for devices, streams, events and graphs in each of their states', () => {
    const device = openDevice('simulated')
    assert.equal(lineOf(device), 'Device { 0: simulated GPU, 140 GiB, open }')
    assert.match(lineOf(device.defaultStream), /^Stream \{ the default stream, open \}$/)
    const stream = device.createStream()
    const event = device.createEvent()
    assert.equal(lineOf(stream), `Stream { stream 0x${stream.handle.toString(16)}, open }`)
    assert.equal(lineOf(event), 'Event { never recorded }')
    event.record(stream)
    assert.equal(lineOf(event), 'Event { recorded }')
    assert.deepEqual(plain(event), { device: 0, state: 'recorded', timing: false })
    stream.beginCapture()
    assert.match(lineOf(stream), /, captured \}$/)
    const graph = stream.endCapture()
    assert.equal(lineOf(graph), 'Graph { open }')
    stream.close()
    assert.deepEqual(plain(stream), { handle: stream.handle, device: 0, state: 'closed' })
    device.close()
    assert.equal(lineOf(graph), 'Graph { closed }')
    assert.deepEqual(plain(device), {
      ordinal: 0,
      name: 'simulated GPU',
      simulated: true,
      totalBytes: 140 * 1024 * MiB,
      closed: true,
    })
  })
})
