// Pinned host memory as a pool: a caching pool whose segments are registered array buffers, and whose buffers are views.
//
// The host does not run in the order of streams: whoever gets a block writes it at once. So no block is given out, not
// even for the stream that used it last, before the host has seen every copy from and to it complete. Each use is noted
// with its stream; a block without pending uses goes straight back into the cache, and one with waits aside, until a miss
// or `processDeferred` finds its uses complete. The pool itself is not stream-ordered, and nothing in it has a stream.

import { freemem } from 'node:os'
import { formatBytes } from '../../base/bytes.js'
import { OutOfMemoryError } from '../../base/errors.js'
import type { Context } from '../../driver/context.js'
import { State } from '../../heap/records.js'
import type { Clocks } from '../../order/clocks.js'
import { checkStreamOf, Stream } from '../../order/stream.js'
import { byteLengthOf, type TypedArrayConstructor, type TypedArrayOf } from '../array.js'
import { type PinnedMemory, PinnedSegments } from '../backing/pinned-segments.js'
import type { DeviceBuffer } from '../buffer.js'
import { CachingPool, type CloseReport } from '../caching/caching-pool.js'
import type { PoolStats } from '../pool.js'
import type { SharedPool } from '../shared/shared-pool.js'
import { HostArray, HostBuffer } from './host-buffer.js'
import { type HostPoolOptions, hostConfig, parseHostPoolOptions } from './host-options.js'

/** What a host pool stands on: blocks of host addresses, and the memory at these. */
interface HostParts {
  readonly blocks: CachingPool | SharedPool
  readonly memory: PinnedMemory
}

/** Pinned host memory for fast copies. */
export abstract class HostPool implements Disposable {
  /** of the device whose streams copy from and to the memory */
  readonly context: Context
  /** where the memory of a buffer is */
  readonly memory: PinnedMemory
  protected readonly blocks: CachingPool | SharedPool
  /** in whose name blocks are had while a capture keeps the default stream idle; made at the first need */
  private standIn: Stream | null = null

  protected constructor(
    private readonly clocks: Clocks,
    { blocks, memory }: HostParts,
  ) {
    this.context = clocks.context
    this.blocks = blocks
    this.memory = memory
  }

  /** Made by the device: `device.createHostPool(options)`. */
  static open(clocks: Clocks, defaultStream: Stream, options: HostPoolOptions): HostPool {
    const { limitBytes, segmentBytes, shared, mapped } = parseHostPoolOptions(options)
    const memory = new PinnedSegments(clocks.context, segmentBytes, shared, mapped)
    const blocks = new CachingPool(clocks, defaultStream, hostConfig(limitBytes, memory))
    return new OwnHostPool(clocks, { blocks, memory })
  }

  /**
   * Pinned memory of `bytes`, to be written at once; it holds whatever it held last. With `stream`, work submitted to that
   * before the free uses it: as `recordUse(stream)`. `alignment` of the address in bytes is a power of two of at most 2 MiB;
   * 256 always holds. Throws OutOfMemoryError, RangeError or TypeError for a bad argument, PoolError for a closed pool or
   * stream, or where memory cannot be pinned.
   */
  allocate(bytes: number, stream?: Stream, alignment?: number): HostBuffer {
    return new HostBuffer(this, this.take(bytes, stream, alignment))
  }

  /** `allocate` that answers running out of memory with null. */
  tryAllocate(bytes: number, stream?: Stream, alignment?: number): HostBuffer | null {
    const block = this.tryTake(bytes, stream, alignment)
    return block === null ? null : new HostBuffer(this, block)
  }

  /** Memory for `count` elements; throws RangeError when `count` × element size overflows. */
  allocateArray<C extends TypedArrayConstructor>(type: C, count: number, stream?: Stream): HostArray<TypedArrayOf<C>> {
    return new HostArray(this, this.take(byteLengthOf(type, count), stream), type)
  }

  /** Notices which uses of freed buffers have completed, without waiting; returns how many buffers those were. */
  processDeferred(): number {
    return this.blocks.processDeferred()
  }

  /** Unpins idle memory until at most `bytes` are pinned; work still pending is not waited for. Returns the bytes unpinned. */
  trimTo(bytes: number): number {
    return this.blocks.trimTo(bytes)
  }

