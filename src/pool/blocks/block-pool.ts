// A pool of blocks of one size, made in advance. The stream that freed a block may have it again at once; other
// streams may once the host has seen its last use complete. Free blocks: block-rings.ts.
//
// A call that is cut short leaves the pool consistent, and hands out no block.

import { assert } from '../../base/assert.js'
import { type ByteSize, readSizes } from '../../base/byte-size.js'
import { checkByteCount, describe, formatBytes, GiB } from '../../base/bytes.js'
import type { OutOfMemoryError } from '../../base/errors.js'
import { checkOptionNames } from '../../base/option-names.js'
import { type Context, unreachable } from '../../driver/context.js'
import { UNIT_BYTES } from '../../heap/size-classes.js'
import { type Clocks, MOST_STREAMS } from '../../order/clocks.js'
import { checkIsStream, type Stream } from '../../order/stream.js'
import { type AccessLocation, changePlainAccess, checkUser, type PoolAccess, peerOf } from '../access.js'
import { MOST_ALIGNMENT_BYTES } from '../backing/backing.js'
import { DeviceBuffer as ImportedDeviceBuffer } from '../buffer.js'
import { checkAlignment } from '../caching/alignment.js'
import { Deferred } from '../caching/central/deferred.js'
import { choice } from '../caching/options.js'
import { ClosablePool, type CloseReport } from '../closable-pool.js'
import { noRoomToBegin, shortageOf } from '../out-of-memory.js'
import type { PoolStats } from '../pool.js'
import { BlockRings, Tag } from './block-rings.js'
import { type FixedBlock, type FixedBlockOwner, type Ring, State } from './fixed-block.js'
import { Slabs } from './slabs.js'

// A constant of this module costs less at each use than an imported binding.
const DeviceBuffer = ImportedDeviceBuffer
type DeviceBuffer = ImportedDeviceBuffer

const MOST_BLOCKS = 2 ** 26
const MOST_BLOCK_BYTES = 256 * GiB

/** Options of `createBlockPool`. */
export interface BlockOptions {
  /** size of a block, rounded up to a multiple of 256 */
  readonly blockBytes: ByteSize
  /** blocks made at once, when the pool is made and whenever it grows */
  readonly count: number
  /** number of blocks that the pool may grow to (`count`) */
  readonly maxCount?: number
  /** true: the pool can be used in several threads; see `pool.share()` (false) */
  readonly shared?: boolean
}

/** Buffers of one size, out of slabs. */
export class BlockPool extends ClosablePool implements FixedBlockOwner {
  /** size of each block, a multiple of 256 */
  readonly blockBytes: number
  /** most blocks that the pool may come to have */
  readonly maxCount: number
  /** alignment of every block in bytes, and so the largest that a request may have */
  readonly alignment: number
  private readonly slabCount: number
  private readonly slabs: Slabs
  private readonly blocks: BlockRings
  /** the ring of the last slow allocation: its stream was checked, and only needs to be open */
  private ring: Ring
  private readonly deferred: Deferred
  /** by stream slot: the latest stamp that a deferred block waits for */
  private readonly awaited = new Float64Array(MOST_STREAMS)
  /** the stamps of frees less one */
  private readonly marked: Float64Array
  private misses = 0
  private growths = 0
  private peakReservedBytes = 0
  protected readonly staleReason = 'the buffer was already freed; keep no reference to it after free()'

  /** Made by the device: `device.createBlockPool(options)`. */
  constructor(clocks: Clocks, defaultStream: Stream, options: BlockOptions) {
    super(clocks, defaultStream)
    const { blockBytes, count, maxCount } = parseBlockOptions(options)
    this.blockBytes = blockBytes
    this.maxCount = maxCount
    this.slabCount = count
    this.alignment = alignmentOf(blockBytes)
    this.blocks = new BlockRings(this)
    this.ring = this.blocks.ringOf(0)
    this.slabs = new Slabs(this.context, blockBytes, this.alignment)
    this.deferred = new Deferred({ clocks, seen: clocks.completed }, false)
    this.marked = clocks.marked
    if (!this.addSlab(count)) throw noRoomToBegin('createBlockPool', count * blockBytes, this.context)
  }

  /** A buffer of `bytes` in a block. A request larger than a block throws OutOfMemoryError. */
  allocate(bytes: number, stream: Stream = this.defaultStream, alignment?: number): DeviceBuffer {
    const buffer = this.take(bytes, stream, alignment)
    if (buffer === null) throw this.outOfMemory(bytes)
    return buffer
  }

