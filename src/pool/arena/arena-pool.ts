// A bump allocator: memory for data with one lifetime, such as the scratch of one frame. A reset, or a rewind to a
// mark, gives memory back all at once, in the order of a stream. A single free makes its buffer stale, and gives no
// memory back. Placement: heap/bump.ts. Stream order: epochs.ts.
//
// A call that is cut short leaves the arena consistent. A buffer that it was about to hand out stays on the stack
// until a reset or rewind.

import { assert } from '../../base/assert.js'
import { type ByteSize, readSizes } from '../../base/byte-size.js'
import { checkByteCount, describe, formatBytes, GiB } from '../../base/bytes.js'
import { type OutOfMemoryError, PoolError } from '../../base/errors.js'
import { checkOptionNames } from '../../base/option-names.js'
import { showAsText } from '../../base/readable.js'
import { type Context, unreachable } from '../../driver/context.js'
import { Bump, type Span } from '../../heap/bump.js'
import { MAX_UNITS, UNIT_BYTES } from '../../heap/size-classes.js'
import type { Clocks } from '../../order/clocks.js'
import { checkIsStream, type Stream } from '../../order/stream.js'
import { type AccessLocation, checkUser, type PoolAccess, peerOf } from '../access.js'
import { MOST_ALIGNMENT_BYTES } from '../backing/backing.js'
import { DeviceBuffer as ImportedDeviceBuffer } from '../buffer.js'
import { checkAlignment } from '../caching/alignment.js'
import { choice } from '../caching/options.js'
import { ClosablePool, type CloseReport } from '../closable-pool.js'
import { beyondDevice, shortageOf } from '../out-of-memory.js'
import type { PoolStats } from '../pool.js'
import { ArenaAllocation, type LaneArena } from './arena-allocation.js'
import { type ArenaMemory, openArenaMemory } from './arena-memory.js'
import { Epochs } from './epochs.js'

// A constant of this module costs less at each use than an imported binding.
const DeviceBuffer = ImportedDeviceBuffer
type DeviceBuffer = ImportedDeviceBuffer
const UNIT_SHIFT = 8
const UNIT_MASK = 255
const DEFAULT_ALIGNMENT = 256
assert(UNIT_BYTES === 1 << UNIT_SHIFT && UNIT_BYTES === DEFAULT_ALIGNMENT, 'a unit has 256 bytes')

const MOST_BYTES = 511 * GiB // 2^31 units, less the largest number of the first unit

/** Options of `createArenaPool`. */
export interface ArenaOptions {
  /** memory that the arena takes from the device at once, rounded up to 256 */
  readonly bytes: ByteSize
  /** size that it may grow to without moving, which needs virtual memory (`bytes`) */
  readonly maxBytes?: ByteSize
  /** true: the arena can be used in several threads; see `pool.share()` (false) */
  readonly shared?: boolean
}

/**
 * A height of an arena's stack, made by `arena.mark()`. It is valid until the arena is reset, or rewound to below it.
 */
export class ArenaMark {
  constructor(
    /** @internal */
    readonly arena: ArenaPool,
    /** @internal */
    readonly resets: number,
    /** @internal */
    readonly entry: number,
    /** @internal */
    readonly span: Span,
  ) {}

  /**
   * Whether the arena was rewound to below the mark.
   * @internal
   */
  get isRewound(): boolean {
    return this.entry > this.span.last
  }

  private get isStale(): boolean {
    return this.isRewound || !this.arena.isAtReset(this.resets)
  }

  /** One line for people, such as `ArenaMark { valid }`; console.log shows it. */
  toString(): string {
    return `ArenaMark { ${this.isStale ? 'stale' : 'valid'} }`
  }

  /** The plain values that JSON.stringify writes. */
  toJSON(): object {
    return { stale: this.isStale }
  }
}

/** Memory that is handed out by moving a pointer, and given back all at once by `reset` or `rewind`. */
export class ArenaPool extends ClosablePool implements LaneArena {
  /** most bytes that it can grow to */
  readonly limitBytes: number
  private readonly memory: ArenaMemory
  private readonly epochs: Epochs
  private readonly bump: Bump
  /** the address of unit 0 */
  private readonly base: number
  private readonly firstUnit: number
  private readonly lastUnit: number
  /** the allocation of the last buffer or reset: its stream was checked, and only needs to be open */
  private allocation: ArenaAllocation
  private resets = 0
  /** resets and rewinds */
  private dropped = 0
  private growths = 0
  private peakReservedBytes: number
  protected readonly staleReason = 'the buffer was already freed, or the arena reset or rewound since'

