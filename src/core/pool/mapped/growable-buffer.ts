import { OutOfRangeError } from '../../base/argument-errors.js'
import { type ByteSize, bytesOf } from '../../base/byte-size.js'
import { formatBytes } from '../../base/bytes.js'
import { PoolError } from '../../base/errors.js'
import { checkOptionNames } from '../../base/option-names.js'
import type { Clocks } from '../../order/clocks.js'
import { checkStreamOf, type Stream } from '../../order/stream.js'
import { isOutOfMemory } from '../backing/backing.js'
import { GrowableRange } from '../backing/growable-range.js'
import { type PoolSegment, registeredError, type SegmentObserver } from '../backing/segment-watch.js'
import { virtualMemoryObstacle } from '../backing/virtual-memory.js'
import type { PoolStats } from '../pool.js'
import type { Extent } from '../sleep/host-copies.js'
import type { SleepOptions, WakeOptions } from '../sleep/sleep-options.js'
import { type MappedRange, Sleeper, type SleepingMemory, type Work } from '../sleep/sleeper.js'
import { GrowableAllocation, WHOLE } from './growable-allocation.js'
import { MappedBuffer } from './mapped-buffer.js'

/** The initial size, the limit and the stream of a growable buffer. */
export interface GrowableOptions {
  /** the initial length; 0 takes no memory yet */
  readonly bytes: ByteSize
  /**
   * bytes of addresses to reserve, rounded up to the granularity; they cost no memory, and bound the length (the
   * device's memory)
   */
  readonly capacityBytes?: ByteSize
  /** the stream of the buffer's copies (the device's default stream) */
  readonly stream?: Stream
}

const KEYS = ['bytes', 'capacityBytes', 'stream']

/**
 * A buffer that grows in place. Its addresses are reserved once, and memory is mapped behind them as it grows, so
 * that address and contents stay. It can be used wherever a DeviceBuffer can. Made by the device:
 * `device.createGrowableBuffer({ bytes })`.
 */
export class GrowableBuffer extends MappedBuffer {
  /**
   * Checks the options, reserves addresses, and maps the first bytes. When it throws, it has given everything back.
   * @internal
   */
  static create(clocks: Clocks, defaultStream: Stream, options: GrowableOptions): GrowableBuffer {
    const { context } = clocks
    const { bytes, capacityBytes, stream } = completeOptions(options, clocks, defaultStream)
    const obstacle = virtualMemoryObstacle(context)
    if (obstacle !== null) {
      throw new PoolError(
        `createGrowableBuffer needs virtual memory management: ${obstacle}; use pool.allocate with the size it will need`,
        'ERR_NOT_SUPPORTED',
      )
    }
    const granuleBytes = context.activate().cuMemGetAllocationGranularity(context.device)
    const reservedBytes = Math.ceil(capacityBytes / granuleBytes) * granuleBytes
    const allocation = new GrowableAllocation(clocks, stream, reserve(context, granuleBytes, reservedBytes))
    const buffer = new GrowableBuffer(allocation)
    try {
      buffer.grow(bytes)
    } catch (error) {
      allocation.discard()
      throw error
    }
    return buffer
  }

  /** The most bytes that it can grow to. */
  get capacityBytes(): number {
    return this.allocation.range.capacityBytes
  }

  /**
   * Makes it `bytes` long in all. The contents of the new part are undefined; after a `shrink`, work submitted before
   * the shrink may still write there. Throws RangeError beyond `capacityBytes` or below the present length, and
   * OutOfMemoryError when the device is full. When it throws, the buffer stays as it was.
   */
  grow(bytes: ByteSize): void {
    this.allocation.grow(bytes)
  }

  /**
   * Makes it `bytes` long in all, in stream order: work submitted before this call may still use the part that is cut
   * off. The memory goes back to the device when that work has completed. Node need not wait for it; `settled` and
   * `settleSync` wait. Memory is mapped in pieces of up to a quarter of the length, at most 64 MiB; the piece at the
   * new end stays. A graph that may use more than `bytes` cannot be launched until the buffer is as long again. Throws
   * RangeError above the present length, and PoolError if a typed view covers more than `bytes`.
   */
  shrink(bytes: ByteSize): void {
    this.allocation.shrink(bytes)
  }

  /**
   * Gives the memory back to the device, and keeps addresses, typed views and graphs for `wake`. The contents are
   * copied to pinned host memory first, like those of a caching pool; see `pool.sleep` for options and errors.
   */
  async sleep(options: SleepOptions = {}): Promise<void> {
    await this.sleeper().sleep(options)
  }

  /** Takes memory from the device again, at the same addresses, and copies the contents back; see `pool.wake`. */
  async wake(options: WakeOptions = {}): Promise<void> {
    await this.sleeper().wake(options)
  }

