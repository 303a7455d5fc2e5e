import { WrongTypeError } from '../core/base/argument-errors.js'
import { type ByteSize, bytesOf } from '../core/base/byte-size.js'
import { formatBytes } from '../core/base/bytes.js'
import { disposeOf } from '../core/base/disposal.js'
import { PoolError } from '../core/base/errors.js'
import { checkOptionNames } from '../core/base/option-names.js'
import { showAsText } from '../core/base/readable.js'
import type { Device } from '../core/device/device.js'
import { checkStreamOf, type Stream } from '../core/order/stream.js'
import { DeviceArena } from './device-arena.js'
import type { DeviceRegion } from './device-region.js'
import { controlOf, type MemoryControl } from './memory-control.js'

/** The part of a pool that stream arenas use; any pool has it. */
export interface RegionPool {
  /** the stream of allocations that name none; it tells the pool's device */
  readonly defaultStream?: Stream
  /** Memory for one arena. */
  allocate(bytes: number, stream: Stream): DeviceRegion & { free(): void }
}

/** Options of stream arenas. */
export interface StreamArenasOptions {
  /** where the memory of the arenas comes from */
  readonly pool: RegionPool
  /** of each arena, including its structure */
  readonly bytes: ByteSize
}

const KEYS: readonly string[] = ['pool', 'bytes']

/**
 * One device arena for each stream of a device, with memory from a pool. Throws TypeError or RangeError for a bad
 * device or bad options, and PoolError for a closed device or a pool of another one.
 */
export function createStreamArenas(device: Device, options: StreamArenasOptions): StreamArenas {
  return new StreamArenas(controlOf('createStreamArenas', device), options)
}

/**
 * An arena for each stream. Kernels of different streams then never contend for one counter, and each stream can
 * reset its own. Made by `createStreamArenas`.
 */
export class StreamArenas implements Disposable {
  private readonly arenas = new Map<Stream, { arena: DeviceArena; region: { free(): void } }>()
  private readonly bytes: number
  private isClosed = false

  constructor(
    private readonly control: MemoryControl,
    private readonly options: StreamArenasOptions,
  ) {
    checkOptionNames('createStreamArenas', options, KEYS)
    if (typeof options.pool?.allocate !== 'function')
      throw new WrongTypeError('createStreamArenas: pool must be a pool')
    if ((options.pool.defaultStream?.clocks ?? control.clocks) !== control.clocks) {
      throw new PoolError('createStreamArenas: the pool belongs to another device; use one of this', 'ERR_OTHER_DEVICE')
    }
    this.bytes = bytesOf(options.bytes, 'createStreamArenas: bytes', control.clocks.context)
  }

  /**
   * The arena of a stream, allocated from the pool at the first call. Throws PoolError once closed or for a stream of
   * another device, and whatever the pool's `allocate` throws.
   */
  of(stream: Stream): DeviceArena {
    if (this.isClosed) throw new PoolError('of: the arenas are closed; make them again', 'ERR_POOL_CLOSED')
    checkStreamOf('of', stream, this.control.clocks)
    const known = this.arenas.get(stream)
    if (known !== undefined) return known.arena
    const region = this.options.pool.allocate(this.bytes, stream)
    // A pool of the program may have used this object, or closed it.
    if (this.isClosed || this.arenas.has(stream)) {
      region.free()
      return this.of(stream)
    }
    try {
      const arena = new DeviceArena(this.control, region, { stream })
      this.arenas.set(stream, { arena, region })
      return arena
    } catch (error) {
      region.free()
      throw error
    }
  }

  /** Closes all arenas, and frees their memory in the order of their streams. A second close does nothing. */
  close(): void {
    this.isClosed = true
    for (const [stream, { arena, region }] of this.arenas) {
      arena.close()
      region.free()
      this.arenas.delete(stream)
    }
  }

  /** `close()` at the end of a `using` block. Where that throws, this warns. */
  [Symbol.dispose](): void {
    disposeOf(this, () => this.close())
  }

  /** One line for people, such as `StreamArenas { of 16 MiB each, for 2 streams }`; console.log shows it. */
  toString(): string {
    const state = this.isClosed ? 'closed' : `for ${this.arenas.size} ${this.arenas.size === 1 ? 'stream' : 'streams'}`
    return `StreamArenas { of ${formatBytes(this.bytes)} each, ${state} }`
  }

  /** The plain values that JSON.stringify writes. */
  toJSON(): object {
    return { device: this.control.context.ordinal, bytes: this.bytes, arenas: this.arenas.size, closed: this.isClosed }
  }
}

showAsText(StreamArenas)
