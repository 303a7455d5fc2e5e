// The base of the pools that make one driver call for each buffer: a fallback for other pools, and a baseline to
// compare with.

import type { ByteSize } from '../../base/byte-size.js'
import { checkByteCount, formatBytes } from '../../base/bytes.js'
import type { OutOfMemoryError } from '../../base/errors.js'
import { type Context, unreachable } from '../../driver/context.js'
import type { Driver } from '../../driver/driver.js'
import { Double, RecordTable, Stride, Word } from '../../heap/records.js'
import { checkIsStream, type Stream } from '../../order/stream.js'
import { checkUser } from '../access.js'
import { isOutOfMemory, MOST_ALIGNMENT_BYTES } from '../backing/backing.js'
import { DeviceBuffer } from '../buffer.js'
import { checkAlignment } from '../caching/alignment.js'
import { ClosablePool, type CloseReport } from '../closable-pool.js'
import { type AllocateOptions, allocateLong, isLongForm } from '../long-form.js'
import { askForLess, beyondDevice, deviceFull, figuresOf } from '../out-of-memory.js'
import type { PoolStats } from '../pool.js'
import { RecordAllocation, type RecordPool } from '../record-allocation.js'
import { checkNotRunning } from '../sleep/running-work.js'

/** The float64 of a record with the device address; the caching pool keeps a stamp there. */
const ADDRESS = 4
/**
 * The driver's own alignment. For more the allocation is larger, and Word.offset is the buffer's distance from its
 * start.
 */
const DRIVER_ALIGNMENT = 256

/** Shared by all pools that pass allocations on to the driver: records of addresses, checks and counters. */
export abstract class PassThroughPool extends ClosablePool implements RecordPool {
  private readonly records = new RecordTable()
  private liveBytes = 0
  private peakLiveBytes = 0
  private allocations = 0
  private frees = 0
  /** the streams given to `recordUse`, by record */
  protected readonly users = new Map<number, Set<Stream>>()

  protected readonly staleReason = 'the buffer was already freed; keep no reference to it after free()'

  /** The driver's allocation of `bytes`. */
  protected abstract obtain(bytes: number, stream: Stream): number
  /** Makes a free on `stream`, or the host, wait for the other streams that use a buffer. */
  protected abstract awaitUsers(record: number, stream: Stream): void
  /** The driver's free of an allocation. */
  protected abstract giveBack(ptr: number, stream: Stream): void
  /** For `close`, once all buffers are freed. */
  protected end(_driver: Driver): void {}

  allocate(
    bytes: ByteSize,
    stream: Stream | AllocateOptions = this.defaultStream,
    alignment = DRIVER_ALIGNMENT,
  ): DeviceBuffer {
    if (isLongForm(bytes, stream)) return allocateLong(this, bytes, stream, alignment, false)!
    const buffer = this.tryAllocate(bytes, stream, alignment)
    if (buffer !== null) return buffer
    throw this.outOfMemory(bytes as number)
  }

  /** @internal */
  override mayServe(bytes: number): boolean {
    this.checkOpen('whenAvailable')
    const { freeBytes, totalBytes } = this.context.activate().cuMemGetInfo()
    const { reservedBytes, liveBytes, maxPoolBytes } = this.stats()
    if (bytes > Math.min(maxPoolBytes, totalBytes)) throw this.outOfMemory(bytes)
    return liveBytes + bytes <= maxPoolBytes && reservedBytes - liveBytes + freeBytes >= bytes
  }

  protected outOfMemory(bytes: number): OutOfMemoryError {
    const { context } = this
    const { freeBytes, totalBytes } = context.activate().cuMemGetInfo()
    const advice = beyondDevice(this.liveBytes, bytes, totalBytes) ?? 'free memory, here or in other programs'
    return deviceFull(
      context,
      `no room for ${formatBytes(bytes)}: the device has ${formatBytes(freeBytes)} free; ${advice}`,
      figuresOf(bytes, { ...this.stats(), largestFreeBytes: freeBytes, maxPoolBytes: totalBytes }, freeBytes),
      askForLess(bytes, totalBytes),
    )
  }

  tryAllocate(
    bytes: ByteSize,
    stream: Stream | AllocateOptions = this.defaultStream,
    alignment = DRIVER_ALIGNMENT,
  ): DeviceBuffer | null {
    if (isLongForm(bytes, stream)) return allocateLong(this, bytes, stream, alignment, true)
    checkByteCount(bytes, 'bytes')
    return this.tryObtain(bytes, stream as Stream, alignment)
  }

  private tryObtain(bytes: number, stream: Stream, alignment: number): DeviceBuffer | null {
    this.checkStream('allocate', stream)
    checkAlignment(alignment, MOST_ALIGNMENT_BYTES)
    const wholeBytes = bytes + Math.max(0, alignment - DRIVER_ALIGNMENT)
    if (!Number.isSafeInteger(wholeBytes)) return null
    let ptr: number
    try {
      ptr = this.obtain(wholeBytes, stream)
    } catch (error) {
      if (isOutOfMemory(error)) return null
      throw error
    }
    return this.adopt(ptr, Math.ceil(ptr / alignment) * alignment - ptr, bytes, stream)
  }