  tryAllocate(bytes: number, stream: Stream = this.defaultStream, alignment?: number): DeviceBuffer | null {
    return this.take(bytes, stream, alignment)
  }

  private take(bytes: number, stream: Stream, alignment: number | undefined): DeviceBuffer | null {
    const { ring, blockBytes } = this
    // V8 knows the hidden class of `ring.stream`, and not that of the argument.
    const isOpen = ring.stream.slot >= 0 && (ring.stream.trusted !== undefined || ring.stream.isOpen)
    if (stream === ring.stream && isOpen && alignment === undefined) {
      // This holds for whole numbers from 1 to 2^31 - 1 only.
      if (typeof bytes === 'number' && (bytes | 0) === bytes && bytes > 0 && bytes <= blockBytes) {
        ring.dropTaken()
        const block = ring.newest
        if (block.tag < Tag.spent) return this.handOut(block, bytes, stream)
      }
    }
    return this.takeSlowly(bytes, stream, alignment)
  }

  /**
   * `block` is free and has a generation left. It is taken last, since a call can be cut short where a function
   * begins.
   */
  private handOut(block: FixedBlock, bytes: number, stream: Stream): DeviceBuffer {
    // Most blocks go to the same stream again, without a wrapper.
    if (block.stream !== stream) block.stream = stream
    if (block.wrapper !== null) block.wrapper = null
    const tag = (block.tag + (Tag.generation + State.live)) | 0
    const buffer = new DeviceBuffer(block, tag)
    this.blocks.take(block, tag, this.blockBytes - bytes)
    return buffer
  }

  /** @internal */
  release(buffer: DeviceBuffer, stream?: Stream): void {
    this.releaseBlock(buffer.allocation as FixedBlock, buffer.tag, stream)
  }

  /**
   * Takes back the block of a buffer that has `given` as its tag.
   * @internal
   */
  releaseBlock(block: FixedBlock, given: number, stream?: Stream): void {
    const { slot } = block.stream
    // A block that other streams use has another tag than its buffer.
    if (stream !== undefined || slot < 0 || block.tag !== given) this.releaseSlowly(block, given, stream)
    else this.blocks.put(block, this.marked[slot] + 1)
  }

  /**
   * Blocks that are not handed out. Some may serve one stream only, until the host sees its work on them complete.
   */
  get available(): number {
    return this.blocks.total - this.blocks.live
  }

  /** Blocks of the pool, handed out or not. */
  get count(): number {
    return this.blocks.total
  }

  /** Notices completed frees without waiting. Returns the number of blocks that now wait for no work. */
  processDeferred(): number {
    this.checkOpen('processDeferred')
    return this.settle()
  }

  stats(): PoolStats {
    const { blocks, blockBytes } = this
    return {
      liveBytes: blocks.live * blockBytes,
      peakLiveBytes: blocks.peakLive * blockBytes,
      requestedBytes: this.requestedBytes,
      reservedBytes: this.slabs.reservedBytes,
      peakReservedBytes: Math.max(this.peakReservedBytes, this.slabs.reservedBytes),
      cachedBytes: 0,
      pendingBytes: (blocks.total - blocks.live - blocks.settled) * blockBytes,
      largestFreeBytes: blocks.live < blocks.total ? blockBytes : 0,
      limitBytes: this.maxCount * blockBytes,
      liveBuffers: blocks.live,
      allocations: blocks.allocations,
      frees: blocks.frees,
      cacheMisses: this.misses,
      insertedWaits: 0,
      growths: this.growths,
    }
  }

  /** Asserts that blocks, slabs and counters agree; walks all blocks. */
  check(): void {
    this.checkOpen('check')
    this.blocks.check()
    assert(this.blocks.total === this.slabs.addresses.length, 'every block has an address')
    assert(
      this.slabs.addresses.every(address => address % this.alignment === 0),
      'blocks are aligned',
    )
  }

  close(): CloseReport {
    if (!this.givenBack) this.finishWork()
    const report = { lostBuffers: this.blocks.live, lostBytes: this.requestedBytes }
    this.acceptedClocks = null
    this.blocks.clear()
    if (!this.givenBack) {
      this.context.giveBack(() => this.slabs.close())
      this.givenBack = true
    }
    return report
  }

