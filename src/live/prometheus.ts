// Metrics for Prometheus: as text of format 0.0.4, and for a registry of prom-client. Nothing is counted here; each
// scrape reads the pools.

import { WrongTypeError } from '../core/base/argument-errors.js'
import { describe } from '../core/base/bytes.js'
import { METRICS, type Metric, type Sample } from './metrics.js'
import { type Figures, PoolList, type WatchedPool, type WatchedPools } from './watched-pools.js'

/** The Content-Type of `prometheusText`. */
export const PROMETHEUS_TYPE = 'text/plain; version=0.0.4; charset=utf-8'

/**
 * The metrics of pools in Prometheus' text format 0.0.4, for a server of your own; `serve` has them at `/metrics`.
 * Throws TypeError for anything but pools.
 */
export function prometheusText(pools: WatchedPools): string {
  return metricsText(new PoolList('prometheusText', pools).figures())
}

/** The text for figures that were read. */
export function metricsText(figures: Figures): string {
  let text = ''
  for (const metric of METRICS) {
    const samples = metric.values(figures)
    if (samples.length === 0) continue
    text += `# HELP ${metric.name} ${metric.help}\n# TYPE ${metric.name} ${metric.type}\n`
    for (const sample of samples) text += `${metric.name}${labelsText(sample)} ${valueText(sample.value)}\n`
  }
  return text
}

const ESCAPES: Readonly<Record<string, string>> = { '\\': '\\\\', '"': '\\"', '\n': '\\n' }

function labelsText({ labels }: Sample): string {
  const parts = Object.entries(labels).map(
    ([name, value]) => `${name}="${value.replace(/[\\"\n]/g, letter => ESCAPES[letter])}"`,
  )
  return `{${parts.join(',')}}`
}

function valueText(value: number): string {
  if (value === Infinity) return '+Inf'
  return value === -Infinity ? '-Inf' : String(value)
}

/** A registry of prom-client: only this method of it is called. */
export interface MetricRegistry {
  /** adds a metric, which each scrape asks for its values */
  registerMetric(metric: never): void
}

/**
 * Adds the metrics of pools to a registry of prom-client. They are read at each scrape, all from one look at the
 * pools. Returns a function that adds a pool, under a name if one is given. Throws TypeError for anything but a
 * registry and pools, and prom-client's error if the registry has these metrics already.
 */
export function register(registry: MetricRegistry, pools: WatchedPools): AddPool {
  if (typeof registry?.registerMetric !== 'function')
    throw new WrongTypeError(`register: registry must be a Registry of prom-client, not ${describe(registry)}`)
  const list = new PoolList('register', pools)
  let read: Figures | null = null
  const figures = () => {
    if (read === null) {
      read = list.figures()
      // The registry asks all metrics in one turn.
      queueMicrotask(() => {
        read = null
      })
    }
    return read
  }
  for (const metric of METRICS) registry.registerMetric(new CollectedMetric(metric, figures) as never)
  return (pool, name) => list.add(pool, name)
}

/** Adds a pool to those that are watched, and returns its name. Throws TypeError for anything but a pool. */
export type AddPool = (pool: WatchedPool, name?: string) => string

/** A metric as prom-client's registry sees it. */
class CollectedMetric {
  readonly help: string
  readonly type: Metric['type']
  readonly aggregator = 'sum'
  /** The registry changes the name of a counter for OpenMetrics. */
  name: string

  constructor(
    private readonly metric: Metric,
    private readonly figures: () => Figures,
  ) {
    this.name = metric.name
    this.help = metric.help
    this.type = metric.type
  }

  async get() {
    const { name, help, type, aggregator } = this
    return { name, help, type, aggregator, values: this.metric.values(this.figures()) }
  }

  /** Does nothing: the pools count. */
  reset(): void {}
}
