// One driver call for each buffer, in the shape of a pool: what to fall back to, and to compare with.

import { checkByteCount, formatBytes } from '../../base/bytes.js'
import { OutOfMemoryError, PoolError } from '../../base/errors.js'
import type { Context } from '../../driver/context.js'
import { Double, RecordTable, Stride, Word } from '../../heap/records.js'
import type { Clocks } from '../../order/clocks.js'
import { checkIsStream, checkStreamOf, type Stream } from '../../order/stream.js'
import { checkUser } from '../access.js'
import { isOutOfMemory, MOST_ALIGNMENT_BYTES } from '../backing/backing.js'
import { DeviceBuffer } from '../buffer.js'
import { checkAlignment } from '../caching/alignment.js'
import { Pool, type PoolStats } from '../pool.js'
import { RecordAllocation, type RecordPool } from '../record-allocation.js'

/** float64 of a record: the device address, where the caching pool keeps a stamp */
const ADDRESS = 4
/** What the driver itself gives; for more the block is larger, and Word.offset says how far into it the buffer begins. */
const DRIVER_ALIGNMENT = 256

/** What the pools that only pass on to the driver share: records of addresses, checks and counters. */
export abstract class AddressPool extends Pool implements RecordPool, Disposable {
  readonly context: Context
  private readonly records = new RecordTable()
  private liveBytes = 0
  private peakLiveBytes = 0
  private allocations = 0
  private frees = 0
  /** true after `close` */
  closed = false

  constructor(
    protected readonly clocks: Clocks,
    /** the stream of allocations that name none */
    readonly defaultStream: Stream,
  ) {
    super()
    this.context = clocks.context
  }

  /** One allocation by the driver. */
  protected abstract obtain(bytes: number, stream: Stream): number
  /** The driver's free of it. */
  protected abstract giveBack(ptr: number, stream: Stream): void

  allocate(bytes: number, stream: Stream = this.defaultStream, alignment = DRIVER_ALIGNMENT): DeviceBuffer {
    const buffer = this.tryAllocate(bytes, stream, alignment)
    if (buffer !== null) return buffer
    throw this.outOfMemory(bytes)
  }

  protected outOfMemory(bytes: number): OutOfMemoryError {
    const { freeBytes, totalBytes } = this.context.activate().cuMemGetInfo()
    return new OutOfMemoryError(
      `no room for ${formatBytes(bytes)}: the device has ${formatBytes(freeBytes)} free; free memory, here or in other programs`,
      {
        requestedBytes: bytes,
        liveBytes: this.liveBytes,
        pendingBytes: 0,
        reservedBytes: this.liveBytes,
        largestFreeBytes: freeBytes,
        limitBytes: totalBytes,
        deviceFreeBytes: freeBytes,
      },
    )
  }

  tryAllocate(bytes: number, stream: Stream = this.defaultStream, alignment = DRIVER_ALIGNMENT): DeviceBuffer | null {
    checkByteCount(bytes, 'bytes')
    this.checkOpen('allocate')
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

  /** A buffer of `bytes` that begins `offset` into the driver's allocation at `ptr`. */
  protected adopt(ptr: number, offset: number, bytes: number, stream: Stream): DeviceBuffer {
    const record = this.records.acquire()
    const tag = this.records.revive(record)
    this.records.doubles[record * Stride.doubles + ADDRESS] = ptr + offset
    this.records.words[record * Stride.words + Word.offset] = offset
    this.records.doubles[record * Stride.doubles + Double.requested] = bytes
    this.liveBytes += bytes
    this.peakLiveBytes = Math.max(this.peakLiveBytes, this.liveBytes)
    this.allocations++
    return new DeviceBuffer(new RecordAllocation(this, record, stream), tag)
  }

  // Where a loop frees buffers of several kinds of pool, the compiler takes in the `release` of each, until it has no room left
  // for the cached path of a caching pool: so this one is next to nothing.
  release(buffer: DeviceBuffer, stream?: Stream): void {
    this.takeBack(buffer, stream)
  }

  protected takeBack(buffer: DeviceBuffer, stream: Stream = buffer.stream): void {
    this.checkLive(buffer.record, buffer.tag, 'free')
    checkIsStream('free', stream)
    if (stream.clocks !== this.clocks) {
      checkUser('free', stream, this)
      this.recordUse(buffer.record, buffer.tag, stream)
      this.takeBack(buffer)
      return
    }
    stream.checkUncaptured('free')
    // A closed stream's work is ordered before the default stream's by nothing: let the host wait for it.
    if (stream.closed) this.clocks.catchUp(...stream.covering, true)
    this.drop(buffer.record, stream.closed ? this.defaultStream : stream)
  }

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
      limitBytes: Infinity,
      liveBuffers: this.allocations - this.frees,
      allocations: this.allocations,
      frees: this.frees,
      cacheMisses: this.allocations,
      growths: this.allocations,
      insertedWaits: 0,
    }
  }

  /** Waits for pending work and frees what is still held. A second close does nothing. */
  close(): void {
    if (this.closed && this.allocations === this.frees) return
    this.clocks.finishWork()
    this.closed = true
    this.context.giveBack(() => {
      for (let record = this.records.first; record < this.records.used; record++) {
        if (this.records.isLive(record)) this.drop(record, this.defaultStream)
      }
    })
  }

  /** The same as `close()`. */
  [Symbol.dispose](): void {
    this.close()
  }

  /** @internal */
  addressOf(record: number, tag: number, call: string): number {
    this.checkLive(record, tag, call)
    return this.records.doubles[record * Stride.doubles + ADDRESS]
  }

  /** @internal */
  requestedBytesOf(record: number, tag: number, call: string): number {
    this.checkLive(record, tag, call)
    return this.records.doubles[record * Stride.doubles + Double.requested]
  }

  /** @internal */
  isLive(record: number, tag: number): boolean {
    return this.records.words[record * Stride.words + Word.tag] === tag
  }

  /** Nobody else's, where a kind of pool does not say otherwise. */
  reachableFrom(context: Context): boolean {
    return context.sharesDevice(this.context)
  }

  /** The free of this buffer will come after the work of `stream` too. */
  abstract recordUse(record: number, tag: number, stream: Stream): void

  /** How far into the driver's allocation a buffer begins. */
  protected offsetOf(record: number): number {
    return this.records.words[record * Stride.words + Word.offset]
  }

  private drop(record: number, stream: Stream): void {
    const start = this.records.doubles[record * Stride.doubles + ADDRESS]
    this.giveBack(start - this.offsetOf(record), stream)
    this.liveBytes -= this.records.doubles[record * Stride.doubles + Double.requested]
    this.frees++
    this.records.release(record)
  }

  protected checkLive(record: number, tag: number, call: string): void {
    if (!this.isLive(record, tag)) throw new PoolError(`${call}: the buffer was already freed, or its pool closed`)
  }

  /** Refuses a closed pool in the name of `call`. */
  protected checkOpen(call: string): void {
    if (this.closed) throw new PoolError(`${call}: the pool is closed; create another`)
  }

  /** Refuses a stream of another device, or a closed one. */
  protected checkStream(call: string, stream: Stream): void {
    checkStreamOf(call, stream, this.clocks)
    stream.checkOpen(call)
  }
}
