// A block pool that several threads share: a shared pool (shared-pool.ts) of one size, on slabs of whole blocks.
// Threads cache the blocks that they freed. A thread without blocks gets those of other threads through the pool
// server.

import { OutOfRangeError } from '../../base/argument-errors.js'
import type { ByteSize } from '../../base/byte-size.js'
import { checkByteCount } from '../../base/bytes.js'
import { type OutOfMemoryError, PoolError } from '../../base/errors.js'
import { MAX_UNITS, UNIT_BYTES } from '../../heap/size-classes.js'
import type { Clocks } from '../../order/clocks.js'
import type { Stream } from '../../order/stream.js'
import type { SlabPlan } from '../backing/slab-source.js'
import type { DeviceBuffer } from '../buffer.js'
import { checkAlignment } from '../caching/alignment.js'
import { type PoolConfig, sourcedConfig } from '../caching/options.js'
import { classUnits } from '../caching/stream-caches.js'
import { type AllocateOptions, allocateLong, isLongForm, isOptions } from '../long-form.js'
import { noRoomToBegin } from '../out-of-memory.js'
import type { PoolStats } from '../pool.js'
import { newState } from '../shared/new-shared-pool.js'
import { SharedPool } from '../shared/shared-pool.js'
import type { SharedPoolState } from '../shared/shared-state.js'
import { type CacheLimits, cacheLimits } from '../shared/thread-cache.js'
import { type BlockOptions, checkBlocks, noBlock, parseBlockOptions, slabsOf } from './block-options.js'

/** Blocks may use half of a pool's records, since each thread keeps unused records of its own. */
const MOST_BLOCKS = 2 ** 18

/** A block pool for other threads of this process, to be cloned into any message. */
export interface SharedBlockState<D = unknown> extends SharedPoolState<D> {
  readonly kind: 'block'
  /** @internal */
  readonly slabs: SlabPlan
}

/** The state of a new shared block pool, before its pool server has begun. */
export function newSharedBlocks<D>(clocks: Clocks, options: BlockOptions, device: D): SharedBlockState<D> {
  const { blockBytes, count, maxCount } = parseBlockOptions('createSharedBlockPool', clocks.context, options)
  if (maxCount > MOST_BLOCKS) {
    throw new OutOfRangeError(`a shared block pool has at most ${MOST_BLOCKS} blocks, not ${maxCount}; use larger ones`)
  }
  const slabs = slabsOf(classUnits(blockBytes / UNIT_BYTES), count, maxCount)
  const config = sourcedConfig(maxCount * slabs.blockBytes, slabs, true)
  return { ...newState('block', clocks, config, 0, device), slabs }
}

/**
 * Blocks of one size for several threads. It differs from `BlockPool` in two points: a block is rounded up to a size
 * class, at most a sixteenth more, and `trimTo` gives idle slabs back. Blocks that other threads cache count as
 * cached.
 */
export class SharedBlockPool<D = unknown> extends SharedPool<D> {
  /** size of each block, a multiple of 256 */
  readonly blockBytes: number
  /** most blocks that the pool may come to have */
  readonly maxCount: number
  /** alignment of every block in bytes, and so the largest that a request may have */
  readonly alignment: number

  /** Made by the device: `device.createSharedBlockPool({ … })`, and in other threads `attachPool(shared)`. */
  constructor(
    clocks: Clocks,
    defaultStream: Stream,
    protected override readonly descriptor: SharedBlockState<D>,
    creator: boolean,
    meanwhile: () => void,
  ) {
    super(clocks, defaultStream, descriptor, creator, meanwhile)
    const { blockBytes, maxCount, alignment } = descriptor.slabs
    this.blockBytes = blockBytes
    this.maxCount = maxCount
    this.alignment = alignment
  }

  /** A thread may cache all blocks: other threads get them through the pool server. */
  protected override cacheLimits(config: PoolConfig): CacheLimits {
    return cacheLimits(config, 1, 1)
  }