  /** Made by the device: `device.createArenaPool(options)`. */
  constructor(clocks: Clocks, defaultStream: Stream, options: ArenaOptions) {
    super(clocks, defaultStream)
    const { bytes, maxBytes } = parseArenaOptions(options)
    this.memory = openArenaMemory(this.context, bytes, maxBytes)
    this.limitBytes = maxBytes
    this.peakReservedBytes = this.memory.reservedBytes
    // Units are numbered so that a unit's number is aligned exactly as its address is.
    this.firstUnit = ((this.memory.base % MOST_ALIGNMENT_BYTES) / UNIT_BYTES) | 0
    this.base = this.memory.base - this.firstUnit * UNIT_BYTES
    this.lastUnit = (this.firstUnit + maxBytes / UNIT_BYTES) | 0
    // No allocation fits until a stream has joined: then `takeSlowly` raises the limit.
    this.bump = new Bump(this.firstUnit, this.firstUnit)
    this.epochs = new Epochs(clocks)
    this.allocation = new ArenaAllocation(this, this, defaultStream, this.bump.span)
  }

  allocate(bytes: number, stream?: Stream, alignment?: number): DeviceBuffer {
    return this.take(bytes, stream, alignment, true)!
  }

  tryAllocate(bytes: number, stream?: Stream, alignment?: number): DeviceBuffer | null {
    return this.take(bytes, stream, alignment, false)
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
    stream.checkUncaptured('free')
    this.epochs.use(stream)
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
    this.giveBack(0, stream)
    this.resets++
    this.epochs.end(stream)
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
      throw new TypeError(`rewind: mark must come from mark(), not ${describe(mark)}`)
    }
    this.checkStream('rewind', stream)
    if (mark.arena !== this) throw new PoolError('rewind: the mark belongs to another arena')
    if (mark.resets !== this.resets) throw new PoolError('rewind: the arena was reset after the mark; take a new one')
    if (mark.isRewound) {
      throw new PoolError('rewind: the arena was rewound to below the mark since; rewind to the newest mark first')
    }
    this.giveBack(mark.entry, stream)
    this.goOn(stream)
  }

  /**
   * Whether the arena is open, and was reset exactly so often.
   * @internal
   */
  isAtReset(times: number): boolean {
    return this.isAccepting && this.resets === times
  }

  /** Bytes not allocated, growth included: the largest possible allocation now. */
  get availableBytes(): number {
    return this.isAccepting ? (this.lastUnit - this.bump.top) * UNIT_BYTES : 0
  }

  stats(): PoolStats {
    const { bump, memory } = this
    return {
      liveBytes: bump.liveUnits * UNIT_BYTES,
      peakLiveBytes: bump.peakLiveUnits * UNIT_BYTES,
      requestedBytes: bump.requestedBytes,
      reservedBytes: memory.reservedBytes,
      peakReservedBytes: Math.max(this.peakReservedBytes, memory.reservedBytes),
      cachedBytes: 0,
      pendingBytes: 0,
      largestFreeBytes: this.isAccepting ? (this.committedUnit - bump.top) * UNIT_BYTES : 0,
      limitBytes: this.limitBytes,
      liveBuffers: bump.liveBlocks,
      allocations: bump.allocations,
      frees: bump.allocations - bump.liveBlocks,
      cacheMisses: this.growths,
      insertedWaits: this.epochs.insertedWaits,
      growths: this.growths,
    }
  }

  /** Asserts that the stack and the memory under it agree; walks every allocation since the last reset. */
  check(): void {
    this.checkOpen('check')
    this.bump.check()
    assert(this.bump.limit <= this.committedUnit, 'the stack uses no more memory than there is')
    assert(this.memory.reservedBytes >= this.memory.committedBytes, 'memory that can be used is held')
  }

  close(): CloseReport {
    if (!this.givenBack) this.finishWork()
    const report = { lostBuffers: this.bump.liveBlocks, lostBytes: this.bump.requestedBytes }
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
    this.clocks.finishWork()
    this.epochs.finishPeers()
    for (const peer of this.memory.peers) peer.finishWork()
  }

  /** @internal */
  override get drops(): number {
    return this.dropped + super.drops
  }

  /** `close()` at the end of a `using` block. Buffers of an arena need no free, so nothing is warned of. */
  override [Symbol.dispose](): void {
    this.close()
  }

  /** @internal */
  override get mayReset(): boolean {
    return true
  }

  /** @internal */
  addressOfEntry(entry: number): number {
    return this.base + this.bump.startOf(entry) * UNIT_BYTES
  }

  /** @internal */
  requestedBytesOfEntry(entry: number): number {
    return this.bump.requestedBytesOf(entry)
  }

  /** @internal */
  isFreed(entry: number): boolean {
    return this.bump.isFreed(entry)
  }

  /** @internal */
  announceUse(stream: Stream): void {
    if (!stream.context.sharesAddresses(this.context)) {
      throw unreachable('recordUse: the stream', stream.context, this.context)
    }
    this.epochs.use(stream)
  }

  /** @internal */
  reachableFrom(context: Context): boolean {
    return this.memory.reachableFrom(context)
  }

  /** @internal */
  override changeAccess(location: AccessLocation, access: PoolAccess): void {
    this.checkOpen('setAccess')
    const peer = peerOf(this.context, location, access)
    if (peer !== null) this.memory.changeAccess(peer, access)
  }

  /** An allocation that is aligned or large, on another stream than the last one, or beyond the memory so far. */
  private takeSlowly(
    bytes: number,
    stream: Stream = this.defaultStream,
    alignment: number = DEFAULT_ALIGNMENT,
    orThrow: boolean,
  ): DeviceBuffer | null {
    const units = unitsOf(bytes)
    checkAlignment(alignment, MOST_ALIGNMENT_BYTES)
    this.checkStream('allocate', stream)
    const end = this.endOf(units, alignment)
    if (end > this.lastUnit) return this.refuse(bytes, alignment, orThrow)
    this.epochs.join(stream)
    const allocation = this.follow(stream)
    if (end > this.committedUnit && !this.growTo(end)) return this.refuse(bytes, alignment, orThrow)
    this.bump.limit = this.committedUnit
    return new DeviceBuffer(allocation, this.bump.pushAligned(units, bytes, alignUnitsOf(alignment)))
  }

  /**
   * Drops the entries above `entry`, in the order of `stream`. No allocation fits until `goOn`: only that stream may
   * have the memory.
   */
  private giveBack(entry: number, stream: Stream): void {
    this.bump.limit = this.firstUnit
    this.epochs.begin(stream)
    this.bump.dropTo(entry)
    this.dropped++
  }

  /** After `giveBack`: its stream may have the dropped memory. */
  private goOn(stream: Stream): void {
    this.follow(stream)
    this.bump.limit = this.committedUnit
  }

  /** The allocation of the next buffers for `stream`. */
  private follow(stream: Stream): ArenaAllocation {
    const { allocation, bump } = this
    if (allocation.stream === stream && allocation.span === bump.span) return allocation
    this.allocation = new ArenaAllocation(this, this, stream, bump.span)
    return this.allocation
  }

  /** The first unit behind a new block. */
  private endOf(units: number, alignment: number): number {
    return this.bump.nextStart(alignUnitsOf(alignment)) + units
  }

  private growTo(unit: number): boolean {
    const grown = this.memory.growTo((unit - this.firstUnit) * UNIT_BYTES)
    if (grown) this.growths++
    this.peakReservedBytes = this.memory.reservedBytes
    return grown
  }

  /** The first unit without memory behind it. */
  private get committedUnit(): number {
    return Math.min(this.lastUnit, this.firstUnit + Math.floor(this.memory.committedBytes / UNIT_BYTES)) | 0
  }

  private get resetStream(): Stream {
    return this.epochs.only ?? this.defaultStream
  }

  private refuse(bytes: number, alignment: number, orThrow: boolean): null {
    if (orThrow) throw this.outOfMemory(bytes, alignment)
    return null
  }

  private outOfMemory(bytes: number, alignment: number): OutOfMemoryError {
    const { freeBytes, totalBytes } = this.context.activate().cuMemGetInfo()
    const remedy =
      beyondDevice(0, bytes, totalBytes) ??
      `${this.obstacle(unitsOf(bytes), alignment)}, or fall back: withFallback(arena, device.createPlainPool())`
    return shortageOf(bytes, this.stats(), freeBytes, remedy)
  }

  private obstacle(units: number, alignment: number): string {
    const limit = formatBytes(this.limitBytes)
    if (units * UNIT_BYTES > this.limitBytes) return `the arena has ${limit} in all: make it larger`
    if (this.endOf(units, alignment) <= this.lastUnit)
      return 'the device itself is full: free memory, here or elsewhere'
    return `the arena has ${formatBytes(this.availableBytes)} of ${limit} left: reset it, make it larger`
  }
}

