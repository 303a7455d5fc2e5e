import { WrongTypeError } from '../../base/argument-errors.js'
import { type ByteSize, bytesOf } from '../../base/byte-size.js'
import { describe } from '../../base/bytes.js'
import { checkFlag, checkOptionNames } from '../../base/option-names.js'
import type { Clocks } from '../../order/clocks.js'
import { checkMaxWaiting } from '../../order/wait-options.js'
import type { CachingPool } from '../caching/caching-pool.js'
import type { PoolOptions } from '../caching/options.js'
import type { HostPoolOptions } from '../host/host-options.js'
import type { HostPool } from '../host/host-pool.js'
import type { HostMemory } from '../sleep/host-pieces.js'
import { checkHostMemory } from '../sleep/sleep-options.js'

/** Options of `createShelf`; defaults are in parentheses. */
export interface ShelfOptions {
  /**
   * the most device memory of the models that are awake: bytes, text such as '40GiB', or a share of the device such as
   * '80%' (all that the platform lets this process have)
   */
  readonly budgetBytes?: ByteSize
  /** a host pool of the device for the contents of models that sleep; close it last (one without a limit) */
  readonly host?: HostMemory
  /** how many uses may wait at a time; one more rejects at once with PoolError (Infinity) */
  readonly maxWaiting?: number
}

/** A model of a shelf; defaults are in parentheses. */
export interface ModelOptions<M> {
  /** the most device memory of the model, its work included. While it is awake, it has all of that */
  readonly bytes: ByteSize
  /**
   * makes the model at its first use. All its memory is of `pool`, whose limit is `bytes`. If it throws, the uses that
   * wait reject with its error, the pool is closed, and the next use calls it again
   */
  readonly load: (pool: CachingPool) => M | Promise<M>
  /** true: uses do not write to buffers of earlier uses or of `load`. Only the first sleep copies them (false) */
  readonly unchanged?: boolean
}

/** The part of a device that a shelf needs. */
export interface ShelfDevice {
  readonly clocks: Clocks
  readonly totalBytes: number
  /** bytes that this process may take of the device */
  readonly memoryLimit: number
  createPool(options: PoolOptions): CachingPool
  createHostPool(options: HostPoolOptions): HostPool
}

/** The options that were given, without a default for `host`. Throws TypeError, RangeError or PoolError. */
export function readShelfOptions(options: ShelfOptions, device: ShelfDevice) {
  checkOptionNames('createShelf', options, ['budgetBytes', 'host', 'maxWaiting'])
  const { budgetBytes = device.memoryLimit, host, maxWaiting = Infinity } = options
  checkMaxWaiting('createShelf', maxWaiting)
  if (host !== undefined) checkHostMemory('createShelf: host', host, device.clocks.context)
  return { budgetBytes: bytesOf(budgetBytes, 'createShelf: budgetBytes', device), host, maxWaiting }
}

/** The options of a model. Throws TypeError or RangeError, naming the option. */
export function readModelOptions<M>(
  options: ModelOptions<M>,
  device: ShelfDevice,
): Required<ModelOptions<M>> & { bytes: number } {
  checkOptionNames('add', options, ['bytes', 'load', 'unchanged'])
  const { bytes, load, unchanged = false } = options
  if (typeof load !== 'function') {
    throw new WrongTypeError(`add: load must be a function, not ${describe(load)}; pass pool => …`)
  }
  checkFlag('add: unchanged', unchanged)
  return { bytes: bytesOf(bytes, 'add: bytes', device), load, unchanged }
}
