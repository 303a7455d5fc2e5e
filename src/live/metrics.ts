// The metrics of pools for Prometheus: their names, and how each is read from a pool's figures.

import type { PoolFigures } from './watched-pools.js'

/** A metric with one value for each pool, or for each tag of a pool. */
export interface Metric {
  readonly name: string
  readonly type: 'gauge' | 'counter'
  readonly help: string
  values(figures: PoolFigures): readonly Sample[]
}

export interface Sample {
  readonly labels: Readonly<Record<string, string>>
  readonly value: number
}

type Read = (figures: PoolFigures) => number

const gauge = (name: string, help: string, read: Read): Metric => ofPool(name, 'gauge', help, read)
const counter = (name: string, help: string, read: Read): Metric => ofPool(`${name}_total`, 'counter', help, read)

function ofPool(name: string, type: Metric['type'], help: string, read: Read): Metric {
  return {
    name: `cuda_mempool_${name}`,
    type,
    help,
    values: figures => [{ labels: labelsOf(figures), value: read(figures) }],
  }
}

function ofTag(
  name: string,
  type: Metric['type'],
  help: string,
  read: (stats: NonNullable<PoolFigures['tags']>[string]) => number,
): Metric {
  const values = (figures: PoolFigures) =>
    Object.entries(figures.tags ?? {}).map(([tag, stats]) => ({
      labels: { ...labelsOf(figures), tag },
      value: read(stats),
    }))
  return { name: `cuda_mempool_tag_${name}`, type, help, values }
}

function labelsOf({ name, device, kind }: PoolFigures): Record<string, string> {
  return { pool: name, device: String(device), kind }
}

export const METRICS: readonly Metric[] = [
  gauge('live_bytes', 'Bytes handed out, as rounded by the pool.', ({ stats }) => stats.liveBytes),
  gauge('peak_live_bytes', 'Most bytes handed out at once.', ({ stats }) => stats.peakLiveBytes),
  gauge('requested_bytes', 'Bytes handed out, as requested.', ({ stats }) => stats.requestedBytes),
  gauge('reserved_bytes', 'Bytes obtained from the device.', ({ stats }) => stats.reservedBytes),
  gauge('peak_reserved_bytes', 'Most bytes obtained at once.', ({ stats }) => stats.peakReservedBytes),
  gauge('cached_bytes', 'Bytes freed and kept as whole blocks.', ({ stats }) => stats.cachedBytes),
  gauge('pending_bytes', 'Bytes freed whose work may still run.', ({ stats }) => stats.pendingBytes),
  gauge('largest_free_bytes', 'A block of at least this size is free.', ({ stats }) => stats.largestFreeBytes),
  gauge('limit_bytes', 'Most bytes that the pool may obtain.', ({ stats }) => stats.maxPoolBytes),
  gauge('live_buffers', 'Buffers handed out and not freed.', ({ stats }) => stats.liveBuffers),
  counter('allocations', 'Buffers handed out so far.', ({ stats }) => stats.allocations),
  counter('frees', 'Buffers freed so far.', ({ stats }) => stats.frees),
  counter('cache_misses', 'Allocations that no cache could serve.', ({ stats }) => stats.cacheMisses),
  counter('growths', 'Requests that needed new memory.', ({ stats }) => stats.growths),
  counter('inserted_waits', 'Waits of streams for other streams.', ({ stats }) => stats.insertedWaits),
  counter('out_of_memory', 'Requests refused for want of memory.', ({ outOfMemory }) => outOfMemory),
  ofTag('requested_bytes', 'gauge', 'Requested bytes of live buffers, by tag.', stats => stats.requestedBytes),
  ofTag('peak_requested_bytes', 'gauge', 'Most requested bytes at once, by tag.', stats => stats.peakRequestedBytes),
  ofTag('limit_bytes', 'gauge', 'The limit of a tag.', stats => stats.maxPoolBytes),
  ofTag('live_buffers', 'gauge', 'Live buffers, by tag.', stats => stats.liveBuffers),
  ofTag('allocations_total', 'counter', 'Buffers handed out so far, by tag.', stats => stats.allocations),
]
