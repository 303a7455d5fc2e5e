// The metrics of pools for Prometheus: their names, and how each is read from the figures of the pools.

import { MissingFileError } from '../core/base/errors.js'
import { packageVersion } from '../core/base/package-files.js'
import type { PoolFigures } from './watched-pools.js'

/** A metric with one value for each pool, for each tag of a pool, or for the process. */
export interface Metric {
  readonly name: string
  readonly type: 'gauge' | 'counter'
  readonly help: string
  values(pools: readonly PoolFigures[]): readonly Sample[]
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
    values: pools => pools.map(figures => ({ labels: labelsOf(figures), value: read(figures) })),
  }
}

function ofTag(
  name: string,
  type: Metric['type'],
  help: string,
  read: (stats: NonNullable<PoolFigures['tags']>[string]) => number,
): Metric {
  const values = (pools: readonly PoolFigures[]) =>
    pools.flatMap(figures =>
      Object.entries(figures.tags ?? {}).map(([tag, stats]) => ({
        labels: { ...labelsOf(figures), tag },
        value: read(stats),
      })),
    )
  return { name: `cuda_mempool_tag_${name}`, type, help, values }
}

function labelsOf({ name, device, kind }: PoolFigures): Record<string, string> {
  return { pool: name, device: String(device), kind }
}

/** Queries count the processes of a version by it. So it is there without pools, too. */
const INFO: Metric = {
  name: 'cuda_mempool_info',
  type: 'gauge',
  help: 'Always 1; the label is the version of cuda-mempool.',
  values: () => [{ labels: { version: versionLabel() }, value: 1 }],
}

let version: string | null = null

function versionLabel(): string {
  try {
    version ??= packageVersion()
  } catch (error) {
    if (!(error instanceof MissingFileError)) throw error
    version = 'unknown' // a bundle of the program has the code only
  }
  return version
}

export const METRICS: readonly Metric[] = [
  INFO,
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
