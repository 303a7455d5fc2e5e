// cuda-mempool/live: running pools, for people and for collectors of metrics.

export {
  type InstrumentOptions,
  type ObservedBatch,
  type ObservedInstrument,
  type ObservedMeter,
  type ObserveOptions,
  observe,
} from '../live/opentelemetry.js'
export { type AddPool, type MetricRegistry, PROMETHEUS_TYPE, prometheusText, register } from '../live/prometheus.js'
export { type LiveServer, type ServeOptions, serve } from '../live/serve.js'
export type { WatchedPool, WatchedPools } from '../live/watched-pools.js'
