// Metrics for OpenTelemetry, by one callback for all of them: nothing is read before a collection, and each pool once
// in it. Only the shape of a meter is used, so that the package needs no OpenTelemetry itself.

import { WrongTypeError } from '../core/base/argument-errors.js'
import { describe } from '../core/base/bytes.js'
import { checkFlag, checkOptionNames } from '../core/base/option-names.js'
import { isDriverError } from '../core/base/thrown.js'
import type { Context } from '../core/driver/context.js'
import { uuidText } from '../core/driver/uuid-text.js'
import type { PoolStats } from '../core/pool/pool.js'
import { PoolList, type WatchedPools } from './watched-pools.js'

/** An observable instrument of a meter. */
export interface ObservedInstrument {
  /** as of OpenTelemetry */
  addCallback(callback: never): void
}

/** Takes the values of one collection. */
export interface ObservedBatch {
  /** notes a value of an instrument */
  observe(instrument: never, value: number, attributes?: Record<string, string>): void
}

/** The methods of a `Meter` of `@opentelemetry/api` that `observe` calls. */
export interface ObservedMeter {
  /** makes an instrument for values that go up and down */
  createObservableUpDownCounter(name: string, options?: InstrumentOptions): ObservedInstrument
  /** makes an instrument for values that only go up */
  createObservableCounter(name: string, options?: InstrumentOptions): ObservedInstrument
  /** makes an instrument for values that cannot be added */
  createObservableGauge(name: string, options?: InstrumentOptions): ObservedInstrument
  /** calls `callback` at each collection */
  addBatchObservableCallback(callback: (batch: ObservedBatch) => void, instruments: never): void
  /** ends that */
  removeBatchObservableCallback(callback: (batch: ObservedBatch) => void, instruments: never): void
}

/** The description of an instrument. */
export interface InstrumentOptions {
  /** its meaning, in a sentence */
  description?: string
  /** its unit by UCUM */
  unit?: string
}

/** Options of `observe()`. */
export interface ObserveOptions {
  /**
   * whether to give the memory of the whole GPU, too, as `hw.gpu.memory.limit`, `.usage` and `.utilization`; default
   * false, since an exporter for GPUs usually has them
   */
  readonly device?: boolean
}

/**
 * Gives the figures of pools to a meter of OpenTelemetry: `cuda_mempool.memory.usage`, `.reserved`, `.limit` and
 * `cuda_mempool.allocations`, with the attributes `cuda_mempool.pool.name`, `hw.id`, the GPU's UUID, and `hw.type`,
 * `gpu`. Returns a function that ends it. Throws TypeError for anything but a meter and pools, and for unknown options.
 */
export function observe(meter: ObservedMeter, pools: WatchedPools, options: ObserveOptions = {}): () => void {
  if (typeof meter?.addBatchObservableCallback !== 'function')
    throw new WrongTypeError(`observe: meter must be a Meter of @opentelemetry/api, not ${describe(meter)}`)
  checkOptionNames('observe', options, ['device'])
  const { device = false } = options
  checkFlag('observe: device', device)
  const list = new PoolList('observe', pools)
  const ofPools = poolInstruments(meter)
  const ofDevices = device ? deviceInstruments(meter) : null
  const attributesOf = deviceAttributes()
  const callback = (batch: ObservedBatch) => {
    const contexts = new Map(list.open().map(({ name, pool }) => [name, pool.context]))
    for (const { name, stats } of list.poolFigures()) {
      ofPools.note(batch, stats, { 'cuda_mempool.pool.name': name, ...attributesOf(contexts.get(name)!) })
    }
    for (const context of new Set(contexts.values())) ofDevices?.note(batch, context, attributesOf(context))
  }
  const instruments = [...ofPools.all, ...(ofDevices?.all ?? [])] as never
  meter.addBatchObservableCallback(callback, instruments)
  return () => meter.removeBatchObservableCallback(callback, instruments)
}

type Attributes = Record<string, string>

function bytesInstrument(meter: ObservedMeter, name: string, description: string) {
  return meter.createObservableUpDownCounter(name, { unit: 'By', description })
}

/** The instruments for values of each pool. */
function poolInstruments(meter: ObservedMeter) {
  const usage = bytesInstrument(meter, 'cuda_mempool.memory.usage', 'Memory handed out.')
  const reserved = bytesInstrument(meter, 'cuda_mempool.memory.reserved', 'Memory obtained from the device.')
  const most = 'Most memory that the pool may obtain; missing without a limit.'
  const limit = bytesInstrument(meter, 'cuda_mempool.memory.limit', most)
  const allocations = meter.createObservableCounter('cuda_mempool.allocations', {
    unit: '{allocation}',
    description: 'Buffers handed out so far.',
  })
  const note = (batch: ObservedBatch, stats: PoolStats, attributes: Attributes) => {
    batch.observe(usage as never, stats.liveBytes, attributes)
    batch.observe(reserved as never, stats.reservedBytes, attributes)
    if (stats.maxPoolBytes !== Infinity) batch.observe(limit as never, stats.maxPoolBytes, attributes)
    batch.observe(allocations as never, stats.allocations, attributes)
  }
  return { all: [usage, reserved, limit, allocations], note }
}

/** The instruments for values of each GPU. */
function deviceInstruments(meter: ObservedMeter) {
  const limit = bytesInstrument(meter, 'hw.gpu.memory.limit', 'Memory of the GPU.')
  const usage = bytesInstrument(meter, 'hw.gpu.memory.usage', 'Memory of the GPU that is used, by all programs.')
  const utilization = meter.createObservableGauge('hw.gpu.memory.utilization', {
    unit: '1',
    description: 'The part of the memory of the GPU that is used.',
  })
  const note = (batch: ObservedBatch, context: Context, attributes: Attributes) => {
    const info = answerOf(() => context.activate().cuMemGetInfo())
    if (info === null) return
    const usedBytes = info.totalBytes - info.freeBytes
    batch.observe(limit as never, info.totalBytes, attributes)
    batch.observe(usage as never, usedBytes, attributes)
    batch.observe(utilization as never, usedBytes / info.totalBytes, attributes)
  }
  return { all: [limit, usage, utilization], note }
}

/** Gives the attributes of a device, by the semantic conventions for hardware, once the driver has told its UUID. */
function deviceAttributes(): (context: Context) => Attributes {
  const known = new Map<Context, Attributes>()
  return context => {
    const uuid = known.has(context) ? null : answerOf(() => context.activate().cuDeviceGetUuid(context.device))
    if (uuid !== null) known.set(context, { 'hw.id': `GPU-${uuidText(uuid)}`, 'hw.type': 'gpu' })
    return known.get(context) ?? {}
  }
}

/** Null if the driver does not answer, as on a lost device. Then a collection still has what the host knows. */
function answerOf<Answer>(ask: () => Answer): Answer | null {
  try {
    return ask()
  } catch (error) {
    if (isDriverError(error)) return null
    throw error
  }
}
