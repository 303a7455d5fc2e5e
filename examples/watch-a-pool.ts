// The figures of pools for Prometheus, prom-client, OpenTelemetry and a browser. While it runs, try `npx cuda-mempool
// top` in another terminal.
// In a clone: npm run build && node dist/examples/watch-a-pool.js

import {
  AggregationTemporality,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
} from '@opentelemetry/sdk-metrics'
import { limited, openDevice, tagged } from 'cuda-mempool'
import { observe, prometheusText, register, serve } from 'cuda-mempool/live'
import { Registry } from 'prom-client'

using device = openDevice('auto')
using memory = device.createPool({ maxPoolBytes: '64MiB' })
using host = device.createHostPool()
const cache = tagged(memory, { limits: { kv: '32MiB' } })
const requests = limited(memory, '16MiB')
const pools = { memory, host, cache, requests } // wrappers are parts of their pool, and count no byte twice
using kept = cache.inScope('kv', () => cache.allocate('3MiB'))
using staging = host.allocate('1MiB')

const text = prometheusText(pools)
for (const line of text.split('\n')) if (/^cuda_mempool(_tag)?_requested_bytes/.test(line)) console.log(line)

const registry = new Registry()
register(registry, pools)
console.log(`${(await registry.getMetricsAsJSON()).length} metrics in prom-client`)

const exporter = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE)
const provider = new MeterProvider({ readers: [new PeriodicExportingMetricReader({ exporter })] })
observe(provider.getMeter('example'), pools, { device: true })
await provider.shutdown() // exports once more
for (const { descriptor, dataPoints } of exporter.getMetrics()[0]!.scopeMetrics[0]!.metrics) {
  console.log(`${descriptor.name}: ${dataPoints.map(({ value }) => `${value} ${descriptor.unit}`).join(', ')}`)
}

await using server = await serve(pools, { port: 0 })
const answer = await fetch(new URL('/stats', server.url!), { headers: { Authorization: `Bearer ${server.token}` } })
console.log(
  `over the port: ${answer.status}; without the token: ${(await fetch(new URL('/stats', server.url!))).status}`,
)
console.log(`held: ${kept}, ${staging}`)
