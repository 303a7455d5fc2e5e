// The base of the caching pools of one thread and of several: their memory as a whole, its limit, waits for room, and
// lists of live blocks. Each kind has its own hot methods. V8 optimises a function for the objects that it has met, so
// a function that meets both kinds is slower for both (docs/internals/v8.md).

import { type ByteSize, bytesOf, limitOf } from '../../base/byte-size.js'
import { checkByteCount, describe } from '../../base/bytes.js'
import { type OutOfMemoryError, PoolError } from '../../base/errors.js'
import { MAX_UNITS, powerOfTwoUnits, UNIT_BYTES } from '../../heap/size-classes.js'
import { type Clocks, MOST_STREAMS } from '../../order/clocks.js'
import type { Stream } from '../../order/stream.js'
import type { PoolSegment, SegmentObserver } from '../backing/segment-watch.js'
import { ClosablePool } from '../closable-pool.js'
import { groupLive, hasLabels, type LiveGroup } from '../labels.js'
import type { PoolConfig } from './options.js'
import { type HeapShortage, noRoomToReserve, outOfMemory, type Shortage } from './shortage.js'
import { classUnits } from './stream-caches.js'

/** A live block, as `live()` lists it for people. */
export interface LiveBlock {
  /** its address */
  readonly ptr: number
  /** bytes that were asked for */
  readonly byteLength: number
  /** bytes of the block that serves it */
  readonly blockBytes: number
  /** the driver's handle of the stream it was allocated on; null once that is closed */
  readonly stream: number | null
  /** the buffer's label, '' for none */
  readonly label: string
}

/** Pools that reserve memory of the device, and hand out blocks of it. */
export abstract class ReservingPool extends ClosablePool {
  /** @internal */
  declare readonly clocks: Clocks
  protected readonly roundingMask: number
  /** sizes with only these bits take the fast path; none when sizes are powers of two */
  protected readonly smallMask: number
  /**
   * by slot: the mark before a free; the clocks' marks, or -1 throughout in a pool that is not stream-ordered
   * @internal
   */
  protected readonly marked: Float64Array

  constructor(
    clocks: Clocks,
    defaultStream: Stream,
    /** @internal */
    readonly config: PoolConfig,
  ) {
    super(clocks, defaultStream)
    this.roundingMask = config.minBlockBytes - 1
    this.smallMask = config.powerOfTwo ? 0 : 2 ** 30 - 1
    this.marked = config.streamOrdered ? clocks.marked : new Float64Array(MOST_STREAMS).fill(-1)
  }

  /** Frees by address. Throws PoolError unless a live block of this pool, and of this thread, begins there. */
  abstract deallocate(ptr: number, stream?: Stream): void

  /**
   * Settles the blocks whose work has completed, without waiting, and gives idle memory above `releaseThresholdBytes`
   * back; returns the number of those blocks.
   */
  processDeferred(): number {
    this.checkOpen('processDeferred')
    return this.settle()
  }

  /**
   * Gives idle memory back to the device until at most `bytes` are reserved, without waiting for pending work.
   * Returns the bytes given back.
   */
  trimTo(bytes: ByteSize): number {
    this.checkOpen('trimTo')
    const most = bytesOf(bytes, 'trimTo: bytes', this.context, 0)
    const before = this.reservedBytes
    this.trim(most)
    return Math.max(0, before - this.reservedBytes)
  }

  /**
   * Takes free memory from the device until at least `bytes` are reserved in all, so that later requests need not
   * wait for the driver. Returns the bytes added. Throws OutOfMemoryError if limit or device do not allow it; the
   * pool then gives back what it has added. `trimTo` gives the memory back, and so does a `releaseThresholdBytes`
   * below `bytes`. With backing 'segments' the memory is one segment, for blocks of 128 KiB and more.
   */
  reserve(bytes: ByteSize): number {
    this.checkAwake('reserve')
    const least = bytesOf(bytes, 'reserve: bytes', this.context, 0)
    const added = this.grow(least)
    if (added === null) throw noRoomToReserve(this.shortage(least, least))
    return added
  }

  /**
   * The memory that buffers can lie on, by address ranges that do not overlap. Two may show the same memory. If other
   * threads use the pool, a long list can miss what changed since the call.
   */
  abstract segments(): PoolSegment[]

  /**
   * Whether libraries such as NCCL can register its segments.
   * @internal
   */
  abstract get isRegistrable(): boolean

  /**
   * Whether it has backing 'managed'.
   * @internal
   */
  abstract get isManaged(): boolean

  /**
   * Tells `observer` of the segments that the pool has, of each new one before a buffer lies on it, and of each that
   * goes before it does. Call the result to end this. Throws PoolError if the pool has an observer, or threads share
   * it, and the observer's own error.
   */
  abstract observeSegments(observer: SegmentObserver): () => void

