// The figures of a pool for Prometheus, in the HTTP server that the program has, and for OpenTelemetry. While a program
// runs, try `npx cuda-mempool top` in another terminal.
// docs/recipes/metrics.md explains it. In a clone: npm run build && node dist/examples/watch-a-pool.js

import { once } from 'node:events'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import {
  AggregationTemporality,
  InMemoryMetricExporter,
  MeterProvider,
  PeriodicExportingMetricReader,
} from '@opentelemetry/sdk-metrics'
import { openDevice, tagged } from 'cuda-mempool'
import { observe, register } from 'cuda-mempool/live'
import { Registry } from 'prom-client'

using device = openDevice('auto')
using main = device.createPool({ maxPoolBytes: '64MiB' })
const cache = tagged(main, { limits: { kv: '32MiB' } })
const pools = { main, cache } // a wrapper is a part of its pool, and counts no byte twice
using entry = cache.inScope('kv', () => cache.allocate('3MiB'))

// Prometheus
const registry = new Registry()
register(registry, pools)
const server = createServer(async (_, response) => {
  response.setHeader('Content-Type', registry.contentType).end(await registry.metrics())
}).listen(0)
await once(server, 'listening')
const answer = await fetch(`http://localhost:${(server.address() as AddressInfo).port}/metrics`)
for (const line of (await answer.text()).split('\n'))
  if (/^cuda_\w+_(requested|limit)_bytes/.test(line)) console.log(line)
server.close()

// OpenTelemetry, whose exporter would be OTLP's in a server
const exporter = new InMemoryMetricExporter(AggregationTemporality.CUMULATIVE)
const provider = new MeterProvider({ readers: [new PeriodicExportingMetricReader({ exporter })] })
observe(provider.getMeter('example'), pools)
await provider.shutdown() // exports once more
for (const { descriptor, dataPoints } of exporter.getMetrics()[0]!.scopeMetrics[0]!.metrics) {
  console.log(`${descriptor.name}: ${dataPoints.map(({ value }) => `${value} ${descriptor.unit}`).join(', ')}`)
}
console.log(`${entry.byteLength} bytes are held`)