  /** For `close`: all waits come before the first change, because a device that captures refuses them. */
  private finishWork(): void {
    this.clocks.finishWork()
    this.deferred.finishPeers()
    this.context.finishPeers()
  }

  /** @internal */
  addressOfBlock(record: number): number {
    return this.slabs.addresses[record]
  }

  /** @internal */
  announceUse(block: FixedBlock, stream: Stream): void {
    if (!stream.context.sharesAddresses(this.context)) {
      throw unreachable('recordUse: the stream', stream.context, this.context)
    }
    this.blocks.share(block)
    this.deferred.announce(block.record, stream, Infinity)
  }

  /** @internal */
  reachableFrom(context: Context): boolean {
    return context.hasPeerAccess(this.context)
  }

  /** @internal */
  override changeAccess(location: AccessLocation, access: PoolAccess): void {
    this.checkOpen('setAccess')
    const peer = peerOf(this.context, location, access)
    if (peer !== null) changePlainAccess(this.context, peer, access)
  }

  /** An allocation that is aligned or large, or that finds no free block. */
  private takeSlowly(bytes: number, stream: Stream, alignment: number | undefined): DeviceBuffer | null {
    checkByteCount(bytes, 'bytes')
    if (alignment !== undefined) checkAlignment(alignment, this.alignment)
    this.checkStream('allocate', stream)
    if (bytes > this.blockBytes) return null
    const ring = this.follow(stream)
    return this.blocks.offer(ring) || this.offerAfterMiss(ring) ? this.handOut(ring.newest, bytes, stream) : null
  }

  /** The ring of the next allocations for `stream`. */
  private follow(stream: Stream): Ring {
    this.ring = this.blocks.ringOf(stream.slot)
    this.ring.stream = stream
    return this.ring
  }

  /** A free on a named or closed stream, or of a block that other streams use. */
  private releaseSlowly(block: FixedBlock, given: number, stream: Stream = block.stream): void {
    if (!block.isLive(block.record, given)) this.refuseStale('free')
    checkIsStream('free', stream)
    if (stream.clocks !== this.clocks) {
      checkUser('free', stream, this)
      this.announceUse(block, stream)
      stream = block.stream
    }
    stream.checkUncaptured('free')
    const slot = stream.slot < 0 ? stream.lastSlot : stream.slot
    const stamp = stream.slot < 0 ? stream.lastStamp : this.marked[slot] + 1
    if (block.isShared) this.defer(block, slot, stamp, stream)
    else if (this.clocks.completed[slot] >= stamp) this.blocks.putSettled(block)
    else this.blocks.putInto(this.blocks.ringOf(slot), block, stamp)
  }

  /**
   * The block waits for the free and its uses, and then serves any stream. So blocks in a ring stay in the order of
   * their stamps.
   */
  private defer(block: FixedBlock, slot: number, stamp: number, stream: Stream): void {
    this.deferred.announce(block.record, stream, Infinity)
    this.blocks.defer(block)
    this.addDeferred(block, slot, stamp)
  }

  private addDeferred({ record }: FixedBlock, slot: number, stamp: number): void {
    this.deferred.add(record, slot, stamp, this.blockBytes, (earlier, until) => {
      this.awaited[earlier] = Math.max(this.awaited[earlier], until)
    })
  }

  /**
   * After calls that freed or settled deferred blocks were cut short: such blocks wait for all announced uses again.
   */
  private addLeft(): void {
    for (const block of this.blocks.deferredBlocks()) {
      if (!this.deferred.has(block.record)) this.addDeferred(block, ...block.stream.covering)
    }
  }

  /** Finds a block in completed work, in a further slab, or by waiting for pending work. */
  private offerAfterMiss(ring: Ring): boolean {
    const { blocks } = this
    const isFound =
      (this.settle() > 0 && blocks.offer(ring)) ||
      (this.grow() && blocks.offer(ring)) ||
      (this.waitForPending() && blocks.offer(ring))
    if (isFound) this.misses++
    return isFound
  }

