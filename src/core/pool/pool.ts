// The contract of all pools and wrappers: four methods, and conveniences built on them.

import { type ByteSize, bytesOf } from '../base/byte-size.js'
import { formatBytes } from '../base/bytes.js'
import { PoolError } from '../base/errors.js'
import { showAsText } from '../base/readable.js'
import { isDriverError } from '../base/thrown.js'
import type { Bytes } from '../base/typed-arrays.js'
import type { Context } from '../driver/context.js'
import type { Stream } from '../order/stream.js'
import { checkMaxWaiting, type LineOptions, signalOf } from '../order/wait-options.js'
import { type AccessChange, type AccessLocation, changeEach, type PoolAccess } from './access.js'
import { allocateMany, tryAllocateMany, uploadMany } from './allocate-many.js'
import { DeviceArray, type TypedArray, type TypedArrayConstructor, type TypedArrayOf } from './array.js'
import { DeviceBuffer, wholeBuffer } from './buffer.js'
import { type AllocateOptions, allocateSoon } from './long-form.js'
import { ofThisThread, type TransferredBuffer } from './transferred-buffer.js'
import { WaitingLine } from './waiting-line.js'

/** Counters of a pool. Sizes in bytes; peaks since the pool was made. Caching pools walk blocks to count them. */
export interface PoolStats {
  /** handed out now, as rounded by the pool */
  readonly liveBytes: number
  /** most bytes that were live at once */
  readonly peakLiveBytes: number
  /** handed out now, as requested */
  readonly requestedBytes: number
  /** obtained from the device */
  readonly reservedBytes: number
  /** most bytes that were reserved at once */
  readonly peakReservedBytes: number
  /** freed and kept as whole blocks for their stream */
  readonly cachedBytes: number
  /** freed, with work that was not known complete when blocks were last settled */
  readonly pendingBytes: number
  /** at least a block of this size is free without growing; a snapshot has exact values */
  readonly largestFreeBytes: number
  /** most bytes that the pool may reserve; Infinity without a limit */
  readonly maxPoolBytes: number
  /** buffers handed out and not freed */
  readonly liveBuffers: number
  /** buffers handed out so far */
  readonly allocations: number
  /** buffers freed so far */
  readonly frees: number
  /** allocations that no cache could serve, or that needed new memory */
  readonly cacheMisses: number
  /** requests that made the pool take, join or wait for memory */
  readonly growths: number
  /** how often the pool made a stream wait for another stream, to reuse that stream's memory */
  readonly insertedWaits: number
}

/** The contract of every pool and wrapper. */
export abstract class Pool {
  /**
   * the context of the device that the memory is on
   * @internal
   */
  abstract readonly context: Context
  /** the stream of allocations that name none */
  abstract readonly defaultStream: Stream
  /**
   * Memory of `bytes` for work submitted to `stream` after this call (the device's default stream when left out).
   * `alignment` in bytes is a power of two of at most 2 MiB; every address has at least 256. The long form takes them
   * as options, and a label: `allocate('4MiB', { stream, alignment, label: 'weights' })`. Throws OutOfMemoryError,
   * RangeError or TypeError for a bad argument, PoolError for a closed pool or stream.
   */
  abstract allocate(bytes: ByteSize, stream?: Stream | AllocateOptions, alignment?: number): DeviceBuffer
  /** `allocate` that returns null when memory runs out. */
  abstract tryAllocate(bytes: ByteSize, stream?: Stream | AllocateOptions, alignment?: number): DeviceBuffer | null
  /** The counters of the pool as they are now. */
  abstract stats(): PoolStats

  /**
   * Takes back a buffer or an array that this pool handed out; work submitted to it before this call may still use it.
   * See `buffer.free`. Throws PoolError for a view made by `subarray`.
   */
  free(buffer: DeviceBuffer | DeviceArray, stream?: Stream): void {
    const whole = buffer instanceof DeviceBuffer ? buffer : wholeBuffer('free', buffer)
    whole.ownerFor(this).release(whole, stream)
  }

  /**
   * A buffer for each of `sizes`, in their order: all of them, or none. The second argument is that of `allocate`, for
   * all. If one cannot be served, those before it are freed again, and its error is thrown. The `figures` of an
   * OutOfMemoryError are then of all sizes: `requestedBytes` is their sum, and `liveBytes` is without them. Throws
   * TypeError or RangeError for a bad size, naming it as `sizes[3]`, and for anything but a list of 1 to 1,048,576.
   */
  allocateMany(sizes: readonly ByteSize[], stream?: Stream | AllocateOptions): DeviceBuffer[] {
    return allocateMany(this, { sizes, place: stream, whole: this.context })
  }

