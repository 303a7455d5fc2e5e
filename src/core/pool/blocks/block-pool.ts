// A pool of blocks of one size: a caching pool on slabs of whole blocks, whose caches keep every block that is freed.
// It has a cached path of its own, which need not find out the size class. A call that is cut short behind that path
// leaves the pool whole, because it can be mended: all blocks that are not live are alike.

import type { ByteSize } from '../../base/byte-size.js'
import { checkByteCount } from '../../base/bytes.js'
import { type OutOfMemoryError, PoolError } from '../../base/errors.js'
import { State } from '../../heap/records.js'
import { classOf, MAX_UNITS, UNIT_BYTES } from '../../heap/size-classes.js'
import type { Clocks } from '../../order/clocks.js'
import type { Stream } from '../../order/stream.js'
import type { SegmentBacking } from '../backing/segment-backing.js'
import { SlabSource } from '../backing/slab-source.js'
import { DeviceBuffer as ImportedDeviceBuffer } from '../buffer.js'
import { checkAlignment } from '../caching/alignment.js'
import { type Block, markBefore, slackOf, stampAfter, Tag } from '../caching/block.js'
import { CachingPool, type CachingPoolStats } from '../caching/caching-pool.js'
import { sourcedConfig } from '../caching/options.js'
import { type AllocateOptions, allocateLong, isLongForm, isOptions } from '../long-form.js'
import { noRoomToBegin } from '../out-of-memory.js'
import { releaseOffPath, takeOffPath } from '../slow-calls.js'
import { BlockCaches, FixedBlock } from './block-caches.js'
import { type BlockOptions, checkBlocks, noBlock, parseBlockOptions } from './block-options.js'

// A constant of this module costs less at each use than an imported binding.
const DeviceBuffer = ImportedDeviceBuffer
type DeviceBuffer = ImportedDeviceBuffer

/** One of so many blocks out of a stack becomes `last`: to store a reference costs more than to compare it. */
const TAKES_PER_LAST = 16

/** The mark of a cached block that waits for no work. */
const SETTLED = markBefore(0)

/** Buffers of one size, out of slabs. It is a caching pool with these differences. */
export class BlockPool extends CachingPool {
  /** size of each block, a multiple of 256 */
  readonly blockBytes: number
  /** most blocks that the pool may come to have */
  readonly maxCount: number
  /** alignment of every block in bytes, and so the largest that a request may have */
  readonly alignment: number
  private readonly units: number
  private readonly sizeClass: number
  private readonly slabs: SlabSource
  /** in place of a block: never cached, and in an empty stack */
  private readonly none: Block = new FixedBlock(this, 0)
  /**
   * A block that was taken lately. Freed, it stays outside its stack until it is taken again or another call needs it
   * there: most programs take again what they freed last. Like a live block, it is not counted as cached.
   */
  private last = this.none
  /** allocations that no cache served, of blocks that were free for the stream without a step of the slow path */
  private fresh = 0

  /** Made by the device: `device.createBlockPool(options)`. */
  constructor(clocks: Clocks, defaultStream: Stream, options: BlockOptions) {
    const plan = parseBlockOptions('createBlockPool', clocks.context, options)
    const { blockBytes, count, maxCount, alignment } = plan
    const slabs = new SlabSource(clocks.context, plan)
    super(clocks, defaultStream, sourcedConfig(maxCount * blockBytes, slabs, true))
    this.blockBytes = blockBytes
    this.maxCount = maxCount
    this.alignment = alignment
    this.units = blockBytes / UNIT_BYTES
    this.sizeClass = classOf(this.units)
    this.slabs = slabs
    this.none.stack = this.caches.stackAt(0, this.sizeClass)
    try {
      this.central.growAhead(this.central.memory.heapFor(this.units), count * this.units)
      if (this.count === 0) throw noRoomToBegin('createBlockPool', count * blockBytes, this.context)
    } catch (error) {
      this.central.arenas.lose()
      throw error
    }
  }

  /** @internal */
  protected override newCaches(): BlockCaches {
    return new BlockCaches(this.records, this)
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
    return this.takeBlock(bytes as number, stream as Stream, alignment, false)!
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
    return this.takeBlock(bytes as number, stream as Stream, alignment, true)
  }

