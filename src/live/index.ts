// The public API of cuda-mempool/live: running pools, for people and for collectors of metrics.

export {
  type InstrumentOptions,
  type ObservedBatch,
  type ObservedInstrument,
  type ObservedMeter,
  type ObserveOptions,
  observe,
} from './opentelemetry.js'
export { type AddPool, type MetricRegistry, PROMETHEUS_TYPE, prometheusText, register } from './prometheus.js'
export { LiveServer, type ServeOptions, serve } from './serve.js'
export type { WatchedPool, WatchedPools } from './watched-pools.js'
