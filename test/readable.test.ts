// Public objects hold the whole state of a pool. console.log, templates and JSON.stringify show a line of it.

import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { describe, it } from 'node:test'
import { inspect } from 'node:util'
import { MiB } from '../src/core/base/bytes.js'
import { openDevice } from '../src/core/device/open.js'
import { registerSimulatedKernel } from '../src/core/driver/simulated-kernels.js'
import { limited } from '../src/core/pool/wrappers/limited.js'
import { statistics } from '../src/core/pool/wrappers/statistics.js'
import { createDeviceHeap } from '../src/kernel-memory/device-heap.js'
import { createStreamArenas } from '../src/kernel-memory/stream-arenas.js'

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
    assert.equal(
      lineOf(host.allocateArray(Float32Array, 2)),
      'HostArray { 2 Float32Array elements, 8 B of pinned memory, live }',
    )
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
      device.createSharedPool(),
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
    assert.equal(lineOf(limited(pool, 10 * MiB)), `LimitedPool { 0 B live in 0 buffers of 10 MiB } around ${line}`)
    assert.deepEqual(plain(pool), { pool: 'CachingPool', device: 0, closed: false, ...pool.stats() })
  })

  it('says 0 % and 100 % idle only of what is exactly that', () => {
    using device = openDevice('simulated')
    const pool = device.createPool({ initialBytes: 1024 * MiB })
    const idle = [lineOf(pool)]
    for (const mebibytes of [1, 1022, 1]) {
      pool.allocate(mebibytes * MiB)
      idle.push(lineOf(pool))
    }
    assert.deepEqual(
      idle.map(line => /, ([^,]*) idle \}$/.exec(line)?.[1]),
      ['100 %', '> 99 %', '< 1 %', '0 %'],
    )
  })

  it('writes a missing limit as null', () => {
    using device = openDevice('simulated')
    const unlimited = device.createPool({ maxPoolBytes: Infinity })
    assert.equal((plain(unlimited) as { maxPoolBytes: null }).maxPoolBytes, null)
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

describe('every public class', () => {
  const { exports } = JSON.parse(readFileSync(new URL('../../package.json', import.meta.url), 'utf8')) as {
    readonly exports: Readonly<Record<string, { readonly default?: string }>>
  }
  const files = Object.values(exports).flatMap(({ default: path }) => path ?? [])
  for (const entry of files.map(path => path.replace(/^\.\/dist\/lib\/(.*)\.js$/, '$1'))) {
    it(`shows a line in logs, and plain values as JSON: ${entry}`, async () => {
      const bare: string[] = []
      for (const [name, made] of await classesOf(new URL(`../../src/${entry}.ts`, import.meta.url), entry)) {
        if (made.prototype instanceof Error) continue
        const isShown = inspect.custom in made.prototype && 'toJSON' in made.prototype
        if (!isShown || made.prototype.toString === Object.prototype.toString) bare.push(name)
      }
      assert.deepEqual(bare, [])
    })
  }

  it('shows kernels, their modules and memory for them', () => {
    using device = openDevice('simulated')
    registerSimulatedKernel('scale', () => {})
    const ptx = '.version 7.0\n.target sm_50\n.visible .entry scale(.param .u64 data, .param .f32 by)\n{ ret; }\n'
    const module = device.loadModule(ptx)
    const kernel = module.kernel('scale')
    assert.equal(lineOf(kernel), 'Kernel { scale, 2 parameters }')
    assert.deepEqual(plain(kernel), { kernel: 'scale', device: 0, parameters: ['data', 'by'] })
    assert.equal(lineOf(module), 'Module { kernels scale }')
    assert.deepEqual(plain(module), { device: 0, kernels: ['scale'], closed: false })
    module.close()
    assert.equal(lineOf(module), 'Module { closed }')
    const pool = device.createPool()
    const heap = createDeviceHeap(device, pool.allocate(16 * MiB))
    assert.equal(lineOf(heap), 'DeviceHeap { in a region of 16 MiB, open }')
    assert.deepEqual(plain(heap), { memory: 'DeviceHeap', device: 0, regionBytes: 16 * MiB, closed: false })
    const arenas = createStreamArenas(device, { pool, bytes: 1 * MiB })
    arenas.of(device.defaultStream)
    assert.equal(lineOf(arenas), 'StreamArenas { of 1 MiB each, for 1 stream }')
    arenas.close()
    assert.equal(lineOf(arenas), 'StreamArenas { of 1 MiB each, closed }')
  })

  it('shows marks, leases and counters', async () => {
    using device = openDevice('simulated')
    const arena = device.createArenaPool({ bytes: 1 * MiB })
    const mark = arena.mark()
    assert.equal(lineOf(mark), 'ArenaMark { valid }')
    arena.reset()
    assert.deepEqual([lineOf(mark), plain(mark)], ['ArenaMark { stale }', { stale: true }])
    const queue = device.createArenaQueue({ bytes: 1 * MiB, count: 2 })
    const lease = await queue.take()
    assert.match(lineOf(lease), /^ArenaLease \{ of ArenaPool \{ 0 B live .* \} \}$/)
    lease.close()
    assert.equal(lineOf(lease), 'ArenaLease { closed }')
    assert.deepEqual(plain(queue), { device: 0, count: 2, availableArenas: 2, waiting: 0, closed: false })
    const counted = statistics(device.createPool())
    counted.allocate(1 * MiB)
    assert.equal(lineOf(counted.counters), 'Counters { 1 MiB in 1 buffer, at most 1 MiB }')
    assert.equal(lineOf(counted.counters.allocations), 'Counter { 1 now, 1 at the peak, 1 in all }')
    const one = { current: 1, peak: 1, total: 1 }
    const bytes = { current: MiB, peak: MiB, total: MiB }
    assert.deepEqual(plain(counted.counters), { bytes, allocations: one })
  })
})

/** The classes that an entry of the package exports, also those exported as types only. */
async function classesOf(source: URL, entry: string): Promise<[string, { readonly prototype: object }][]> {
  const classes: [string, { readonly prototype: object }][] = []
  const exported = [...readFileSync(source, 'utf8').matchAll(/export (?:type )?\{([^}]*)\} from '([^']+)'/g)]
  assert.ok(exported.length > 0)
  for (const [, names, path] of exported) {
    const module = await import(new URL(path, new URL(`../src/${entry}.js`, import.meta.url)).href)
    for (const name of names.split(',').map(
      each =>
        each
          .trim()
          .replace(/^type /, '')
          .split(' as ')[0],
    )) {
      if (/^class\b/.test(String(module[name] ?? ''))) classes.push([name, module[name]])
    }
  }
  return classes
}
