// Pinned host memory as a pool: a caching pool of registered array buffers, which hands out views of them.
//
// The host does not run in the order of streams: a program writes its new memory at once. So a block is handed out
// only after the host has seen every copy from and to it complete, even for the stream that used it last. Each use is
// noted with its stream. A freed block without pending uses returns to the cache at once. A block with pending uses
// is set aside until a miss or `processDeferred` finds them complete. The pool under this one is not stream-ordered.

import { type ByteSize, bytesOf, limitOf } from '../../base/byte-size.js'
import { disposeOf } from '../../base/disposal.js'
import { OutOfMemoryError, PoolError } from '../../base/errors.js'
import { showAsText } from '../../base/readable.js'
import type { Context } from '../../driver/context.js'
import { ANY_NODE } from '../../driver/host-node.js'
import { State } from '../../heap/records.js'
import type { Clocks } from '../../order/clocks.js'
import { checkStreamOf, Stream } from '../../order/stream.js'
import { type LineOptions, signalOf, type WaitOptions } from '../../order/wait-options.js'
import { allocateMany, tryAllocateMany } from '../allocate-many.js'
import { byteLengthOf, type TypedArrayConstructor, type TypedArrayOf } from '../array.js'
import { type PinnedMemory, PinnedSegments, prepareFor } from '../backing/pinned-segments.js'
import type { PoolSegment, SegmentObserver } from '../backing/segment-watch.js'
import type { DeviceBuffer } from '../buffer.js'
import { CachingPool } from '../caching/caching-pool.js'
import type { ReservingPool } from '../caching/reserving-pool.js'
import { publishAs } from '../channels.js'
import { type CloseReport, warnOfHeld } from '../closable-pool.js'
import { type AllocateOptions, allocateLong, allocateSoon, isLongForm } from '../long-form.js'
import { type PoolStats, poolJson, poolText } from '../pool.js'
import type { HostMemoryBuffer } from '../sleep/host-pieces.js'
import { checkNotRunning } from '../sleep/running-work.js'
import { GrowingRequest } from './growing-request.js'
import { HostArray } from './host-array.js'
import { HostBuffer } from './host-buffer.js'
import { HOST, type HostPoolOptions, hostConfig, parseHostPoolOptions } from './host-options.js'
import { hostOutOfMemory } from './host-out-of-memory.js'

/**
 * A pool of pinned host memory, for fast copies that run while Node goes on. Made by
 * `device.createHostPool(options)`. Memory is handed out again only when the host has seen all work on it complete.
 */
export abstract class HostPool implements Disposable, AsyncDisposable {
  /**
   * of the device whose streams copy from and to the memory
   * @internal
   */
  readonly context: Context
  /** whether a process warning tells of buffers that were held when a `using` block closed the pool */
  warnOnHeld = true
  /**
   * those of its buffers that are copies of sleeping memory, and not the program's
   * @internal
   */
  readonly sleepCopies: Set<HostMemoryBuffer> = new Set()
  /** the stream to allocate blocks on while a capture keeps the default stream idle; made at first need */
  private standIn: Stream | null = null

  protected constructor(
    /** @internal */
    readonly clocks: Clocks,
    /** blocks of host addresses */
    protected readonly blocks: ReservingPool,
    /**
     * finds the memory at an address
     * @internal
     */
    readonly memory: PinnedMemory,
  ) {
    this.context = clocks.context
    publishAs(blocks, this)
  }

  /**
   * Made by the device: `device.createHostPool(options)`.
   * @internal
   */
  static open(clocks: Clocks, defaultStream: Stream, options: HostPoolOptions): HostPool {
    const { maxPoolBytes, ...pinned } = parseHostPoolOptions('createHostPool', clocks.context, options)
    const memory = new PinnedSegments(clocks.context, false, pinned)
    const blocks = new CachingPool(clocks, defaultStream, hostConfig(maxPoolBytes, memory))
    return new OwnHostPool(clocks, blocks, memory)
  }

