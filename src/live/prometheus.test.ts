import assert from 'node:assert/strict'
import { readFileSync } from 'node:fs'
import { beforeEach, test } from 'node:test'
import { Registry } from 'prom-client'
import { KiB, MiB } from '../core/base/bytes.js'
import { ArenaQueue } from '../core/pool/arena/arena-queue.js'
import type { DeviceBuffer } from '../core/pool/buffer.js'
import { TestDevice } from '../core/pool/pool.fixture.js'
import { Shelf } from '../core/pool/shelf/shelf.js'
import { limited } from '../core/pool/wrappers/limited.js'
import { spillable } from '../core/pool/wrappers/spillable.js'
import { tagged } from '../core/pool/wrappers/tagged.js'
import { metricsText, prometheusText, register } from './prometheus.js'
import { parseMetrics } from './prometheus-parser.fixture.js'

let device: TestDevice
beforeEach(() => {
  device = new TestDevice()
})

const valueIn = (text: string, name: string, labels: Record<string, string>) =>
  parseMetrics(text)
    .get(name)!
    .samples.find(sample => Object.entries(labels).every(([label, value]) => sample.labels[label] === value))!.value

test('the text has each counter of each pool, as Prometheus reads it', () => {
  const upstream = device.createPool({ maxPoolBytes: 8 * MiB })
  const pool = tagged(upstream, { limits: { weights: MiB } })
  const other = device.createPool({ maxPoolBytes: Infinity })
  pool.inScope('weights', () => pool.allocate(1000))
  pool.allocate(3000).free()
  assert.equal(pool.tryAllocate(16 * MiB), null)
  const text = prometheusText({ train: pool, other })
  const stats = upstream.stats()
  const labels = { pool: 'train', device: '0', kind: 'caching' }
  assert.equal(valueIn(text, 'cuda_mempool_live_bytes', labels), stats.liveBytes)
  assert.equal(valueIn(text, 'cuda_mempool_requested_bytes', labels), 1000)
  assert.equal(valueIn(text, 'cuda_mempool_reserved_bytes', labels), stats.reservedBytes)
  assert.equal(valueIn(text, 'cuda_mempool_limit_bytes', labels), 8 * MiB)
  assert.equal(valueIn(text, 'cuda_mempool_limit_bytes', { pool: 'other' }), Infinity)
  assert.equal(valueIn(text, 'cuda_mempool_allocations_total', labels), 2)
  assert.equal(valueIn(text, 'cuda_mempool_frees_total', labels), 1)
  assert.equal(valueIn(text, 'cuda_mempool_tag_requested_bytes', { ...labels, tag: 'weights' }), 1000)
  assert.equal(valueIn(text, 'cuda_mempool_tag_limit_bytes', { ...labels, tag: 'weights' }), MiB)
  assert.equal(valueIn(text, 'cuda_mempool_tag_allocations_total', { ...labels, tag: 'untagged' }), 1)
})

test('sums over pools and what is made of them count no byte twice', () => {
  const pool = device.createPool()
  const host = device.createHostPool()
  const requests = limited(pool, '4MiB')
  const kinds = tagged(requests)
  const spilling = spillable(pool, { host })
  const queue = new ArenaQueue(device.clocks, device.defaultStream, { bytes: '1MiB', count: 2 })
  const growable = device.createGrowableBuffer({ bytes: '3MiB' })
  pool.allocate('2MiB')
  requests.allocate('1MiB')
  kinds.inScope('weights', () => kinds.allocate('512KiB'))
  spilling.allocate('256KiB')
  host.allocate('128KiB')
  const text = prometheusText({ pool, requests, kinds, spilling, queue, growable, host, again: pool })
  const sum = (metric: string) =>
    parseMetrics(text)
      .get(metric)!
      .samples.reduce((total, { value }) => total + value, 0)
  assert.equal(sum('cuda_mempool_requested_bytes'), 3.75 * MiB + 128 * KiB + 3 * MiB)
  const { reservedBytes } = pool.stats()
  assert.equal(sum('cuda_mempool_reserved_bytes'), reservedBytes + host.stats().reservedBytes + 1 * MiB + 4 * MiB)
  const part = (tag: string) => valueIn(text, 'cuda_mempool_tag_requested_bytes', { pool: 'pool', tag })
  assert.equal(part('requests'), 1.5 * MiB)
  assert.equal(part('weights'), 0.5 * MiB)
  assert.equal(part('spilling'), 256 * KiB)
  assert.equal(valueIn(text, 'cuda_mempool_tag_limit_bytes', { tag: 'requests' }), 4 * MiB)
  const names = parseMetrics(text)
    .get('cuda_mempool_live_bytes')!
    .samples.map(({ labels }) => labels['pool'])
  assert.deepEqual(names, ['pool', 'host', 'queue', 'growable'])
})

test('refused requests count from the first look at any pool on', () => {
  const pool = device.createPool({ maxPoolBytes: 8 * MiB })
  const count = () => valueIn(prometheusText(pool), 'cuda_mempool_out_of_memory_total', { pool: 'caching' })
  assert.equal(count(), 0)
  assert.equal(pool.tryAllocate(16 * MiB), null)
  assert.throws(() => pool.allocate(16 * MiB), { name: 'OutOfMemoryError' })
  assert.equal(count(), 2)
  const part = limited(pool, '1MiB')
  assert.equal(part.tryAllocate('2MiB'), null)
  assert.throws(() => part.allocate('2MiB'), { name: 'OutOfMemoryError' })
  assert.equal(valueIn(prometheusText([pool, part]), 'cuda_mempool_out_of_memory_total', { pool: 'caching' }), 4)
})

