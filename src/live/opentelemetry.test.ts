import assert from 'node:assert/strict'
import { beforeEach, test } from 'node:test'
import { MeterProvider, MetricReader } from '@opentelemetry/sdk-metrics'
import { MiB } from '../core/base/bytes.js'
import { CudaError } from '../core/base/errors.js'
import { RESULT } from '../core/driver/constants.js'
import { TestDevice } from '../core/pool/pool.fixture.js'
import { observe } from './opentelemetry.js'

class Reader extends MetricReader {
  protected async onForceFlush(): Promise<void> {}
  protected async onShutdown(): Promise<void> {}
}

let device: TestDevice
let reader: Reader
let meter: ReturnType<MeterProvider['getMeter']>
beforeEach(() => {
  device = new TestDevice()
  reader = new Reader()
  meter = new MeterProvider({ readers: [reader] }).getMeter('test')
})

/** By metric and pool: unit and value. */
async function collected() {
  const { resourceMetrics, errors } = await reader.collect()
  assert.deepEqual(errors, [])
  const metrics = resourceMetrics.scopeMetrics.flatMap(scope => scope.metrics)
  return Object.fromEntries(
    metrics.flatMap(({ descriptor, dataPoints }) =>
      dataPoints.map(({ attributes, value }) => [
        `${descriptor.name} ${attributes['cuda_mempool.pool.name'] ?? attributes['hw.id']}`,
        [descriptor.unit, value],
      ]),
    ),
  )
}

test('a collection has the figures of each pool, read once, and none are read before', async () => {
  const pool = device.createPool({ maxPoolBytes: 8 * MiB })
  const endless = device.createPool({ maxPoolBytes: Infinity })
  let looks = 0
  const { stats } = pool
  pool.stats = () => {
    looks++
    return stats.call(pool)
  }
  const end = observe(meter, { train: pool, endless })
  pool.allocate(1000)
  assert.equal(looks, 0)
  const values = await collected()
  assert.equal(looks, 1)
  assert.deepEqual(values['cuda_mempool.memory.usage train'], ['By', 1024])
  assert.deepEqual(values['cuda_mempool.memory.reserved train'], ['By', pool.stats().reservedBytes])
  assert.deepEqual(values['cuda_mempool.memory.limit train'], ['By', 8 * MiB])
  assert.equal(values['cuda_mempool.memory.limit endless'], undefined)
  assert.deepEqual(values['cuda_mempool.allocations train'], ['{allocation}', 1])
  looks = 0
  end()
  await collected()
  assert.equal(looks, 0)
})

test('GPUs are named as the semantic conventions for hardware do', async () => {
  observe(meter, device.createPool(), { device: true })
  const { resourceMetrics } = await reader.collect()
  const metrics = resourceMetrics.scopeMetrics.flatMap(scope => scope.metrics)
  const points = metrics.flatMap(({ dataPoints }) => dataPoints.map(({ attributes }) => attributes))
  assert.equal(points.length, 7) // four of the pool, three of the GPU
  for (const attributes of points) {
    assert.match(`${attributes['hw.id']}`, /^GPU-[0-9a-f]{8}-/)
    assert.equal(attributes['hw.type'], 'gpu')
  }
})

test("the whole GPU's memory is given on request only, by its UUID", async () => {
  observe(meter, device.createPool())
  assert.ok(!Object.keys(await collected()).some(name => name.startsWith('hw.')))
  observe(meter, device.createPool(), { device: true })
  const values = await collected()
  const [name] = Object.keys(values).filter(each => each.startsWith('hw.gpu.memory.limit'))
  assert.match(name, /^hw\.gpu\.memory\.limit GPU-[0-9a-f]{8}-/)
  assert.deepEqual(values[name], ['By', 64 * MiB])
})

test('a lost device ends no collection, and leaves out only what it alone tells', async () => {
  const lost = new TestDevice()
  const [caching, driverPool, other] = [lost.createPool(), lost.createDriverPool(), device.createPool()]
  caching.allocate(1000)
  observe(meter, { caching, driverPool, other }, { device: true })
  lost.driver.failCall({ call: 'cuStreamSynchronize', code: RESULT.CUDA_ERROR_LAUNCH_FAILED })
  assert.throws(() => lost.defaultStream.synchronize(), CudaError)
  const values = await collected()
  assert.deepEqual(values['cuda_mempool.memory.usage caching'], ['By', 1024])
  assert.deepEqual(values['cuda_mempool.memory.usage other'], ['By', 0])
  assert.equal(values['cuda_mempool.memory.usage driverPool'], undefined)
  assert.equal(Object.keys(values).filter(name => name.startsWith('hw.gpu.memory.limit')).length, 1)
})

test('wrong arguments are refused by name', () => {
  assert.throws(() => observe({} as never, []), { name: 'TypeError', message: /^observe: meter must be a Meter/ })
  assert.throws(() => observe(meter, [], { devices: true } as never), { message: /^observe: unknown option 'devices'/ })
  assert.throws(() => observe(meter, [], { device: 1 as never }), { message: /^observe: device must be true or false/ })
})