  /**
   * Pinned memory of `bytes` bytes, writable at once; its contents are undefined. With `stream`, work submitted to
   * that stream before the free uses the memory, as after `recordUse(stream)`. `alignment` of the host address is a
   * power of two of at most 2 MiB (256 bytes). Throws OutOfMemoryError, RangeError or TypeError for a bad argument,
   * and PoolError if the pool or stream is closed, or memory cannot be pinned.
   */
  allocate(bytes: ByteSize, stream?: Stream | AllocateOptions, alignment?: number): HostBuffer {
    const block = this.tryTake(bytes, stream, alignment)
    if (block === null) throw hostOutOfMemory(bytesOf(bytes, 'bytes', HOST), this.stats())
    return new HostBuffer(this, block)
  }

  /** Like `allocate`, but returns null when memory runs out. */
  tryAllocate(bytes: ByteSize, stream?: Stream | AllocateOptions, alignment?: number): HostBuffer | null {
    const block = this.tryTake(bytes, stream, alignment)
    return block === null ? null : new HostBuffer(this, block)
  }

  /** A buffer for each of `sizes`: all of them, or none, as `allocateMany` of the other pools. */
  allocateMany(sizes: readonly ByteSize[], stream?: Stream | AllocateOptions): HostBuffer[] {
    return allocateMany(this, { sizes, place: stream, whole: HOST })
  }

  /** Like `allocateMany`, but returns null when memory runs out. */
  tryAllocateMany(sizes: readonly ByteSize[], stream?: Stream | AllocateOptions): HostBuffer[] | null {
    return tryAllocateMany(this, { sizes, place: stream, whole: HOST })
  }

  /**
   * Memory for `count` elements of the typed array class `type`. Throws like `allocate`, and RangeError when `count`
   * × element size overflows.
   */
  allocateArray<C extends TypedArrayConstructor>(
    type: C,
    count: number,
    stream?: Stream | AllocateOptions,
  ): HostArray<TypedArrayOf<C>> {
    return new HostArray(this.allocate(byteLengthOf(type, count), stream), type, 0, count, true)
  }

  /** `allocateArray`, with 0 in all elements. */
  zeros<C extends TypedArrayConstructor>(
    type: C,
    count: number,
    stream?: Stream | AllocateOptions,
  ): HostArray<TypedArrayOf<C>> {
    byteLengthOf(type, count, 'zeros')
    const array = this.allocateArray(type, count, stream)
    array.bytes.fill(0)
    return array
  }

  /**
   * Resolves when there may be room for `bytes`, as `whenAvailable` of the other pools. Node goes on meanwhile. Use
   * `tryAllocate` then, and wait again if it returns null. Rejects with OutOfMemoryError for a request that never fits,
   * with PoolError once the pool is closed, and with the reason of `signal` when it is aborted.
   */
  async whenAvailable(size: ByteSize, options: LineOptions = {}): Promise<void> {
    const bytes = bytesOf(size, 'whenAvailable: bytes', HOST)
    try {
      await this.blocks.whenAvailable(bytes, options)
    } catch (error) {
      throw error instanceof OutOfMemoryError ? hostOutOfMemory(bytes, this.stats()) : error
    }
  }

  /**
   * Resolves to a buffer as soon as there is room, as `allocateSoon` of the other pools. Where the pool must grow,
   * another thread does much of the work of pinning, and Node goes on meanwhile.
   */
  async allocateSoon(bytes: ByteSize, options: AllocateOptions & LineOptions = {}): Promise<HostBuffer> {
    return await allocateSoon(new GrowingRequest(this, HOST), bytes, options)
  }

  /**
   * Pins memory until at least `bytes` are pinned in all, so that later requests find it. Another thread does much of
   * the work, and Node goes on meanwhile; in a pool that threads share, this thread waits for the pool server. Resolves
   * to the bytes added. Rejects with OutOfMemoryError if the limit or the system does not allow it. Rejects with
   * PoolError for a closed pool or memory that cannot be pinned, and with the reason of `signal` when it is aborted.
   * Nothing has changed then.
   */
  async reserveSoon(bytes: ByteSize, options: WaitOptions = {}): Promise<number> {
    const signal = signalOf('reserveSoon', options)
    this.blocks.checkOpen('reserveSoon')
    const least = bytesOf(bytes, 'reserveSoon: bytes', HOST, 0)
    signal?.throwIfAborted()
    const prepared = await prepareFor(this, least - this.stats().reservedBytes)
    return this.memory.growWith(prepared, () => {
      signal?.throwIfAborted()
      this.blocks.checkOpen('reserveSoon')
      return this.reserve(least)
    })
  }