  /** Counters, in constant time; `reservedBytes` is what is pinned. */
  stats(): PoolStats {
    return this.blocks.stats()
  }

  /** Asserts that all that is known of the memory tells one story; walks the whole pool. */
  check(): void {
    this.blocks.check()
  }

  /** True after `close`. */
  get closed(): boolean {
    return this.blocks.closed
  }

  /**
   * Waits for pending work, unpins everything and invalidates what is still held; says how much that was. Arrays made from
   * buffers stay readable: their memory is ordinary from now on. A second close does nothing.
   */
  close(): CloseReport {
    const report = this.blocks.close()
    this.standIn?.close()
    return report
  }

  /** The same as `close()`. */
  [Symbol.dispose](): void {
    this.close()
  }

  /** For buffers: a copy is about to be submitted to `stream`. */
  noteCopy(block: DeviceBuffer, stream: Stream): void {
    this.note(block, stream, this.clocks.marked[stream.slot] + 1)
  }

  /** For buffers: work submitted to `stream` before the free uses the block. */
  noteUse(block: DeviceBuffer, stream: Stream, call: string): void {
    void block.ptr // refuses a stale one
    checkStreamOf(call, stream, this.clocks)
    this.note(block, stream, Infinity)
  }

  /** Work submitted to a stream until `stamp` of its clock, Infinity for the free, uses a live block. */
  protected abstract note(block: DeviceBuffer, stream: Stream, stamp: number): void

  private take(bytes: number, stream?: Stream, alignment?: number): DeviceBuffer {
    const block = this.tryTake(bytes, stream, alignment)
    if (block === null) throw this.outOfMemory(bytes)
    return block
  }

  private tryTake(bytes: number, stream?: Stream, alignment?: number): DeviceBuffer | null {
    if (stream !== undefined && !this.closed) this.checkUser(stream)
    const block = this.blocks.tryAllocate(bytes, this.anyStream(), alignment)
    if (block === null || stream === undefined) return block
    try {
      this.note(block, stream, Infinity)
    } catch (error) {
      block.free()
      throw error
    }
    return block
  }

  /** Refuses a stream of which no work can use what is allocated, before anything is taken. */
  protected checkUser(stream: Stream): void {
    checkStreamOf('allocate', stream, this.clocks)
    stream.checkOpen('allocate')
  }

  /** The memory is of no stream, but the blocks are cached by stream. */
  private anyStream(): Stream {
    const { defaultStream } = this.blocks
    if (this.closed || defaultStream.slot >= 0) return defaultStream
    this.standIn ??= Stream.create(this.clocks)
    return this.standIn
  }

  private outOfMemory(bytes: number): OutOfMemoryError {
    const { liveBytes, pendingBytes, reservedBytes, largestFreeBytes, limitBytes } = this.stats()
    const missing = liveBytes + bytes - limitBytes
    let remedy = `raise maxPoolBytes by at least ${formatBytes(missing)} or free that much`
    if (missing <= 0) {
      remedy =
        reservedBytes + bytes > limitBytes
          ? 'there is enough in all but not in one piece: free a neighbour of a free block, or raise maxPoolBytes'
          : 'the system pins no more: free host memory, or raise its limit of locked memory'
    }
    return new OutOfMemoryError(
      `no room for ${formatBytes(bytes)} of pinned host memory: ${formatBytes(liveBytes)} live in ` +
        `${formatBytes(reservedBytes)} pinned, limit ${formatBytes(limitBytes)}; ${remedy}`,
      {
        requestedBytes: bytes,
        liveBytes,
        pendingBytes,
        reservedBytes,
        largestFreeBytes,
        limitBytes,
        deviceFreeBytes: freemem(), // of the host, which is the device that this memory is on
      },
    )
  }
}

/** One that no threads share. */
class OwnHostPool extends HostPool {
  declare protected readonly blocks: CachingPool

  protected override note({ record }: DeviceBuffer, stream: Stream, stamp: number): void {
    this.blocks.caches.blockOf(record).state = State.shared
    this.blocks.central.announceUse(record, stream, stamp)
  }
}
