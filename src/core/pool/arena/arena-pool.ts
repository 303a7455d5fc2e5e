// A bump allocator: memory for data with one lifetime, such as the scratch of one frame. A reset, or a rewind to a
// mark, gives memory back all at once, in the order of a stream. A single free makes its buffer stale, and gives no
// memory back. Placement: core/heap/bump.ts. Stream order: epochs.ts.
//
// A call that is cut short leaves the arena consistent. A buffer that it was about to hand out stays on the stack
// until a reset or rewind.

import { WrongTypeError } from '../../base/argument-errors.js'
import { assert } from '../../base/assert.js'
import type { ByteSize } from '../../base/byte-size.js'
import { describe } from '../../base/bytes.js'
import { PoolError } from '../../base/errors.js'
import { type Context, unreachable } from '../../driver/context.js'
import { UNIT_BYTES } from '../../heap/size-classes.js'
import type { Clocks } from '../../order/clocks.js'
import { checkIsStream, openStreams, type Stream } from '../../order/stream.js'
import { type AccessLocation, checkUser, type PoolAccess, peerOf } from '../access.js'
import { MOST_ALIGNMENT_BYTES } from '../backing/backing.js'
import type { PoolSegment, SegmentObserver } from '../backing/segment-watch.js'
import { DeviceBuffer as ImportedDeviceBuffer } from '../buffer.js'
import { checkAlignment } from '../caching/alignment.js'
import type { CloseReport } from '../closable-pool.js'
import { type AllocateOptions, allocateLong, isLongForm } from '../long-form.js'
import type { PoolStats } from '../pool.js'
import { checkNotRunning } from '../sleep/running-work.js'
import { alignUnitsOf, unitsOf } from './arena.js'
import { ArenaMark } from './arena-mark.js'
import { type ArenaMemory, openArenaMemory, RegionMemory } from './arena-memory.js'
import { type AnyArenaOptions, type ArenaOptions, checkArenaOptions, parseArenaOptions } from './arena-options.js'
import { BorrowedMemory } from './borrowed-memory.js'
import { Epochs, epochsIn, FIRST_EPOCH } from './epochs.js'
import { LendableArena } from './lendable-arena.js'

// A constant of this module costs less at each use than an imported binding.
const DeviceBuffer = ImportedDeviceBuffer
type DeviceBuffer = ImportedDeviceBuffer
const UNIT_SHIFT = 8
const UNIT_MASK = 255
const DEFAULT_ALIGNMENT = 256
assert(UNIT_BYTES === 1 << UNIT_SHIFT && UNIT_BYTES === DEFAULT_ALIGNMENT, 'a unit has 256 bytes')

/** Lays the state of epochs out in memory of this thread. */
const OWN_MEMORY = {
  int32: (length: number) => new Int32Array(length),
  float64: (length: number) => new Float64Array(length),
}

/** Memory that is handed out by moving a pointer, and given back all at once by `reset` or `rewind`. */
export class ArenaPool extends LendableArena {
  private readonly memory: ArenaMemory
  protected readonly epochs: Epochs
  private resets = 0
  private growths = 0
  private peakReservedBytes: number
  protected readonly staleReason = 'the buffer was already freed, or the arena reset or rewound since'

  /** Made by the device: `device.createArenaPool(options)`. */
  constructor(clocks: Clocks, defaultStream: Stream, options: AnyArenaOptions) {
    const { memory, mostBytes } = memoryFor(clocks, options)
    const region = memory instanceof RegionMemory ? memory : null
    super(clocks, defaultStream, memory.base, mostBytes, FIRST_EPOCH, region)
    this.memory = memory
    this.peakReservedBytes = memory.reservedBytes
    this.epochs = new Epochs(epochsIn(OWN_MEMORY), clocks)
    if (region !== null) this.epochs.beginBehind(region.buffer.stream)
  }