  private reserve(bytes: number): number {
    try {
      return this.blocks.reserve(bytes)
    } catch (error) {
      if (!(error instanceof OutOfMemoryError)) throw error
      const stats = this.stats()
      throw hostOutOfMemory(bytes - stats.reservedBytes, stats)
    }
  }

  /** The NUMA node of the host that the memory lies on; null if it may lie on any. */
  get numaNode(): number | null {
    const { numaNode } = this.memory
    return numaNode === ANY_NODE ? null : numaNode
  }

  /**
   * The most memory that the pool may pin, in bytes; Infinity without a limit. It can be set at any time, like the
   * option of `createHostPool`; below the pinned bytes, idle memory is unpinned at once. Throws like `createHostPool`
   * for a bad value, and PoolError for a closed pool.
   */
  get maxPoolBytes(): number {
    return this.blocks.maxPoolBytes
  }

  /** Changes the limit. */
  set maxPoolBytes(limit: ByteSize) {
    this.blocks.checkOpen('maxPoolBytes')
    this.blocks.maxPoolBytes = limitOf(limit, 'maxPoolBytes', HOST)
  }

  /** Collects freed buffers whose noted uses have completed, without waiting; returns how many. */
  processDeferred(): number {
    return this.blocks.processDeferred()
  }

  /**
   * Unpins idle memory until at most `bytes` are pinned, without waiting for pending work. Returns the bytes
   * unpinned.
   */
  trimTo(bytes: ByteSize): number {
    return this.blocks.trimTo(bytesOf(bytes, 'trimTo: bytes', HOST, 0))
  }

  /** The pinned memory, by ranges of host addresses. Throws PoolError for a closed pool. */
  segments(): PoolSegment[] {
    return this.blocks.segments()
  }

  /**
   * Tells `observer` of the segments that the pool has, of each new one before a buffer lies on it, and of each that is
   * unpinned before it is. Call the result to end this. Throws PoolError for a closed pool, one that threads share, and
   * one that has an observer, TypeError for an observer without its methods, and the observer's own error.
   */
  observeSegments(observer: SegmentObserver): () => void {
    return this.blocks.observeSegments(observer)
  }

  /** Counters, in constant time; `reservedBytes` is the pinned memory. */
  stats(): PoolStats {
    return this.blocks.stats()
  }

  /** Asserts that the pool's records agree with each other; walks the whole pool. */
  check(): void {
    this.blocks.check()
  }

  /** True after `close`. */
  get closed(): boolean {
    return this.blocks.closed
  }

  /**
   * Waits for pending work, unpins all memory and invalidates live buffers; returns how many buffers and bytes those
   * were. Arrays made from buffers stay readable, as ordinary memory. A second close does nothing.
   */
  close(): CloseReport {
    checkNotRunning('close', this)
    const report = this.blocks.close()
    this.standIn?.close()
    return report
  }

  /**
   * `close()` at the end of a `using` block. Where that throws, this warns by `process.emitWarning`, and closes the
   * pool once the cause is gone. It warns of buffers that were still held, too, unless `warnOnHeld` is false.
   */
  [Symbol.dispose](): void {
    disposeOf(this, () => {
      const copies = [...this.sleepCopies].filter(copy => !copy.freed)
      const copyBytes = copies.reduce((sum, { bytes }) => sum + bytes.length, 0)
      const { heldBuffers, heldBytes } = this.close()
      const held = { heldBuffers: heldBuffers - copies.length, heldBytes: heldBytes - copyBytes }
      if (this.warnOnHeld) warnOfHeld('HostPool', held, [], true)
    })
  }

  /**
   * Waits for pending work as `device.finished()` does, and then closes; Node goes on meanwhile. Resolves to the report
   * of `close`, and rejects like it, or with the reason of `signal` when it is aborted: the pool stays open then.
   */
  async drain(options: WaitOptions = {}): Promise<CloseReport> {
    await this.clocks.finishForClose(signalOf('drain', options))
    return this.close()
  }