  /** `allocateMany` that returns null when memory runs out. */
  tryAllocateMany(sizes: readonly ByteSize[], stream?: Stream | AllocateOptions): DeviceBuffer[] | null {
    return tryAllocateMany(this, { sizes, place: stream, whole: this.context })
  }

  /** Memory for `count` elements; throws RangeError when `count` × element size overflows. */
  allocateArray<C extends TypedArrayConstructor>(
    type: C,
    count: number,
    stream?: Stream | AllocateOptions,
  ): DeviceArray<TypedArrayOf<C>> {
    return DeviceArray.allocate(this, type, count, stream)
  }

  /** `allocateArray`, and a `fill` with 0 in stream order. */
  zeros<C extends TypedArrayConstructor>(
    type: C,
    count: number,
    stream?: Stream | AllocateOptions,
  ): DeviceArray<TypedArrayOf<C>> {
    return DeviceArray.zeros(this, type, count, stream)
  }

  /**
   * An array on the device with the elements of `source`: memory for them, and a `write`. `source` may be changed
   * after the call. Of a Buffer it has the bytes, as a Uint8Array. Throws like `allocate`, TypeError unless `source` is
   * a typed array, and RangeError for an empty one.
   */
  upload<T extends TypedArray>(
    source: T,
    stream?: Stream | AllocateOptions,
  ): DeviceArray<T extends Uint8Array ? Bytes : T> {
    return DeviceArray.upload(this, source, stream)
  }

  /**
   * An array on the device for each typed array of `sources`, in their order, as `upload` makes it: all of them, or
   * none. The second argument is that of `allocate`, for all. On a stream of `device.createStream()` the driver copies
   * up to 1,024 in one call, from version 12.8 on. Throws like `allocateMany`, TypeError or RangeError for a bad
   * source, naming it as `sources[3]`, and like `write`.
   */
  uploadMany<Sources extends readonly TypedArray[]>(
    sources: readonly [...Sources],
    stream?: Stream | AllocateOptions,
  ): { -readonly [Index in keyof Sources]: DeviceArray<Sources[Index] extends Uint8Array ? Bytes : Sources[Index]> } {
    return uploadMany(this, sources, stream) as never
  }

  /** `allocate` under another name: "async" means in stream order. */
  allocateAsync(bytes: ByteSize, stream: Stream): DeviceBuffer {
    return this.allocate(bytes, stream)
  }

  /** `free` under another name. */
  deallocateAsync(buffer: DeviceBuffer | DeviceArray, stream: Stream): void {
    this.free(buffer, stream)
  }

  /**
   * Gives another device access to all present and future memory of this pool, or takes it away. Takes one change or
   * a list; of a list, every possible change is made. Nothing waits: before access is taken away, the device's work
   * on the memory must be complete. Plain allocations have one access for all: `enablePeerAccess` gives it, and it
   * stays. Throws TypeError for a bad location or access, PoolError for an impossible change; for a list it names the
   * entries that failed.
   */
  setAccess(location: AccessLocation, access: PoolAccess): void
  setAccess(changes: readonly AccessChange[]): void
  setAccess(what: AccessLocation | readonly AccessChange[], access?: PoolAccess): void {
    changeEach(what, access, (location, one) => this.changeAccess(location, one))
  }

  /**
   * Resolves when there may be room for `bytes`: once enough memory was freed, and the work on it is complete. Node
   * goes on meanwhile. A wrapper waits for room within its own limit, too. Several waiters of a thread come in turn;
   * allocate at once, before the next one does. Free memory may lie in pieces that cannot be joined, or other threads
   * and programs may take it first. So use `tryAllocate`, and wait again if it returns null. Rejects with
   * OutOfMemoryError for a request that never fits, and with PoolError once the pool is closed or sleeps, or if
   * `maxWaiting` calls wait already. Rejects with the reason of `signal` when it is aborted, and with TypeError or
   * RangeError for a bad or unknown option.
   */
  async whenAvailable(bytes: ByteSize, options: LineOptions = {}): Promise<void> {
    const least = bytesOf(bytes, 'whenAvailable: bytes', this.context)
    const signal = signalOf('whenAvailable', options, ['maxWaiting'])
    const { maxWaiting = Infinity } = options
    checkMaxWaiting('whenAvailable', maxWaiting)
    this.mayServe(least) // refuses a request that never fits at once, and not in turn
    await WaitingLine.of(this).wait(() => this.mayServe(least), signal, maxWaiting)
  }

  /**
   * Resolves to a buffer as soon as there is room, by `tryAllocate` and `whenAvailable`; the options are those of
   * `allocate` and of `whenAvailable`. Rejects as both do.
   */
  async allocateSoon(bytes: ByteSize, options: AllocateOptions & LineOptions = {}): Promise<DeviceBuffer> {
    return await allocateSoon(this, bytes, options)
  }