  /**
   * Returns when the pool has its first blocks; throws OutOfMemoryError if the device has no room for them.
   * @internal
   */
  override begin(): void {
    super.begin()
    if (this.ask({ ask: 'prepare', units: this.blockBytes / UNIT_BYTES }) === true) return
    this.close()
    throw noRoomToBegin('createBlockPool', this.descriptor.slabs.count * this.blockBytes, this.context)
  }

  override share(): SharedBlockState<D> {
    return super.share() as SharedBlockState<D>
  }

  /** A buffer of `bytes` in a block, or of a whole block. A request larger than a block throws OutOfMemoryError. */
  override allocate(bytes?: ByteSize, stream?: Stream | AllocateOptions, alignment?: number): DeviceBuffer
  /** A whole block. */
  override allocate(options: AllocateOptions): DeviceBuffer
  override allocate(
    bytes: ByteSize | AllocateOptions = this.blockBytes,
    stream: Stream | AllocateOptions = this.defaultStream,
    alignment?: number,
  ): DeviceBuffer {
    return this.takeBlock(bytes, stream, alignment, false)!
  }

  /** `allocate` that returns null when memory runs out. */
  override tryAllocate(bytes?: ByteSize, stream?: Stream | AllocateOptions, alignment?: number): DeviceBuffer | null
  /** `allocate` of a whole block that returns null when memory runs out. */
  override tryAllocate(options: AllocateOptions): DeviceBuffer | null
  override tryAllocate(
    bytes: ByteSize | AllocateOptions = this.blockBytes,
    stream: Stream | AllocateOptions = this.defaultStream,
    alignment?: number,
  ): DeviceBuffer | null {
    return this.takeBlock(bytes, stream, alignment, true)
  }

  private takeBlock(
    bytes: ByteSize | AllocateOptions,
    stream: Stream | AllocateOptions,
    alignment: number | undefined,
    mayFail: boolean,
  ): DeviceBuffer | null {
    if (isOptions(bytes)) return allocateLong(this, this.blockBytes, bytes, alignment, mayFail)
    if (isLongForm(bytes, stream)) return allocateLong(this, bytes, stream, alignment, mayFail)
    checkByteCount(bytes, 'bytes')
    if (alignment !== undefined) checkAlignment(alignment, this.alignment)
    const fits = bytes <= this.blockBytes
    if (!fits) this.checkStream('allocate', stream as Stream)
    const buffer = fits ? super.tryAllocate(this.blockBytes, stream as Stream) : null
    if (buffer !== null) this.shorten(buffer, bytes)
    else if (!mayFail) throw this.outOfMemory(bytes)
    return buffer
  }

  /** The most bytes of all blocks. It is fixed: setting it throws PoolError. */
  override get maxPoolBytes(): number {
    return super.maxPoolBytes
  }

  override set maxPoolBytes(_limit: unknown) {
    throw new PoolError('maxPoolBytes: the blocks of a block pool are fixed; make it with a larger maxCount instead')
  }

  /** Throws PoolError: the pool is made with its first blocks. */
  override reserve(): never {
    throw new PoolError('reserve: a block pool is made with its blocks; raise count instead')
  }

  /** Blocks of the pool, handed out or not. */
  get count(): number {
    return super.stats().reservedBytes / this.blockBytes
  }

  /** Blocks that no thread holds, with those that the pool may grow by; walks all records. */
  get availableBlocks(): number {
    return this.closed ? 0 : this.maxCount - super.stats().liveBuffers
  }

  override stats(): PoolStats {
    const stats = super.stats()
    const free = stats.reservedBytes - stats.liveBytes
    return { ...stats, growths: stats.growths - 1, largestFreeBytes: free > 0 && !this.closed ? this.blockBytes : 0 }
  }

  override check(): void {
    super.check()
    checkBlocks(this)
  }

  protected override unitsOf(bytes: number): number {
    checkByteCount(bytes, 'bytes')
    return bytes <= this.blockBytes ? this.blockBytes / UNIT_BYTES : MAX_UNITS
  }

  protected override outOfMemory(bytes: number): OutOfMemoryError {
    return noBlock(bytes, this, this.stats())
  }
}
