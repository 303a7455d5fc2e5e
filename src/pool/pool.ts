// What every pool and every wrapper around a pool looks like: four verbs, and conveniences made of them.

import { describe } from '../base/bytes.js'
import { PoolError } from '../base/errors.js'
import type { Context } from '../driver/context.js'
import type { Stream } from '../order/stream.js'
import { type AccessChange, type AccessLocation, changeEach, type PoolAccess } from './access.js'
import { DeviceArray, type TypedArrayConstructor, type TypedArrayOf } from './array.js'
import { DeviceBuffer } from './buffer.js'

/** Counters of a pool, in constant time. Sizes in bytes; peaks since the pool was made. */
export interface PoolStats {
  /** handed out now, as rounded by the pool, and its peak */
  readonly liveBytes: number
  /** most bytes that were live at once */
  readonly peakLiveBytes: number
  /** handed out now, as asked for */
  readonly requestedBytes: number
  /** obtained from the device, and its peak */
  readonly reservedBytes: number
  /** most bytes that were reserved at once */
  readonly peakReservedBytes: number
  /** freed and kept as whole blocks for their stream */
  readonly cachedBytes: number
  /** freed, and not yet known to be free of work, as of the last settling */
  readonly pendingBytes: number
  /** a block of this size could be had without growing; a floor, exact values are in a snapshot */
  readonly largestFreeBytes: number
  /** what the pool may reserve at most; Infinity without a limit */
  readonly limitBytes: number
  /** buffers handed out and not freed */
  readonly liveBuffers: number
  /** buffers handed out so far */
  readonly allocations: number
  /** buffers freed so far */
  readonly frees: number
  /** allocations that the stream caches could not serve, and those for which memory had to be found or moved */
  readonly cacheMisses: number
  /** requests for which memory had to be found or moved */
  readonly growths: number
  /** how often the pool made a stream wait for another one, to give it that one's memory */
  readonly insertedWaits: number
}

/** The contract of every pool and wrapper. */
export abstract class Pool {
  /** of the device that the memory is on */
  abstract readonly context: Context
  /** the stream of allocations that name none */
  abstract readonly defaultStream: Stream
  /**
   * Memory of `bytes` for work submitted to `stream` after this call (the device's default stream when left out).
   * `alignment` in bytes is a power of two of at most 2 MiB; 256 always holds. Throws OutOfMemoryError, RangeError or TypeError for a
   * bad argument, PoolError for a closed pool or stream.
   */
  abstract allocate(bytes: number, stream?: Stream, alignment?: number): DeviceBuffer
  /** `allocate` that answers running out of memory with null. */
  abstract tryAllocate(bytes: number, stream?: Stream, alignment?: number): DeviceBuffer | null
  /** The counters of the pool as they are now. */
  abstract stats(): PoolStats

  /** Takes back a buffer that this pool handed out; work submitted to it before this call may still use it. See `buffer.free`. */
  free(buffer: DeviceBuffer, stream?: Stream): void {
    if (!(buffer instanceof DeviceBuffer)) {
      throw new TypeError(
        `free: buffer must be a DeviceBuffer, not ${describe(buffer)}; arrays have a free() of their own`,
      )
    }
    buffer.checkPool(this)
    this.release(buffer, stream)
  }

  /** Memory for `count` elements; throws RangeError when `count` × element size overflows. */
  allocateArray<C extends TypedArrayConstructor>(
    type: C,
    count: number,
    stream?: Stream,
  ): DeviceArray<TypedArrayOf<C>> {
    return DeviceArray.allocate(this, type, count, stream)
  }

  /** `allocate` under another name: "async" means in stream order. */
  allocateAsync(bytes: number, stream: Stream): DeviceBuffer {
    return this.allocate(bytes, stream)
  }

  /** `free` under another name. */
  deallocateAsync(buffer: DeviceBuffer, stream: Stream): void {
    this.free(buffer, stream)
  }

  /**
   * Lets another device read and write the memory of this pool, whatever it holds now and later, or no longer: one change,
   * or a list, of which each is made that can be. Nothing waits: no work of the device may use the memory any more when its
   * access is taken away. Plain allocations know all or none: giving access is `enablePeerAccess` then, and stays. Throws
   * TypeError for what is no location or access, PoolError for what cannot be; of a list it names those that failed.
   */
  setAccess(location: AccessLocation, access: PoolAccess): void
  setAccess(changes: readonly AccessChange[]): void
  setAccess(what: AccessLocation | readonly AccessChange[], access?: PoolAccess): void {
    changeEach(what, access, (location, one) => this.changeAccess(location, one))
  }

  /** For pools and wrappers: one change of `setAccess`, its arguments being what they should be. */
  changeAccess(_location: AccessLocation, _access: PoolAccess): void {
    throw new PoolError(
      'setAccess: this kind of pool cannot open its memory to others; use a caching pool made without shared, or copy with copyFrom',
    )
  }

  /** For wrappers: `free` of a buffer that the outermost pool has already recognised. */
  abstract release(buffer: DeviceBuffer, stream?: Stream): void
}