  /** As `take` of the caching pool. */
  private takeBlock(
    bytes: number,
    stream: Stream,
    alignment: number | undefined,
    mayFail: boolean,
  ): DeviceBuffer | null {
    if (
      stream !== null &&
      stream.own === this.acceptedClocks &&
      typeof bytes === 'number' && // a bigint would throw V8's error
      (bytes | 0) === bytes &&
      bytes > 0 &&
      bytes <= this.blockBytes &&
      alignment === undefined
    ) {
      const { last } = this
      const slack = this.blockBytes - bytes
      const isOfLast = last.stream === stream
      if ((last.tag & Tag.stateMask) === State.cached) {
        return isOfLast ? this.handOutBlock(last, slack) : takeOffPath(this.offPath, bytes, stream, mayFail)
      }
      const stack = isOfLast ? last.stack! : this.caches.stackAt(stream.slot, this.sizeClass)
      const block = stack.top
      const { totals } = stack
      const left = totals.cached - block.units // in an empty stack less than any limit, see `StreamCaches.take`
      if (left < totals.leastCached) return takeOffPath(this.offPath, bytes, stream, mayFail)
      const buffer = this.handOutBlock(block, slack)
      stack.top = block.below!
      totals.cached = left
      if (block.stream !== stream) block.stream = stream
      if ((this.allocations & (TAKES_PER_LAST - 1)) === 0) this.last = block
      return buffer
    }
    return this.takeSlowly(bytes, stream, alignment, mayFail)
  }

  /** @internal */
  protected override handOutNext(block: Block, bytes: number, stream: Stream): DeviceBuffer {
    if (block.stream !== stream) block.stream = stream
    return this.handOutBlock(block, slackOf(block, bytes))
  }

  /** Makes a block live. A timeout cuts a call short where a function begins: so none does after the first store. */
  private handOutBlock(block: Block, slack: number): DeviceBuffer {
    const tag = ((block.tag | Tag.stateMask) + (1 + State.live)) | 0
    const buffer = new DeviceBuffer(block, tag)
    if (slack !== block.slack) {
      this.caches.slackBytes += slack - block.slack
      block.slack = slack
    }
    block.tag = tag
    this.allocations++
    return buffer
  }

  /** @internal */
  override releaseBlock(block: Block, given: number, stream?: Stream): void {
    const { tag } = block
    const { slot } = block.stream
    if (
      tag !== given ||
      tag > Tag.last ||
      slot < 0 ||
      stream !== undefined ||
      (block !== this.last && !this.caches.put(block))
    ) {
      releaseOffPath(this.offPath, block, given, stream)
      return
    }
    block.tag = (tag - (State.live - State.cached)) | 0
    block.mark = this.marked[slot]
  }

  private get isLastCached(): boolean {
    return (this.last.tag & Tag.stateMask) === State.cached
  }

  /** Puts the last block into its stack if it is cached. */
  private putLast(): void {
    if (!this.isLastCached) return
    this.caches.put(this.last)
    this.last = this.none
  }

  /** @internal */
  protected override begin(call: string): void {
    super.begin(call)
    this.putLast()
    this.last = this.none // the block may change its stream
  }

  /**
   * After a call was cut short.
   * @internal
   */
  protected override refuseCut(call: string): void {
    if (this.central.backing.watch.isTelling || !this.central.arenas.empty) super.refuseCut(call)
    this.mend()
  }

  /**
   * Makes a pool whole that has no blocks in graphs. Once all work is complete, every block that is not live is free
   * for any stream.
   */
  private mend(): void {
    this.finishWork()
    const { records, caches, central } = this
    const backing = central.backing as SegmentBacking
    this.last = this.none
    const live = caches.mend()
    for (let record = records.first; record < records.used; record++) {
      const state = records.state(record)
      if (live.has(record) || state === State.unused || state === State.absent || state === State.captured) continue
      records.setState(record, State.free)
      records.setDependency(record, 0, 0)
    }
    central.deferred.restart(live)
    central.memory.rebuild()
    backing.mend()
    this.slabs.retain(new Set(backing.segments().map(({ ptr }) => ptr)))
    this.isBusy = false
  }

  /**
   * An allocation that is aligned or large, or on a stream of another thread; and those with a bad argument.
   * @internal
   */
  protected override takeSlowly(
    bytes: number,
    stream: Stream,
    alignment: number | undefined,
    mayFail: boolean,
  ): DeviceBuffer | null {
    if (isOptions(bytes)) return allocateLong(this, this.blockBytes, bytes, alignment, mayFail)
    if (isLongForm(bytes, stream)) return allocateLong(this, bytes, stream, alignment, mayFail)
    checkByteCount(bytes, 'bytes')
    if (alignment !== undefined) checkAlignment(alignment, this.alignment)
    const isCaptured = Boolean(stream?.capture) && stream.clocks === this.acceptedClocks
    if (!isCaptured) this.checkStream('allocate', stream)
    if (bytes <= this.blockBytes) return this.answer(this.units, 1, bytes, stream, mayFail)
    if (mayFail) return null
    throw this.outOfMemory(bytes)
  }