  allocate(bytes: ByteSize, stream?: Stream | AllocateOptions, alignment?: number): DeviceBuffer {
    return this.take(bytes as number, stream as Stream, alignment, true)!
  }

  tryAllocate(bytes: ByteSize, stream?: Stream | AllocateOptions, alignment?: number): DeviceBuffer | null {
    return this.take(bytes as number, stream as Stream, alignment, false)
  }

  /** Throws without room if `orThrow` is set: a check by the caller would cost each allocation. */
  private take(
    bytes: number,
    stream: Stream | undefined,
    alignment: number | undefined,
    orThrow: boolean,
  ): DeviceBuffer | null {
    const { allocation, bump } = this
    // V8 knows the hidden class of `allocation.stream`, and not that of the argument.
    if (stream === allocation.stream || (stream === undefined && allocation.stream === this.defaultStream)) {
      if (
        allocation.stream.slot >= 0 &&
        (allocation.stream.trusted !== undefined || allocation.stream.isOpen) &&
        (alignment === undefined || alignment === DEFAULT_ALIGNMENT)
      ) {
        // This holds for whole numbers from 1 to 2^31 - 1 only.
        if (typeof bytes === 'number' && (bytes | 0) === bytes && bytes > 0) {
          const units = (bytes + UNIT_MASK) >>> UNIT_SHIFT
          if (bump.fits(units)) return new DeviceBuffer(allocation, bump.push(units, bytes))
        }
      }
    }
    return this.takeSlowly(bytes, stream, alignment, orThrow)
  }

  /**
   * Makes the buffer stale. Its memory comes back with the next reset, or a rewind to below it.
   * @internal
   */
  release(buffer: DeviceBuffer, stream: Stream = buffer.stream): void {
    if (!buffer.allocation.isLive(0, buffer.tag)) this.refuseStale('free')
    checkIsStream('free', stream)
    if (stream.clocks !== this.clocks) checkUser('free', stream, this)
    if (this.scratch?.captures(stream) !== true) {
      stream.checkUncaptured('free')
      if (this.region?.buffer.freed !== true) this.use(stream) // a region that was freed has no memory to order
    }
    this.bump.free(buffer.tag)
  }

  /**
   * Gives all memory back. All buffers are stale from now on, and work submitted to `stream` after this call may use
   * their memory. The stream waits for all streams that used the arena; streams that use it again wait for this
   * point. The default is the only stream that used the arena since the last reset, or else the device's default
   * stream. The host does not wait.
   */
  reset(stream: Stream = this.resetStream): void {
    this.checkStream('reset', stream)
    this.giveBack(0, stream, true)
    this.resets++
    this.goOn(stream)
  }

  /** The present height of the stack, to rewind to. */
  mark(): ArenaMark {
    this.checkOpen('mark')
    const { last } = this.bump
    return new ArenaMark(this, this.resets, last, this.bump.spanOf(last))
  }

  /**
   * Gives back all memory allocated since the mark, as `reset` does. A mark can be used again. Throws PoolError for a
   * mark from before a reset, and for a mark above a height that the arena was rewound to since.
   */
  rewind(mark: ArenaMark, stream: Stream = this.resetStream): void {
    if (!(mark instanceof ArenaMark)) {
      throw new WrongTypeError(`rewind: mark must come from mark(), not ${describe(mark)}`)
    }
    this.checkStream('rewind', stream)
    if (mark.arena !== this) throw new PoolError('rewind: the mark belongs to another arena')
    if (mark.resets !== this.resets) throw new PoolError('rewind: the arena was reset after the mark; take a new one')
    if (mark.isRewound) {
      throw new PoolError('rewind: the arena was rewound to below the mark since; rewind to the newest mark first')
    }
    this.giveBack(mark.entry, stream, false)
    this.goOn(stream)
  }

  /**
   * Whether the arena is open, and was reset exactly so often.
   * @internal
   */
  isAtReset(times: number): boolean {
    return this.isAccepting && this.resets === times
  }