  /** A buffer of `bytes` at `offset` from the start of the driver's allocation at `ptr`. */
  protected adopt(ptr: number, offset: number, bytes: number, stream: Stream): DeviceBuffer {
    const record = this.records.acquire()
    const tag = this.records.revive(record)
    this.records.doubles[record * Stride.doubles + ADDRESS] = ptr + offset
    this.records.words[record * Stride.words + Word.offset] = offset
    this.records.doubles[record * Stride.doubles + Double.requested] = bytes
    this.liveBytes += bytes
    this.peakLiveBytes = Math.max(this.peakLiveBytes, this.liveBytes)
    this.allocations++
    return new DeviceBuffer(new RecordAllocation(this, record, stream, this), tag)
  }

  // V8 inlines `release` into a loop that frees buffers of several kinds of pool, until an inlining budget is spent.
  // The cached path of a caching pool needs that budget, so this method is as small as possible.
  /** @internal */
  release(buffer: DeviceBuffer, stream?: Stream): void {
    this.takeBack(buffer, stream)
  }

  private takeBack(buffer: DeviceBuffer, stream: Stream = buffer.stream): void {
    this.checkLive(buffer.record, buffer.tag, 'free')
    checkIsStream('free', stream)
    if (stream.clocks !== this.clocks) {
      buffer.stream.checkUncaptured('free')
      checkUser('free', stream, this)
      this.recordUse(buffer.record, buffer.tag, stream)
      this.takeBack(buffer)
      return
    }
    stream.checkUncaptured('free')
    this.awaitUsers(buffer.record, stream)
    // Nothing orders the work of a closed stream before the default stream, so the host waits for it.
    if (stream.closed) this.clocks.catchUp(...stream.covering, true)
    this.drop(buffer.record, stream.closed ? this.defaultStream : stream)
  }

  /** Counters, in constant time. Reserved bytes are the live bytes, because the pool keeps no memory. */
  stats(): PoolStats {
    return {
      liveBytes: this.liveBytes,
      peakLiveBytes: this.peakLiveBytes,
      requestedBytes: this.liveBytes,
      reservedBytes: this.liveBytes,
      peakReservedBytes: this.peakLiveBytes,
      cachedBytes: 0,
      pendingBytes: 0,
      largestFreeBytes: 0,
      maxPoolBytes: Infinity,
      liveBuffers: this.allocations - this.frees,
      allocations: this.allocations,
      frees: this.frees,
      cacheMisses: this.allocations,
      growths: this.allocations,
      insertedWaits: 0,
    }
  }

  /** Waits for pending work, and frees all live buffers; returns how many. A second close does nothing. */
  close(): CloseReport {
    checkNotRunning('close', this)
    const report = { heldBuffers: this.allocations - this.frees, heldBytes: this.liveBytes }
    if (this.givenBack) return report
    this.clocks.context.finishWork()
    this.finishPeers()
    this.acceptedClocks = null
    this.context.giveBack(driver => {
      for (let record = this.records.first; record < this.records.used; record++) {
        if (this.records.isLive(record)) this.drop(record, this.defaultStream)
      }
      this.end(driver)
    })
    this.givenBack = true
    return report
  }

  /**
   * For buffers: the address of a live record. Throws PoolError for a stale one.
   * @internal
   */
  addressOf(record: number, tag: number, call: string): number {
    this.checkLive(record, tag, call)
    return this.records.doubles[record * Stride.doubles + ADDRESS]
  }

  /**
   * For buffers: the requested bytes of a live record. Throws PoolError for a stale one.
   * @internal
   */
  requestedBytesOf(record: number, tag: number, call: string): number {
    this.checkLive(record, tag, call)
    return this.records.doubles[record * Stride.doubles + Double.requested]
  }

  /**
   * For buffers: whether the handle with this tag is live.
   * @internal
   */
  isLive(record: number, tag: number): boolean {
    return this.records.words[record * Stride.words + Word.tag] === tag
  }

  /**
   * Only this device's work can use the memory, unless a subclass says otherwise.
   * @internal
   */
  reachableFrom(context: Context): boolean {
    return context.sharesDevice(this.context)
  }

  /**
   * Makes the free of this buffer come after the work of `stream`, too.
   * @internal
   */
  recordUse(record: number, tag: number, stream: Stream): void {
    this.checkLive(record, tag, 'recordUse')
    if (!stream.context.sharesAddresses(this.context)) {
      throw unreachable('recordUse: the stream', stream.context, this.context)
    }
    this.users.set(record, (this.users.get(record) ?? new Set()).add(stream))
  }

  /** Waits on the host for other devices' work that may be using the memory. */
  protected finishPeers(): void {
    for (const record of this.users.keys()) this.finishPeersOf(record)
  }

  /** Waits on the host for other devices' work on a buffer. */
  protected finishPeersOf(record: number): void {
    for (const { clocks, covering } of this.users.get(record) ?? []) {
      if (clocks !== this.clocks) clocks.catchUp(...covering, true)
    }
  }

  /** Bytes from the start of the driver's allocation to the buffer. */
  protected offsetOf(record: number): number {
    return this.records.words[record * Stride.words + Word.offset]
  }

  private drop(record: number, stream: Stream): void {
    const start = this.records.doubles[record * Stride.doubles + ADDRESS]
    this.giveBack(start - this.offsetOf(record), stream)
    this.liveBytes -= this.records.doubles[record * Stride.doubles + Double.requested]
    this.frees++
    this.records.release(record)
    this.users.delete(record)
  }

  protected checkLive(record: number, tag: number, call: string): void {
    if (!this.isLive(record, tag)) this.refuseStale(call)
  }
}