test('names with quotes, backslashes and line feeds are escaped', () => {
  const name = 'a "b" \\ c\nd {x="y"}'
  const families = parseMetrics(prometheusText({ [name]: device.createPool() }))
  assert.equal(families.get('cuda_mempool_live_bytes')!.samples[0].labels['pool'], name)
})

test('two pools of one kind have names of their own, and closed pools are left out', () => {
  const [first, second, closed] = [device.createPool(), device.createPool(), device.createPool()]
  closed.close()
  const families = parseMetrics(prometheusText([first, second, closed]))
  const names = families.get('cuda_mempool_live_bytes')!.samples.map(({ labels }) => labels['pool'])
  assert.deepEqual(names, ['caching', 'caching-2'])
  assert.deepEqual([...parseMetrics(prometheusText([])).keys()], ['cuda_mempool_info'])
})

test('the version of the package is a label, also without pools', () => {
  const { version } = JSON.parse(readFileSync(new URL('../../../package.json', import.meta.url), 'utf8'))
  assert.match(prometheusText([]), /^# HELP cuda_mempool_info Always 1.*\n# TYPE cuda_mempool_info gauge\n/)
  const info = parseMetrics(prometheusText([device.createPool(), device.createPool()])).get('cuda_mempool_info')!
  assert.deepEqual(info.samples, [{ labels: { version }, value: 1 }])
})

test('a registry of prom-client reads the pools at each scrape, and has the same text', async () => {
  const pool = device.createPool()
  const registry = new Registry()
  const add = register(registry, { train: pool })
  for (const bytes of [1000, 5000]) {
    pool.allocate(bytes)
    const text = await registry.metrics()
    assert.equal(
      valueIn(text.replaceAll('\n\n', '\n'), 'cuda_mempool_live_bytes', { pool: 'train' }),
      pool.stats().liveBytes,
    )
  }
  assert.equal(add(device.createPool(), 'train'), 'train-2')
  const text = await registry.metrics()
  assert.match(text, /cuda_mempool_info\{version="[^"]+"\} 1\n/)
  assert.match(text, /cuda_mempool_live_bytes\{pool="train-2"/)
  registry.resetMetrics()
  assert.match(await registry.metrics(), /cuda_mempool_allocations_total\{[^}]*pool="train"[^}]*\} 2\n/)
})

test('a scrape looks at each pool once', async () => {
  const pool = device.createPool()
  const registry = new Registry()
  register(registry, pool)
  let looks = 0
  const { stats } = pool
  pool.stats = () => {
    looks++
    return stats.call(pool)
  }
  await registry.metrics()
  assert.equal(looks, 1)
  await registry.metrics()
  assert.equal(looks, 2)
})

test('a shelf has its budget, its waits, and each model by its state', async () => {
  const shelf = new Shelf<DeviceBuffer>(device, { budgetBytes: 8 * MiB })
  for (const name of ['chat', 'code']) shelf.add(name, { bytes: 8 * MiB, load: pool => pool.allocate(MiB) })
  await shelf.use('chat', () => {})
  const text = prometheusText({ models: shelf, again: shelf })
  const labels = { shelf: 'models', device: '0' }
  const samples = (name: string) => parseMetrics(text).get(`cuda_mempool_shelf_${name}`)!.samples
  assert.deepEqual(samples('budget_bytes'), [{ labels, value: 8 * MiB }])
  assert.deepEqual(samples('waiting'), [{ labels, value: 0 }])
  assert.deepEqual(samples('switches_total'), [{ labels, value: 1 }])
  assert.deepEqual(samples('model_bytes'), [
    { labels: { ...labels, model: 'chat', state: 'awake' }, value: 8 * MiB },
    { labels: { ...labels, model: 'code', state: 'notLoaded' }, value: 8 * MiB },
  ])
  await shelf.close()
  assert.deepEqual([...parseMetrics(prometheusText(shelf)).keys()], ['cuda_mempool_info'])
})

test('kept regions of one name, version and state are one series, and an unfinished name has no series', () => {
  const region = { name: 'weights', version: 'v1', generation: 1, bytes: 10, device: 'GPU', here: null }
  const figures = { pools: [], shelves: [] }
  const text = metricsText({
    ...figures,
    regions: [
      { ...region, state: 'retired', readers: 2, lastUse: 3000 },
      { ...region, state: 'retired', readers: 1, lastUse: 5000 },
      { ...region, state: 'ready', readers: null, lastUse: null, device: null },
      { ...region, state: 'unfinished', readers: 0, lastUse: 7000 },
    ],
  })
  const labels = { region: 'weights', version: 'v1', state: 'retired', uuid: 'GPU' }
  const samples = (name: string) => parseMetrics(text).get(`cuda_mempool_region_${name}`)!.samples
  assert.deepEqual(samples('bytes'), [
    { labels, value: 20 },
    { labels: { ...labels, state: 'ready', uuid: '' }, value: 10 },
  ])
  assert.deepEqual(samples('readers'), [{ labels, value: 3 }])
  assert.deepEqual(samples('last_use_timestamp_seconds'), [{ labels, value: 5 }])
})

test('wrong arguments are refused by name', () => {
  assert.throws(() => prometheusText(5 as never), {
    name: 'TypeError',
    message: /^prometheusText: pools must be a pool/,
  })
  assert.throws(() => prometheusText([{} as never]), { message: /^prometheusText: each of pools must be a pool, not/ })
  assert.throws(() => prometheusText({ a: null as never }), { message: /^prometheusText: the pool 'a' must be a pool/ })
  assert.throws(() => register({} as never, []), {
    name: 'TypeError',
    message: /^register: registry must be a Registry/,
  })
})
