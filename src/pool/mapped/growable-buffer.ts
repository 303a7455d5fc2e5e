import { checkByteCount, formatBytes } from '../../base/bytes.js'
import { PoolError } from '../../base/errors.js'
import { checkOptionNames } from '../../base/option-names.js'
import type { Clocks } from '../../order/clocks.js'
import { checkStreamOf, type Stream } from '../../order/stream.js'
import { isOutOfMemory } from '../backing/backing.js'
import { GrowableRange } from '../backing/growable-range.js'
import { virtualMemoryObstacle } from '../backing/virtual-memory.js'
import { checkLength, GrowableAllocation } from './growable-allocation.js'
import { MappedBuffer } from './mapped-buffer.js'

/** How a growable buffer begins. */
export interface GrowableOptions {
  /** its length at first; 0 takes no memory yet */
  readonly bytes: number
  /** addresses to reserve, which cost nothing and bound its growth; rounded up to the granularity (the device's memory) */
  readonly capacityBytes?: number
  /** the stream that its copies run in (the device's default stream) */
  readonly stream?: Stream
}

const KEYS = ['bytes', 'capacityBytes', 'stream']

/**
 * A buffer that grows where it is: addresses are reserved once, and memory is mapped behind them as it grows, so that
 * address and contents stay. It goes wherever a DeviceBuffer does. Made by the device:
 * `device.createGrowableBuffer({ bytes })`.
 */
export class GrowableBuffer extends MappedBuffer {
  /** Checks options, reserves, and maps the first bytes; nothing stays behind when that fails. */
  static create(clocks: Clocks, defaultStream: Stream, options: GrowableOptions): GrowableBuffer {
    const { context } = clocks
    const { bytes, capacityBytes, stream } = completeOptions(options, clocks, defaultStream)
    const obstacle = virtualMemoryObstacle(context)
    if (obstacle !== null) {
      throw new PoolError(
        `createGrowableBuffer needs virtual memory management: ${obstacle}; use pool.allocate with the size it will need`,
      )
    }
    const granuleBytes = context.activate().cuMemGetAllocationGranularity(context.device)
    const reservedBytes = Math.ceil(capacityBytes / granuleBytes) * granuleBytes
    const allocation = new GrowableAllocation(clocks, stream, reserve(context, granuleBytes, reservedBytes))
    const buffer = new GrowableBuffer(allocation)
    try {
      buffer.grow(bytes)
    } catch (error) {
      allocation.discard()
      throw error
    }
    return buffer
  }

  /** The most it can grow to. */
  get capacityBytes(): number {
    return this.allocation.range.capacityBytes
  }

  /**
   * Makes it `bytes` long in all. What is new holds anything, and after a `shrink` work submitted before that may still
   * write there. Throws RangeError beyond `capacityBytes` and OutOfMemoryError when the device is full; then, and when
   * the driver refuses otherwise, everything is as before.
   */
  grow(bytes: number): void {
    this.allocation.grow(bytes)
  }

  /**
   * Makes it `bytes` long in all, in stream order: work submitted before this call may still use what is cut off. The
   * memory goes back to the device when that work has completed; Node need not wait, `settled` and `settleSync` do. Memory
   * has pieces of a quarter of the length, 64 MiB at most: the one that the end lies in stays. Throws PoolError below what
   * a typed view covers.
   */
  shrink(bytes: number): void {
    this.allocation.shrink(bytes)
  }
}

function completeOptions(options: GrowableOptions, clocks: Clocks, defaultStream: Stream): Required<GrowableOptions> {
  checkOptionNames('createGrowableBuffer', options, KEYS)
  const { context } = clocks
  const { bytes, stream = defaultStream } = options
  const { capacityBytes = context.activate().cuDeviceTotalMem(context.device) } = options
  checkLength(bytes, 'createGrowableBuffer: bytes')
  checkByteCount(capacityBytes, 'createGrowableBuffer: capacityBytes')
  if (bytes > capacityBytes) {
    throw new RangeError(`createGrowableBuffer: ${bytes} bytes are above capacityBytes, ${capacityBytes}; raise that`)
  }
  checkStreamOf('createGrowableBuffer', stream, clocks)
  stream.checkOpen('createGrowableBuffer')
  return { bytes, capacityBytes, stream }
}

function reserve(context: Clocks['context'], granuleBytes: number, bytes: number): GrowableRange {
  try {
    return new GrowableRange(context, granuleBytes, bytes)
  } catch (error) {
    if (!isOutOfMemory(error) && Number.isSafeInteger(bytes)) throw error
    throw new RangeError(
      `createGrowableBuffer: the driver has no ${formatBytes(bytes)} of addresses in one piece; lower capacityBytes`,
    )
  }
}