  /**
   * For `whenAvailable`: whether there may be room. Throws OutOfMemoryError for a request that never fits, and
   * PoolError, in the name of `whenAvailable`, for a pool that cannot serve it.
   * @internal
   */
  abstract mayServe(bytes: number): boolean

  /**
   * Most milliseconds between two looks of `whenAvailable`.
   * @internal
   */
  get mostPollMs(): number | undefined {
    return undefined
  }

  /**
   * For wrappers: the pools that buffers come from, behind all wrappers.
   * @internal
   */
  get sources(): readonly Pool[] {
    return [this]
  }

  /**
   * For wrappers: a number that changes whenever buffers are dropped without a free, by `reset`, `rewind` or `close`.
   * @internal
   */
  get drops(): number {
    return 0
  }

  /**
   * For wrappers: whether buffers can be dropped while the pool stays open.
   * @internal
   */
  get mayReset(): boolean {
    return false
  }

  /**
   * For pools and wrappers: one change of `setAccess`, with checked arguments.
   * @internal
   */
  changeAccess(_location: AccessLocation, _access: PoolAccess): void {
    throw new PoolError(
      'setAccess: this kind of pool cannot open its memory to others; use one of createPool, or copy with copyFrom',
    )
  }

  /**
   * One line for people and logs; console.log shows it. For example `CachingPool { 3 MiB live in 2 buffers, 20 MiB
   * reserved of 4 GiB, 85 % idle }`. Idle memory is reserved, and not live.
   */
  toString(): string {
    return poolText(this)
  }

  /** The plain values that JSON.stringify writes: the counters of `stats`. A limit of null means no limit. */
  toJSON(): object {
    return poolJson(this)
  }

  /**
   * For wrappers: `free` of a buffer that the outermost pool has already accepted.
   * @internal
   */
  abstract release(buffer: DeviceBuffer, stream?: Stream): void

  /**
   * For wrappers: `transfer` of a buffer that the outermost pool has already accepted. Throws PoolError for a pool of
   * one thread.
   * @internal
   */
  handOver(_buffer: DeviceBuffer): TransferredBuffer {
    throw ofThisThread()
  }
}

/** The sum of each counter, and the largest of the largest free blocks. Some pools have more counters than others. */
export function sumOfStats(stats: readonly PoolStats[]): PoolStats {
  const counters = Object.keys(Object.assign({}, ...stats)) as (keyof PoolStats)[]
  const sums = counters.map(counter => [counter, stats.reduce((sum, each) => sum + (each[counter] ?? 0), 0)])
  const largestFreeBytes = Math.max(0, ...stats.map(each => each.largestFreeBytes))
  return { ...(Object.fromEntries(sums) as PoolStats), largestFreeBytes }
}

/** What text and JSON of a pool need. Host pools are no `Pool`, and have it too. */
interface Described {
  readonly context: Context
  readonly closed?: boolean
  stats(): PoolStats
}

/** The line of text for a pool. */
export function poolText(pool: Described, name = pool.constructor.name, place = ''): string {
  if (pool.closed === true) return `${name} { closed }`
  try {
    return `${name} { ${statsText(pool.stats(), place)} }`
  } catch (error) {
    // Driver pools ask the driver for their counters.
    if (isDriverError(error)) return `${name} { ${error.message} }`
    throw error
  }
}

/** The plain values of a pool. */
export function poolJson(pool: Described, name = pool.constructor.name): object {
  const what = { pool: name, device: pool.context.ordinal, closed: pool.closed === true }
  if (what.closed) return what
  const stats = pool.stats()
  return { ...what, ...stats, maxPoolBytes: stats.maxPoolBytes === Infinity ? null : stats.maxPoolBytes }
}

/** The counters that people decide by: `3 MiB live in 2 buffers, 20 MiB reserved of 4 GiB, 85 % idle`. */
function statsText({ liveBytes, liveBuffers, reservedBytes, maxPoolBytes }: PoolStats, place: string): string {
  const live = `${formatBytes(liveBytes)} live in ${liveBuffers} ${liveBuffers === 1 ? 'buffer' : 'buffers'}`
  const reserved = `${formatBytes(reservedBytes)} reserved${maxPoolBytes === Infinity ? '' : ` of ${formatBytes(maxPoolBytes)}`}`
  const idle = reservedBytes === 0 ? 0 : Math.max(0, 1 - liveBytes / reservedBytes)
  return `${live}, ${reserved}${place}, ${percent(idle)} idle`
}

/** 0 % and 100 % are exact. */
function percent(share: number): string {
  const rounded = Math.round(share * 100)
  if (rounded === 0 && share > 0) return '< 1 %'
  return rounded === 100 && share < 1 ? '> 99 %' : `${rounded} %`
}

showAsText(Pool)