  /** Asks how far the streams have come. Returns the number of blocks that now wait for no work. */
  private settle(): number {
    const { clocks, blocks } = this
    if (blocks.deferred !== this.deferred.count) this.addLeft()
    let settled = 0
    for (let slot = 0; slot < clocks.slotLimit; slot++) {
      const stamp = this.latestStamp(slot)
      if (stamp === 0) continue
      if (stamp > clocks.marked[slot] && clocks.streams[slot] !== null) clocks.mark(slot)
      if (stamp > clocks.completed[slot]) clocks.poll(slot)
      settled += blocks.settle(slot, clocks.completed[slot])
    }
    this.deferred.pollPeers(false)
    for (const { record } of this.deferred.takeSettled()) {
      blocks.putDeferred(record)
      settled++
    }
    return settled
  }

  /** Waits on the host for all work that free blocks depend on; false when no block became free by that. */
  private waitForPending(): boolean {
    for (let slot = 0; slot < this.clocks.slotLimit; slot++) this.clocks.waitFor(slot, this.latestStamp(slot))
    this.deferred.pollPeers(true)
    return this.settle() > 0
  }

  /** The latest stamp of a stream slot that a free block waits for; 0 for none. */
  private latestStamp(slot: number): number {
    return Math.max(this.awaited[slot], slot < this.blocks.slotLimit ? this.blocks.newestStamp(slot) : 0)
  }

  private grow(): boolean {
    const count = Math.min(this.slabCount, this.maxCount - this.blocks.total)
    if (count === 0) return false
    if (!this.addSlab(count)) return false
    this.growths++
    return true
  }

  private addSlab(count: number): boolean {
    if (!this.slabs.add(count)) return false
    this.blocks.total = this.slabs.addresses.length
    this.peakReservedBytes = this.slabs.reservedBytes
    return true
  }

  private get requestedBytes(): number {
    return this.blocks.live * this.blockBytes - this.blocks.slackBytes
  }

  private outOfMemory(bytes: number): OutOfMemoryError {
    return noBlock(bytes, this, this.stats())
  }
}

/** Why there is no block for `bytes`. */
export function noBlock(
  bytes: number,
  pool: Pick<BlockPool, 'context' | 'blockBytes' | 'count' | 'maxCount'>,
  stats: PoolStats,
): OutOfMemoryError {
  const { freeBytes } = pool.context.activate().cuMemGetInfo()
  const { blockBytes, count, maxCount } = pool
  const all =
    maxCount === 1 ? 'the only block is handed out: free it' : `all ${maxCount} blocks are handed out: free some`
  const obstacle =
    bytes > blockBytes
      ? `a block has ${formatBytes(blockBytes)}, which is ${formatBytes(bytes - blockBytes)} less: make blocks larger`
      : count < maxCount
        ? 'the device itself is full: free memory, here or in other programs'
        : `${all}, raise maxCount`
  const remedy = `${obstacle}, or fall back: withFallback(pool, device.createPlainPool())`
  return shortageOf(bytes, stats, freeBytes, remedy)
}

/** The largest power of two that divides the size, up to the largest alignment. */
export function alignmentOf(blockBytes: number): number {
  let alignment = UNIT_BYTES
  while (alignment < MOST_ALIGNMENT_BYTES && blockBytes % (2 * alignment) === 0) alignment *= 2
  return alignment
}

/** Fills in the defaults; throws TypeError or RangeError naming the option. */
export function parseBlockOptions(options: BlockOptions): Required<BlockOptions> & { readonly blockBytes: number } {
  checkOptionNames('createBlockPool', options, ['blockBytes', 'count', 'maxCount', 'shared'])
  const shared = choice(options.shared ?? false, 'shared', [true, false])
  const { blockBytes, count, maxCount = count } = readSizes(options, 'blockBytes')
  checkByteCount(blockBytes, 'blockBytes')
  if (blockBytes > MOST_BLOCK_BYTES) {
    throw new RangeError(`blockBytes must be at most ${formatBytes(MOST_BLOCK_BYTES)}, not ${formatBytes(blockBytes)}`)
  }
  for (const [name, value] of [
    ['count', count],
    ['maxCount', maxCount],
  ] as const) {
    if (Number.isInteger(value) && value >= 1 && value <= MOST_BLOCKS) continue
    throw new RangeError(`${name} must be a whole number of blocks from 1 to ${MOST_BLOCKS}, not ${describe(value)}`)
  }
  if (maxCount < count) throw new RangeError(`maxCount (${maxCount}) is below count (${count}); raise it`)
  return { blockBytes: Math.ceil(blockBytes / UNIT_BYTES) * UNIT_BYTES, count, maxCount, shared }
}