  /** Waits for pending work as `device.finished()` does, and then closes as at the end of a `using` block. */
  async [Symbol.asyncDispose](): Promise<void> {
    await this.clocks.finishForClose()
    this[Symbol.dispose]()
  }

  /** One line for people and logs, as of the other pools; console.log shows it. */
  toString(): string {
    return poolText(this, 'HostPool', this.numaNode === null ? ' on any NUMA node' : ` on NUMA node ${this.numaNode}`)
  }

  /** The plain values that JSON.stringify writes, as of the other pools. */
  toJSON(): object {
    return { ...poolJson(this, 'HostPool'), ...(this.closed ? {} : { numaNode: this.numaNode }) }
  }

  /**
   * Throws PoolError: only a pool of `createSharedHostPool` can be shared.
   * @internal
   */
  share(): unknown {
    throw new PoolError('share: the pool is one of this thread; make it with createSharedHostPool')
  }

  /**
   * For buffers: throws PoolError, in the name of `call`, for a stream that cannot use the memory now.
   * @internal
   */
  checkCopies(call: string, stream: Stream): void {
    stream.checkOpen(call)
  }

  /**
   * For buffers: notes a copy that `call` is about to submit to `stream`.
   * @internal
   */
  noteCopy(block: DeviceBuffer, stream: Stream, call: string): void {
    this.note(block, stream, this.clocks.marked[stream.slot] + 1, call)
  }

  /**
   * For buffers: notes that work submitted to `stream` before the free uses the block.
   * @internal
   */
  noteUse(block: DeviceBuffer, stream: Stream, call: string): void {
    block.addressFor(call) // throws for a stale handle
    checkStreamOf(call, stream, this.clocks)
    this.note(block, stream, Infinity, call)
  }

  /**
   * Notes that work submitted to a stream until `stamp` of its clock uses a live block; Infinity stands for the free.
   * Throws PoolError, in the name of `call`, for a stream that the pool does not serve.
   */
  protected abstract note(block: DeviceBuffer, stream: Stream, stamp: number, call: string): void

  /** Most requests name no stream. */
  private tryTake(bytes: ByteSize, place?: Stream | AllocateOptions, alignment?: number): DeviceBuffer | null {
    if (place !== undefined || typeof bytes !== 'number') return this.tryTakeFor(bytes, place, alignment)
    return this.blocks.tryAllocate(bytes, this.anyStream(), alignment)
  }

  private tryTakeFor(bytes: ByteSize, place?: Stream | AllocateOptions, alignment?: number): DeviceBuffer | null {
    if (isLongForm(bytes, place)) {
      const tryAllocate = this.tryTake.bind(this)
      return allocateLong({ context: HOST, allocate: tryAllocate, tryAllocate }, bytes, place, alignment, true)
    }
    const stream = place as Stream | undefined
    if (stream !== undefined && !this.closed) this.checkUser(stream)
    const block = this.blocks.tryAllocate(bytes, this.anyStream(), alignment)
    if (block === null || stream === undefined) return block
    try {
      this.note(block, stream, Infinity, 'allocate')
    } catch (error) {
      block.free()
      throw error
    }
    return block
  }

  /** Refuses a stream whose work cannot use the new buffer, before anything is allocated. */
  protected checkUser(stream: Stream): void {
    checkStreamOf('allocate', stream, this.clocks)
    this.checkCopies('allocate', stream)
  }

  /** Blocks are cached by stream, but host memory belongs to no stream. */
  private anyStream(): Stream {
    const { defaultStream } = this.blocks
    if (this.closed || defaultStream.slot >= 0) return defaultStream
    this.standIn ??= Stream.create(this.clocks)
    return this.standIn
  }
}

showAsText(HostPool)

/** A host pool of one thread. */
class OwnHostPool extends HostPool {
  declare protected readonly blocks: CachingPool

  /** A captured stream can: its graph keeps the memory until it is closed. */
  override checkCopies(call: string, stream: Stream): void {
    stream.checkUsable(call)
  }

  protected override note({ record }: DeviceBuffer, stream: Stream, stamp: number): void {
    this.blocks.caches.blockOf(record).state = State.shared
    this.blocks.central.announceUse(record, stream, stamp)
  }
}