  /**
   * The most that the pool may reserve, in bytes; Infinity without a limit. It can be set at any time, like the
   * option of `createPool`, and holds for all threads of the pool at once. Below what is reserved, idle memory goes
   * back to the device at once. Memory in use stays, and the pool does not grow before it has fallen below the limit.
   * Throws like `createPool` for a bad value, and PoolError for a closed pool and for the pool of a shelf's model.
   */
  get maxPoolBytes(): number {
    return this.limit
  }

  /** Changes the limit. */
  set maxPoolBytes(limit: ByteSize) {
    this.checkOpen('maxPoolBytes')
    if (this.raise !== null) throw new PoolError(`maxPoolBytes is fixed: ${this.raise}`)
    this.setLimit(limitOf(limit, 'maxPoolBytes', this.context))
  }

  /** @internal */
  override mayServe(bytes: number): boolean {
    this.checkAwake('whenAvailable')
    const blockBytes = this.unitsOf(bytes) * UNIT_BYTES
    if (blockBytes > this.mostBytes) throw this.outOfMemory(bytes)
    return this.mayHaveRoom(blockBytes)
  }

  /** Every live buffer, in no particular order. */
  abstract live(): LiveBlock[]

  /** The live buffers by their label, most bytes first; those without one have the name ''. */
  liveByLabel(): LiveGroup[] {
    return groupLive<LiveBlock>(this.live(), ({ label }) => label)
  }

  /** Asserts that heaps, caches, backing and counters agree; walks the whole pool, which no call may be changing. */
  abstract check(): void

  /**
   * how to raise the limit if it is fixed, as in 'raise the bytes of a model'
   * @internal
   */
  raise: string | null = null

  protected abstract get reservedBytes(): number
  /** the option `maxPoolBytes`, or what it was set to since */
  protected abstract get limit(): number
  /** the most that the pool can reserve: its limit, or the memory of the device */
  protected abstract get mostBytes(): number
  protected abstract setLimit(maxPoolBytes: number): void
  protected abstract settle(): number
  protected abstract trim(bytes: number): void
  /** Returns the bytes added; null without room. */
  protected abstract grow(bytes: number): number | null
  /** Whether a block may fit, once completed frees were noticed. */
  protected abstract mayHaveRoom(blockBytes: number): boolean
  protected abstract heapShortage(): HeapShortage

  /** Refuses a pool that is closed, or sleeps. */
  protected checkAwake(call: string): void {
    this.checkOpen(call)
  }

  /**
   * Units of the block for a request. Throws TypeError or RangeError for a bad size.
   * @internal
   */
  protected unitsOf(bytes: number): number {
    return blockUnits(bytes, this.config)
  }

  protected get deviceBytes(): number {
    return this.context.activate().cuDeviceTotalMem(this.context.device)
  }

  /** `blockBytes` is the size of the block that was requested for a buffer of `bytes`. */
  protected outOfMemory(bytes: number, blockBytes = bytes): OutOfMemoryError {
    return outOfMemory(this.shortage(bytes, Math.max(blockBytes, this.unitsOf(blockBytes) * UNIT_BYTES)))
  }

  /** The live buffers that have a label. */
  private liveLabels(): LiveGroup[] {
    return hasLabels(this) ? this.liveByLabel().filter(({ name }) => name !== '') : []
  }

  protected override heldLabels(): string[] {
    return this.liveLabels().map(({ name }) => `'${name}'`)
  }

  private shortage(bytes: number, blockBytes: number): Shortage {
    const { context } = this
    const { freeBytes, totalBytes } = context.activate().cuMemGetInfo()
    return {
      ...this.heapShortage(),
      context,
      bytes,
      blockBytes,
      stats: this.stats(),
      deviceFreeBytes: freeBytes,
      deviceTotalBytes: totalBytes,
      config: this.config,
      labels: this.liveLabels(),
      raise: this.raise,
    }
  }
}

/** The error for an address that `deallocate` does not know. */
export function unknownAddress(ptr: number): PoolError {
  return new PoolError(`deallocate: ${describe(ptr)} is not the start of a live buffer of this pool; pass buffer.ptr`)
}

/**
 * The size of the block that serves `bytes`; MAX_UNITS for more than any pool can have. Throws TypeError or
 * RangeError for bad sizes.
 */
export function blockUnits(bytes: number, { minBlockBytes, powerOfTwo }: PoolConfig): number {
  checkByteCount(bytes, 'bytes')
  const units = Math.ceil(bytes / minBlockBytes) * (minBlockBytes / UNIT_BYTES)
  if (units > MAX_UNITS / 2) return MAX_UNITS
  return powerOfTwo ? powerOfTwoSize(units) : classUnits(units)
}

/** Powers of two from 512 B to 2 GiB; exact above. */
function powerOfTwoSize(units: number): number {
  return units > 2 ** 23 ? units : Math.max(2, powerOfTwoUnits(units))
}