  stats(): PoolStats {
    const { bump, memory, growths } = this
    return {
      liveBytes: bump.liveUnits * UNIT_BYTES,
      peakLiveBytes: bump.peakLiveUnits * UNIT_BYTES,
      requestedBytes: bump.requestedBytes,
      reservedBytes: memory.reservedBytes,
      peakReservedBytes: Math.max(this.peakReservedBytes, memory.reservedBytes),
      cachedBytes: 0,
      pendingBytes: 0,
      largestFreeBytes: this.isAccepting ? (this.committedUnit - bump.top) * UNIT_BYTES : 0,
      maxPoolBytes: this.maxPoolBytes,
      liveBuffers: bump.liveBlocks,
      allocations: bump.allocations,
      frees: bump.allocations - bump.liveBlocks,
      cacheMisses: growths,
      insertedWaits: this.epochs.insertedWaits,
      growths,
    }
  }

  /** Asserts that the stack and the memory under it agree; walks every allocation since the last reset. */
  check(): void {
    this.checkOpen('check')
    this.bump.check()
    assert(this.bump.limit <= this.committedUnit, 'the stack uses no more memory than there is')
    assert(this.memory.reservedBytes >= this.memory.committedBytes, 'memory that can be used is held')
  }

  /** The memory that buffers can lie on, by address ranges that do not overlap. */
  segments(): PoolSegment[] {
    this.checkOpen('segments')
    return this.memory.segments()
  }

  /**
   * Tells `observer` of the arena's segments, of those of a growth before a buffer lies on them, and at the close of
   * each before it goes, as `observeSegments` of a pool. Call the result to end this. Throws PoolError if there is an
   * observer, or the arena stands on a region, whose pool tells of it.
   */
  observeSegments(observer: SegmentObserver): () => void {
    this.checkOpen('observeSegments')
    if (this.region !== null) {
      throw new PoolError('observeSegments: the arena stands on a buffer of another pool; observe that pool')
    }
    return this.memory.watch.observe(observer, this.memory.segments())
  }

  /**
   * Whether libraries such as NCCL can register its segments.
   * @internal
   */
  get isRegistrable(): boolean {
    return this.memory.isRegistrable
  }

  close(): CloseReport {
    checkNotRunning('close', this)
    this.memory.watch.checkNotTelling('close')
    if (!this.givenBack) this.finishWork()
    this.endLoan()
    const report = { heldBuffers: this.bump.liveBlocks, heldBytes: this.bump.requestedBytes }
    this.bump.limit = this.firstUnit
    this.acceptedClocks = null
    this.bump.dropTo(0)
    if (!this.givenBack) {
      this.context.giveBack(() => this.memory.close())
      this.givenBack = true
    }
    return report
  }

  /** For `close`: all waits come before the first change, because a device that captures refuses them. */
  private finishWork(): void {
    const buffer = this.region?.buffer
    const launch = this.scratch?.launch
    if (launch) this.epochs.useIn(this.epoch, launch.slot)
    if (buffer !== undefined) {
      // Nothing is given back, so the host need not wait. The pool of a freed buffer knows the streams.
      const { stream } = buffer
      if (!buffer.freed && stream.isOpen) this.context.giveBack(() => this.epochs.end(this.epoch, stream, false))
      return
    }
    this.clocks.context.finishWork()
    this.epochs.finishPeers()
    for (const peer of this.memory.access.peers) peer.finishWork()
  }

  /** @internal */
  override get drops(): number {
    return this.dropped + super.drops
  }

  /** @internal */
  announceUse(stream: Stream): void {
    if (!stream.context.sharesAddresses(this.context)) {
      throw unreachable('recordUse: the stream', stream.context, this.context)
    }
    if (stream.capture === null) this.use(stream)
    else if (this.scratch?.captures(stream) !== true) stream.checkUncaptured('recordUse')
  }

  private use(stream: Stream): void {
    this.region?.announce(stream)
    this.epochs.use(stream, this.epoch)
  }

