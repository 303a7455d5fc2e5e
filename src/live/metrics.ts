// The metrics for Prometheus: their names, and how each is read from the figures of pools, shelves and regions.

import { MissingFileError } from '../core/base/errors.js'
import { packageVersion } from '../core/base/package-files.js'
import type { RegionFigures } from './kept-regions.js'
import type { Figures, PoolFigures, ShelfFigures } from './watched-pools.js'

/** A metric with one value for each pool, tag of a pool, shelf, model or kept region, or for the process. */
export interface Metric {
  readonly name: string
  readonly type: 'gauge' | 'counter'
  readonly help: string
  values(figures: Figures): readonly Sample[]
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
    values: ({ pools }) => pools.map(figures => ({ labels: labelsOf(figures), value: read(figures) })),
  }
}

function ofTag(
  name: string,
  type: Metric['type'],
  help: string,
  read: (stats: NonNullable<PoolFigures['tags']>[string]) => number,
): Metric {
  const values = ({ pools }: Figures) =>
    pools.flatMap(figures =>
      Object.entries(figures.tags ?? {}).map(([tag, stats]) => ({
        labels: { ...labelsOf(figures), tag },
        value: read(stats),
      })),
    )
  return { name: `cuda_mempool_tag_${name}`, type, help, values }
}

function ofShelf(name: string, type: Metric['type'], help: string, read: (shelf: ShelfFigures) => number): Metric {
  const values = ({ shelves }: Figures) =>
    shelves.map(shelf => ({ labels: { shelf: shelf.name, device: String(shelf.device) }, value: read(shelf) }))
  return { name: `cuda_mempool_shelf_${name}`, type, help, values }
}

const MODEL_BYTES: Metric = {
  name: 'cuda_mempool_shelf_model_bytes',
  type: 'gauge',
  help: 'Device memory that a model has while it is awake; the label is its state now.',
  values: ({ shelves }) =>
    shelves.flatMap(({ name, device, models }) =>
      models.map(({ name: model, state, bytes }) => ({
        labels: { shelf: name, device: String(device), model, state },
        value: bytes,
      })),
    ),
}

/** A metric of kept regions: `merge` makes one value of those of one name, version and state. */
function ofRegion(
  name: string,
  help: string,
  read: (region: RegionFigures) => number | null,
  merge: (a: number, b: number) => number,
): Metric {
  const values = ({ regions }: Figures) => {
    const samples = new Map<string, Sample>()
    for (const region of regions) {
      const value = read(region)
      if (value === null || region.state === 'unfinished') continue
      const labels = { region: region.name, version: region.version, state: region.state, uuid: region.device ?? '' }
      const key = JSON.stringify(labels)
      const before = samples.get(key)
      samples.set(key, { labels, value: before === undefined ? value : merge(before.value, value) })
    }
    return [...samples.values()]
  }
  return { name: `cuda_mempool_region_${name}`, type: 'gauge', help, values }
}

const sum = (a: number, b: number) => a + b
const inSeconds = (ms: number | null) => (ms === null ? null : ms / 1000)

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
  ofShelf('budget_bytes', 'gauge', 'Most device memory of the models that are awake.', shelf => shelf.budgetBytes),
  ofShelf('waiting', 'gauge', 'Uses of models that wait.', shelf => shelf.waiting),
  ofShelf('switches_total', 'counter', 'How often a model was loaded or woken.', shelf => shelf.switches),
  MODEL_BYTES,
  ofRegion('bytes', 'Device memory of a kept region.', ({ bytes }) => bytes, sum),
  ofRegion('readers', 'Processes that have a kept region attached.', ({ readers }) => readers, sum),
  ofRegion(
    'last_use_timestamp_seconds',
    'The last attach or release of a kept region, in seconds since 1970.',
    ({ lastUse }) => inSeconds(lastUse),
    Math.max,
  ),
]