/** Units of a size that the fast path does not serve: a large one, or an invalid one, which throws. */
export function unitsOf(bytes: number): number {
  checkByteCount(bytes, 'bytes')
  return Math.min(MAX_UNITS, Math.ceil(bytes / UNIT_BYTES))
}

export function alignUnitsOf(alignment: number): number {
  return Math.max(1, alignment / UNIT_BYTES)
}

/** Fills in the defaults; throws TypeError or RangeError naming the option. */
export function parseArenaOptions(options: ArenaOptions): { bytes: number; maxBytes: number; shared: boolean } {
  checkOptionNames('createArenaPool', options, ['bytes', 'maxBytes', 'shared'])
  const shared = choice(options.shared ?? false, 'shared', [true, false])
  const { bytes, maxBytes = bytes } = readSizes(options, 'bytes', 'maxBytes')
  checkByteCount(bytes, 'bytes')
  checkByteCount(maxBytes, 'maxBytes')
  if (maxBytes < bytes) {
    throw new RangeError(`maxBytes (${formatBytes(maxBytes)}) is below bytes (${formatBytes(bytes)}); raise it`)
  }
  if (maxBytes > MOST_BYTES) {
    throw new RangeError(`an arena has at most ${formatBytes(MOST_BYTES)}, not ${formatBytes(maxBytes)}`)
  }
  const [whole, most] = [bytes, maxBytes].map(size => Math.ceil(size / UNIT_BYTES) * UNIT_BYTES)
  return { bytes: whole, maxBytes: most, shared }
}

showAsText(ArenaMark)