  /** @internal */
  reachableFrom(context: Context): boolean {
    return this.memory.access.reaches(context)
  }

  /** @internal */
  override changeAccess(location: AccessLocation, access: PoolAccess): void {
    this.checkOpen('setAccess')
    const peer = peerOf(this.context, location, access)
    if (peer !== null) this.memory.access.change(peer, access)
  }

  /** An allocation that is aligned or large, on another stream than the last one, or beyond the memory so far. */
  private takeSlowly(
    bytes: number,
    stream: Stream = this.defaultStream,
    alignment: number = DEFAULT_ALIGNMENT,
    orThrow: boolean,
  ): DeviceBuffer | null {
    if (isLongForm(bytes, stream)) return allocateLong(this, bytes, stream, alignment, !orThrow)
    const units = unitsOf(bytes)
    checkAlignment(alignment, MOST_ALIGNMENT_BYTES)
    this.checkStream('allocate', stream)
    const alignUnits = alignUnitsOf(alignment)
    const end = this.endOf(units, alignUnits)
    if (end > this.lastUnit) return this.refuse(bytes, alignment, orThrow)
    if (this.region !== null) {
      this.region.checkUsable('allocate')
      this.region.announce(stream)
    }
    if (stream.capture === null) this.epochs.join(stream, this.epoch, isNow)
    else this.scratch!.serve(stream.capture)
    const allocation = this.follow(stream)
    if (end > this.committedUnit && !this.growTo(end)) return this.refuse(bytes, alignment, orThrow)
    this.bump.limit = this.committedUnit
    return new DeviceBuffer(allocation, this.bump.pushAligned(units, bytes, alignUnits))
  }

  /**
   * Drops the entries above `entry`, in the order of `stream`. No allocation fits until `goOn`: only that stream may
   * have the memory.
   */
  private giveBack(entry: number, stream: Stream, isAll: boolean): void {
    this.bump.limit = this.firstUnit
    const next = (this.epoch + 1) | 0
    this.epochs.end(this.epoch, stream, isAll)
    this.epochs.begun(next)
    this.epoch = next
    this.bump.dropTo(entry)
    this.dropped++
  }

  /** After `giveBack`: its stream may have the dropped memory. */
  private goOn(stream: Stream): void {
    this.follow(stream)
    this.bump.limit = this.committedUnit
  }

  private get resetStream(): Stream {
    const slot = this.epochs.only(this.epoch)
    return (slot === -1 ? null : openStreams(this.clocks)[slot]) ?? this.defaultStream
  }

  protected get topUnit(): number {
    return this.bump.top
  }

  private growTo(unit: number): boolean {
    this.memory.watch.checkNotTelling('allocate')
    const grown = this.memory.growTo((unit - this.firstUnit) * UNIT_BYTES)
    if (grown) this.growths++
    this.peakReservedBytes = this.memory.reservedBytes
    return grown
  }

  protected override get committedUnit(): number {
    return Math.min(this.lastUnit, this.firstUnit + Math.floor(this.memory.committedBytes / UNIT_BYTES)) | 0
  }
}

/** The memory that the options ask for, and the bytes that it can grow to. */
function memoryFor(clocks: Clocks, options: AnyArenaOptions): { memory: ArenaMemory; mostBytes: number } {
  const { context } = clocks
  checkArenaOptions(options)
  if ('region' in options && options.region !== undefined) return whole(new RegionMemory(clocks, options.region))
  if ('over' in options && options.over !== undefined) return whole(new BorrowedMemory(context, options.over))
  const config = parseArenaOptions(context, options as ArenaOptions)
  const memory = openArenaMemory('createArenaPool', context, config)
  return { memory, mostBytes: Math.max(config.maxPoolBytes, memory.committedBytes) }
}

const whole = (memory: ArenaMemory) => ({ memory, mostBytes: memory.committedBytes })

/** For `epochs.join`: the epochs of one thread do not end in the middle of a call. */
const isNow = () => true
