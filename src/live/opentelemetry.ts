// Metrics for OpenTelemetry, by one callback for all of them: nothing is read before a collection, and each pool once
// in it. Only the shape of a meter is used, so that the package needs no OpenTelemetry itself.

import { describe } from '../base/bytes.js'
import { isDriverError } from '../base/driver-error.js'
import { checkOptionNames } from '../base/option-names.js'
import type { Context } from '../driver/context.js'
import { uuidText } from '../driver/uuid-text.js'
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

/** Values of each pool. */
const OF_POOLS = {
  usage: ['cuda_mempool.memory.usage', 'By', 'Memory handed out.'],
  reserved: ['cuda_mempool.memory.reserved', 'By', 'Memory obtained from the device.'],
  limit: ['cuda_mempool.memory.limit', 'By', 'Most memory that the pool may obtain; missing without a limit.'],
} as const
const OF_DEVICES = {
  limit: ['hw.gpu.memory.limit', 'By', 'Memory of the GPU.'],
  usage: ['hw.gpu.memory.usage', 'By', 'Memory of the GPU that is used, by all programs.'],
} as const

/**
 * Gives the figures of pools to a meter of OpenTelemetry: `cuda_mempool.memory.usage`, `.reserved`, `.limit` and
 * `cuda_mempool.allocations`, with the attributes `cuda_mempool.pool.name` and `hw.id`, the GPU's UUID. Returns a
 * function that ends it. Throws TypeError for anything but a meter and pools, and for unknown options.
 */
export function observe(meter: ObservedMeter, pools: WatchedPools, options: ObserveOptions = {}): () => void {
  if (typeof meter?.addBatchObservableCallback !== 'function')
    throw new TypeError(`observe: meter must be a Meter of @opentelemetry/api, not ${describe(meter)}`)
  checkOptionNames('observe', options, ['device'])
  const { device = false } = options
  if (typeof device !== 'boolean') throw new TypeError(`observe: device must be true or false, not ${describe(device)}`)
  const list = new PoolList('observe', pools)
  const upDown = ([name, unit, description]: readonly [string, string, string]) =>
    meter.createObservableUpDownCounter(name, { unit, description })
  const usage = upDown(OF_POOLS.usage)
  const reserved = upDown(OF_POOLS.reserved)
  const limit = upDown(OF_POOLS.limit)
  const allocations = meter.createObservableCounter('cuda_mempool.allocations', {
    unit: '{allocation}',
    description: 'Buffers handed out so far.',
  })
  const gpu = device
    ? {
        limit: upDown(OF_DEVICES.limit),
        usage: upDown(OF_DEVICES.usage),
        utilization: meter.createObservableGauge('hw.gpu.memory.utilization', {
          unit: '1',
          description: 'The part of the memory of the GPU that is used.',
        }),
      }
    : null
  const ids = new Map<Context, string>()
  const attributesOf = (context: Context): Record<string, string> => {
    const uuid = ids.has(context) ? null : answerOf(() => context.activate().cuDeviceGetUuid(context.device))
    if (uuid !== null) ids.set(context, `GPU-${uuidText(uuid)}`)
    const id = ids.get(context)
    return id === undefined ? {} : { 'hw.id': id }
  }
  const callback = (batch: ObservedBatch) => {
    const note = (instrument: ObservedInstrument, value: number, attributes: Record<string, string>) =>
      batch.observe(instrument as never, value, attributes)
    const contexts = new Map(list.open().map(({ name, pool }) => [name, pool.context]))
    for (const { name, stats } of list.figures()) {
      const attributes = { 'cuda_mempool.pool.name': name, ...attributesOf(contexts.get(name)!) }
      note(usage, stats.liveBytes, attributes)
      note(reserved, stats.reservedBytes, attributes)
      if (stats.limitBytes !== Infinity) note(limit, stats.limitBytes, attributes)
      note(allocations, stats.allocations, attributes)
    }
    if (gpu === null) return
    for (const context of new Set(contexts.values())) {
      const memory = answerOf(() => context.activate().cuMemGetInfo())
      if (memory === null) continue
      const { freeBytes, totalBytes } = memory
      const attributes = attributesOf(context)
      note(gpu.limit, totalBytes, attributes)
      note(gpu.usage, totalBytes - freeBytes, attributes)
      note(gpu.utilization, (totalBytes - freeBytes) / totalBytes, attributes)
    }
  }
  const instruments = [usage, reserved, limit, allocations, ...(gpu === null ? [] : Object.values(gpu))] as never
  meter.addBatchObservableCallback(callback, instruments)
  return () => meter.removeBatchObservableCallback(callback, instruments)
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