  /** True from the call of `sleep` until `wake` has succeeded. */
  get asleep(): boolean {
    return this.allocation.asleep
  }

  /** The memory behind the buffer, piece by piece. The last piece can reach beyond its end. */
  segments(): PoolSegment[] {
    return this.allocation.segments()
  }

  /**
   * Tells `observer` of the segments there are, of each new one before the buffer has it, and of each that goes back to
   * the device before it does, as `pool.observeSegments` does. Call the result to end this.
   */
  observeSegments(observer: SegmentObserver): () => void {
    return this.allocation.observeSegments(observer)
  }

  /** The figures of its memory, as those of a pool with one buffer. Peaks are not counted: they are those of now. */
  stats(): PoolStats {
    const { byteLength, mappedBytes, capacityBytes, freed } = this
    const liveBuffers = freed ? 0 : 1
    return {
      liveBytes: byteLength,
      peakLiveBytes: byteLength,
      requestedBytes: byteLength,
      reservedBytes: mappedBytes,
      peakReservedBytes: mappedBytes,
      cachedBytes: 0,
      pendingBytes: 0,
      largestFreeBytes: 0,
      maxPoolBytes: capacityBytes,
      liveBuffers,
      allocations: 1,
      frees: 1 - liveBuffers,
      cacheMisses: 0,
      growths: 0,
      insertedWaits: 0,
    }
  }

  private sleeper(): Sleeper {
    this.allocation.sleeper ??= new Sleeper(new SleepingBuffer(this.allocation))
    return this.allocation.sleeper
  }
}

/** The memory of a growable buffer that sleeps: one extent, from the start of its addresses. */
class SleepingBuffer implements SleepingMemory {
  readonly kind = 'buffer'

  constructor(private readonly allocation: GrowableAllocation) {}

  get clocks() {
    return this.allocation.clocks
  }

  check(call: 'sleep' | 'wake'): void {
    this.allocation.checkLive(WHOLE, call)
    if (call === 'sleep' && this.allocation.range.watch.isObserved) {
      throw registeredError()
    }
    if (call === 'sleep' && this.allocation.isCaptured) {
      throw new PoolError(
        'sleep: work that is being captured uses the buffer; end the capture first',
        'ERR_STREAM_CAPTURED',
      )
    }
  }

  /** Nothing to do: each use asks the sleeper, and a free ends it. */
  guard(): void {}

  workOfPeers(): Work[] {
    const work = this.allocation.usesUntilNow().map(([clocks, slot, stamp]) => ({ clocks, slot, stamp }))
    return work.filter(({ clocks }) => clocks !== this.clocks)
  }

  finishPeers(): void {
    for (const peer of this.allocation.range.access.peers) peer.finishWork('sleep')
  }

  extents(): Extent[] {
    const { byteLength, range } = this.allocation
    return byteLength === 0 ? [] : [{ ptr: range.base, bytes: byteLength, range: 0, version: 0 }]
  }

  unmap(): void {
    this.allocation.range.shrinkTo(0)
  }

  get reservedBytes(): number {
    return this.allocation.range.heldBytes
  }

  get asleepBytes(): number {
    const { byteLength, range } = this.allocation
    return Math.ceil(byteLength / range.granuleBytes) * range.granuleBytes
  }

  create(): void {
    this.allocation.range.growTo(this.allocation.byteLength)
  }

  map(): MappedRange[] {
    return [{ ptr: this.allocation.range.base, bytes: this.asleepBytes }]
  }

  get hasPeers(): boolean {
    return this.allocation.range.access.peers.length > 0
  }
}

function completeOptions(options: GrowableOptions, clocks: Clocks, defaultStream: Stream) {
  checkOptionNames('createGrowableBuffer', options, KEYS)
  const { context } = clocks
  const { stream = defaultStream } = options
  const bytes = bytesOf(options.bytes, 'createGrowableBuffer: bytes', context, 0)
  const most = options.capacityBytes ?? context.totalBytes
  const capacityBytes = bytesOf(most, 'createGrowableBuffer: capacityBytes', context)
  if (bytes > capacityBytes) {
    throw new OutOfRangeError(
      `createGrowableBuffer: ${bytes} bytes are above capacityBytes, ${capacityBytes}; raise that`,
    )
  }
  checkStreamOf('createGrowableBuffer', stream, clocks)
  stream.checkOpen('createGrowableBuffer')
  return { bytes, capacityBytes, stream }
}

function reserve(context: Clocks['context'], granuleBytes: number, bytes: number): GrowableRange {
  try {
    return new GrowableRange(context, granuleBytes, bytes)
  } catch (error) {
    if (!isOutOfMemory(error) && Number.isSafeInteger(bytes)) throw error
    throw new OutOfRangeError(
      `createGrowableBuffer: the driver has no ${formatBytes(bytes)} of addresses in one piece; lower capacityBytes`,
    )
  }
}