  /** @internal */
  protected override answer(
    units: number,
    alignUnits: number,
    bytes: number,
    stream: Stream,
    mayFail: boolean,
  ): DeviceBuffer | null {
    const buffer = super.answer(units, alignUnits, bytes, stream, mayFail)
    if (buffer === null) return null
    const block = buffer.allocation as Block
    if (stream.capture === null) this.last = block
    else block.state = State.shared // so that no free caches it: it is the graph's
    return buffer
  }

  /** @internal */
  protected override takeMissed(units: number, alignUnits: number, bytes: number, stream: Stream): DeviceBuffer | null {
    const { changes } = this.central
    const buffer = super.takeMissed(units, alignUnits, bytes, stream)
    if (this.central.changes === changes) this.fresh++
    return buffer
  }

  /** @internal */
  protected override unitsOf(bytes: number): number {
    checkByteCount(bytes, 'bytes')
    return bytes <= this.blockBytes ? this.units : MAX_UNITS
  }

  /** Notices completed frees without waiting. Returns the number of blocks that now wait for no work. */
  override processDeferred(): number {
    this.putLast()
    const unsettled = this.unsettled()
    for (const { slot, mark } of unsettled) this.central.memory.await(slot, stampAfter(mark))
    const settled = super.processDeferred()
    const complete = unsettled.filter(({ slot, mark }) => mark < this.central.seen[slot])
    for (const block of complete) block.mark = SETTLED
    return settled + complete.length
  }

  /** The most bytes of all blocks. It is fixed: setting it throws PoolError. */
  override get maxPoolBytes(): number {
    return super.maxPoolBytes
  }

  override set maxPoolBytes(_limit: unknown) {
    throw new PoolError('maxPoolBytes: the blocks of a block pool are fixed; make it with a larger maxCount instead')
  }

  /** Throws PoolError: groups are made by caching pools. Their captures have blocks of this pool, too. */
  override createGraphGroup(): never {
    throw new PoolError('createGraphGroup: a block pool makes no groups; make one of a pool of createPool')
  }

  /** Throws PoolError: the pool is made with its first blocks. */
  override reserve(): never {
    throw new PoolError('reserve: a block pool is made with its blocks; raise count instead')
  }

  /** Blocks of the pool, handed out or not. */
  get count(): number {
    return this.central.backing.reservedBytes / this.blockBytes
  }

  /**
   * Blocks that are neither handed out nor kept for graphs, with those that the pool may grow by. Some may serve one
   * stream only, until the host sees its work on them complete.
   */
  get availableBlocks(): number {
    return this.closed ? 0 : this.maxCount - this.stats().liveBuffers - this.keptBlocks
  }

  private get keptBlocks(): number {
    return this.central.arenas.keptUnits / this.units
  }

  override resetPeaks(): void {
    this.putLast()
    super.resetPeaks()
  }

  override stats(): CachingPoolStats {
    this.putLast()
    const stats = super.stats()
    const { liveBytes, reservedBytes, pendingBytes, cacheMisses } = stats
    const keptBytes = this.closed ? 0 : this.keptBlocks * this.blockBytes
    return {
      ...stats,
      reservedBytes: reservedBytes + this.slabs.paddingBytes,
      peakReservedBytes: Math.max(stats.peakReservedBytes, reservedBytes + this.slabs.paddingBytes),
      cachedBytes: 0,
      pendingBytes: pendingBytes + this.unsettled().length * this.blockBytes,
      largestFreeBytes: reservedBytes > liveBytes + keptBytes && !this.closed ? this.blockBytes : 0,
      cacheMisses: cacheMisses - this.fresh,
    }
  }

  /** The cached blocks that were not settled since their free. */
  private unsettled(): Block[] {
    const { caches } = this
    const cached = Array.from({ length: caches.slotLimit }, (_, slot) => caches.entries(slot)).flat()
    return cached.filter(({ mark }) => mark !== SETTLED)
  }

  override check(): void {
    this.putLast()
    super.check()
    checkBlocks(this)
  }

  /** @internal */
  protected override outOfMemory(bytes: number): OutOfMemoryError {
    return noBlock(bytes, this, this.stats(), this.keptBlocks)
  }
}
