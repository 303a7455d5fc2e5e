// Buffers that move to pinned host memory when the device has no room, those first whose last use is the oldest. All
// copies are work of the stream that needs the room, so the host waits for nothing, and the upstream pool decides who
// gets the memory in which order. A buffer has an address only within `use`.

import { type ByteSize, bytesOfSize } from '../../base/byte-size.js'
import { checkByteCount, describe, formatBytes } from '../../base/bytes.js'
import { OutOfMemoryError, PoolError } from '../../base/errors.js'
import { checkOptionNames } from '../../base/option-names.js'
import { showAsText } from '../../base/readable.js'
import type { Context } from '../../driver/context.js'
import { checkIsStream, type Stream } from '../../order/stream.js'
import { DeviceBuffer } from '../buffer.js'
import type { HostBuffer } from '../host/host-buffer.js'
import { HostPool } from '../host/host-pool.js'
import { Pool } from '../pool.js'
import { RecordAllocation, type RecordPool } from '../record-allocation.js'

/** Options of `spillable`. */
export interface SpillableOptions {
  /** a host pool of the same device: the memory of spilled buffers */
  readonly host: HostPool
  /** the most bytes that the buffers have on the device at once (no limit but the pool's) */
  readonly limitBytes?: ByteSize
}

/** How `use` will treat the buffer. */
export interface UseOptions {
  /** false: the work only reads, so that the copy on the host stays right and the next spill copies nothing (true) */
  readonly writes?: boolean
}

/** Counters of spillable buffers, in bytes and events since they were made. */
export interface SpillableStats {
  /** of buffers that are on the device */
  readonly onDeviceBytes: number
  /** of buffers that are on the host only */
  readonly onHostBytes: number
  /** moves to the host, and of these bytes those that were copied */
  readonly spills: number
  /** bytes copied to the host; a buffer that was only read since its return needs no copy */
  readonly spilledBytes: number
  /** moves back to the device */
  readonly returns: number
  /** bytes copied to the device */
  readonly returnedBytes: number
}

/** Work on a stream, up to a stamp of its clock. */
interface Work {
  readonly slot: number
  readonly stamp: number
}

/**
 * Buffers of `pool` that spill to `host` when memory is short: `allocate` one, and take it by `use(stream)` around the
 * work that needs it. Throws TypeError or RangeError for bad options, and PoolError for a host pool of another device.
 */
export function spillable(pool: Pool, options: SpillableOptions): SpillableSet {
  if (!(pool instanceof Pool)) throw new TypeError(`spillable: pool must be a pool, not ${describe(pool)}`)
  checkOptionNames('spillable', options, ['host', 'limitBytes'])
  const { host, limitBytes = Infinity } = options
  if (!(host instanceof HostPool)) {
    throw new TypeError(`spillable: host must be a host pool, of device.createHostPool, not ${describe(host)}`)
  }
  if (host.context !== pool.context) {
    throw new PoolError('spillable: the host pool belongs to another device; use one of the pool’s device')
  }
  const limit = bytesOfSize(limitBytes, 'spillable: limitBytes')
  if (limit !== Infinity) checkByteCount(limit, 'spillable: limitBytes')
  return new SpillableSet(pool, host, limit)
}

/** The buffers of one `spillable`. */
export class SpillableSet implements Disposable {
  /** true after `close` */
  closed = false
  /** on the device, the one whose last use is the oldest first */
  private readonly resident = new Set<SpillableBuffer>()
  private readonly away = new Set<SpillableBuffer>()
  private onDeviceBytes = 0
  private onHostBytes = 0
  private spills = 0
  private spilledBytes = 0
  private returns = 0
  private returnedBytes = 0

  /** Made by `spillable`. */
  constructor(
    /** the pool that the device memory comes from */
    readonly pool: Pool,
    /** the pool that the host memory comes from */
    readonly host: HostPool,
    /** the most bytes on the device */
    readonly limitBytes: number,
  ) {}

  /**
   * A buffer of `bytes`, with undefined contents. Others spill if there is no room. Throws like `pool.allocate`; the
   * error for too little memory tells both sides.
   */
  allocate(bytes: number, stream: Stream = this.pool.defaultStream): SpillableBuffer {
    this.checkOpen('allocate')
    checkByteCount(bytes, 'allocate: bytes')
    checkIsStream('allocate', stream)
    const memory = this.take(bytes, stream)
    const buffer = new SpillableBuffer(this, bytes, memory)
    this.enter(buffer)
    return buffer
  }

  /**
   * Moves buffers to the host until at least `bytes` are free of them, or the rest is in use or has no room there.
   * Work on `stream` copies them. Returns the bytes that left the device.
   */
  spill(bytes: number, stream: Stream = this.pool.defaultStream): number {
    this.checkOpen('spill')
    checkByteCount(bytes, 'spill: bytes', 0)
    checkIsStream('spill', stream)
    stream.checkOpen('spill')
    const before = this.onDeviceBytes
    while (before - this.onDeviceBytes < bytes && this.spillOldest(stream)) {}
    return before - this.onDeviceBytes
  }

  /** The counters as they are now. */
  stats(): SpillableStats {
    const { onDeviceBytes, onHostBytes, spills, spilledBytes, returns, returnedBytes } = this
    return { onDeviceBytes, onHostBytes, spills, spilledBytes, returns, returnedBytes }
  }

  /** Frees all buffers. Throws PoolError while one is in use; then nothing has changed. A second close does nothing. */
  close(): void {
    if (this.closed) return
    const all = [...this.resident, ...this.away]
    const used = all.filter(({ inUse }) => inUse).length
    if (used > 0) throw new PoolError(`close: ${used} buffers are in use; dispose what their use() returned first`)
    for (const buffer of all) buffer.free()
    this.closed = true
  }

  /** The same as `close()`. */
  [Symbol.dispose](): void {
    this.close()
  }

  /** One line for people, such as `SpillableSet { 8 MiB on the device, 2 MiB on the host }`; console.log shows it. */
  toString(): string {
    if (this.closed) return 'SpillableSet { closed }'
    return `SpillableSet { ${formatBytes(this.onDeviceBytes)} on the device, ${formatBytes(this.onHostBytes)} on the host }`
  }

  /** The plain values that JSON.stringify writes. */
  toJSON(): object {
    return { closed: this.closed, ...this.stats() }
  }

  /**
   * Device memory on a stream, after others have spilled if it must be.
   * @internal
   */
  take(bytes: number, stream: Stream): DeviceBuffer {
    while (this.onDeviceBytes + bytes > this.limitBytes) if (!this.spillOldest(stream)) throw this.overLimit(bytes)
    let memory = this.pool.tryAllocate(bytes, stream)
    while (memory === null && this.spillOldest(stream)) memory = this.pool.tryAllocate(bytes, stream)
    if (memory !== null) return memory
    try {
      return this.pool.allocate(bytes, stream)
    } catch (error) {
      if (!(error instanceof OutOfMemoryError)) throw error
      throw new OutOfMemoryError(`${error.message}; ${this.text()}`, error.figures, error.streams, error.remedy)
    }
  }

  /**
   * Host memory, perhaps that of copies of buffers on the device; null if there is none.
   * @internal
   */
  takeHost(bytes: number): HostBuffer | null {
    const { host } = this
    if (host.closed) return null
    let memory = host.tryAllocate(bytes)
    for (const isClean of [false, true]) {
      for (const buffer of this.resident) {
        if (memory !== null) return memory
        if (buffer.dropCopy(isClean)) memory = host.tryAllocate(bytes)
      }
    }
    return memory
  }

  /**
   * A buffer is on the device from now on, or was used there.
   * @internal
   */
  enter(buffer: SpillableBuffer, returnedBytes = 0): void {
    if (this.away.delete(buffer)) {
      this.onHostBytes -= buffer.byteLength
      this.returns++
      this.returnedBytes += returnedBytes
    }
    if (!this.resident.delete(buffer)) this.onDeviceBytes += buffer.byteLength
    this.resident.add(buffer)
  }

  /**
   * A buffer has left the device.
   * @internal
   */
  leave(buffer: SpillableBuffer, copiedBytes: number): void {
    this.forget(buffer)
    this.away.add(buffer)
    this.onHostBytes += buffer.byteLength
    this.spills++
    this.spilledBytes += copiedBytes
  }

  /**
   * A buffer was freed.
   * @internal
   */
  forget(buffer: SpillableBuffer): void {
    if (this.resident.delete(buffer)) this.onDeviceBytes -= buffer.byteLength
    if (this.away.delete(buffer)) this.onHostBytes -= buffer.byteLength
  }

  /** False if no buffer can go. */
  private spillOldest(stream: Stream): boolean {
    for (const buffer of this.resident) if (!buffer.inUse && buffer.trySpill(stream)) return true
    return false
  }

  private checkOpen(call: string): void {
    if (this.closed) throw new PoolError(`${call}: the spillable buffers are closed; call spillable again`)
  }

  private text(): string {
    const { liveBytes, limitBytes } = this.host.stats()
    const used = [...this.resident].filter(({ inUse }) => inUse)
    const usedBytes = used.reduce((sum, { byteLength }) => sum + byteLength, 0)
    return (
      `of the spillable buffers ${formatBytes(this.onDeviceBytes)} are on the device, ${formatBytes(usedBytes)} of them ` +
      `in use, and ${formatBytes(this.onHostBytes)} on the host, whose pool has ${formatBytes(liveBytes)} of ` +
      `${formatBytes(limitBytes)}`
    )
  }

  private overLimit(bytes: number): OutOfMemoryError {
    const { onDeviceBytes, limitBytes } = this
    const stats = this.pool.stats()
    return new OutOfMemoryError(
      `no room for ${formatBytes(bytes)} within limitBytes, ${formatBytes(limitBytes)}: ${this.text()}; ` +
        'end a use, or raise limitBytes or the maxPoolBytes of the host pool',
      {
        requestedBytes: bytes,
        liveBytes: onDeviceBytes,
        pendingBytes: stats.pendingBytes,
        reservedBytes: stats.reservedBytes,
        largestFreeBytes: Math.max(0, limitBytes - onDeviceBytes),
        limitBytes,
        deviceFreeBytes: this.pool.context.activate().cuMemGetInfo().freeBytes,
      },
    )
  }
}

showAsText(SpillableSet)

/** A buffer that may be on the device or on the host. Made by `allocate` of a `SpillableSet`. */
export class SpillableBuffer implements RecordPool, Disposable {
  /** the context of its device */
  readonly context: Context
  /** true after `free` */
  freed = false
  /** null while the buffer is on the host */
  private memory: DeviceBuffer | null
  /** kept after a return, since it may still be right */
  private copy: HostBuffer | null = null
  /** whether `copy` has the contents */
  private isClean = false
  /** the work after which the contents are in place: the allocation, or the copy of a return */
  private ready: Work
  /** the copy of the last spill */
  private spilled: Work | null = null
  /** work that used the buffer since it came to the device, by stream slot */
  private readonly worked = new Map<number, number>()
  /** open uses and their streams, by record */
  private readonly uses = new Map<number, Stream>()
  private lastUse = 0

  /** Made by `allocate` of a `SpillableSet`. */
  constructor(
    private readonly set: SpillableSet,
    /** bytes that were asked for */
    readonly byteLength: number,
    memory: DeviceBuffer,
  ) {
    this.context = memory.context
    this.memory = memory
    this.ready = workOf(memory.stream)
  }

  /** Whether it has device memory now. */
  get onDevice(): boolean {
    return this.memory !== null
  }

  /** Whether a use is open, which keeps it on the device. */
  get inUse(): boolean {
    return this.uses.size > 0
  }

  /**
   * The buffer for work on `stream`, until it is disposed or freed; that ends the use and keeps the memory. If it was
   * on the host, work on `stream` copies it back, and others may spill. Throws like `pool.allocate`, and PoolError for
   * a freed buffer, or a stream that is closed or captured; the buffer stays where it was then.
   */
  use(stream: Stream = this.set.pool.defaultStream, options: UseOptions = {}): DeviceBuffer {
    this.checkLive('use')
    checkIsStream('use', stream)
    checkOptionNames('use', options, ['writes'])
    const { writes = true } = options
    if (typeof writes !== 'boolean') throw new TypeError(`use: writes must be true or false, not ${describe(writes)}`)
    if (stream.context !== this.context) {
      throw new PoolError('use: the stream belongs to another device; use one of the pool’s device')
    }
    stream.checkOpen('use')
    if (this.memory === null) this.bringBack(stream)
    else {
      orderAfter(stream, this.ready)
      this.set.enter(this)
    }
    if (writes) this.isClean = false
    const record = ++this.lastUse
    this.uses.set(record, stream)
    return new DeviceBuffer(new RecordAllocation(this, record, stream), 0)
  }

  /**
   * Moves the buffer to the host now, by work on `stream`. Returns false if the host has no room, or it is there
   * already. Throws PoolError while it is in use.
   */
  spill(stream: Stream = this.set.pool.defaultStream): boolean {
    this.checkLive('spill')
    checkIsStream('spill', stream)
    stream.checkOpen('spill')
    if (this.inUse) throw new PoolError('spill: the buffer is in use; dispose what use() returned first')
    return this.memory !== null && this.trySpill(stream)
  }

  /** Gives all memory back, in the order of the streams. Throws PoolError while it is in use, and when freed before. */
  free(): void {
    this.checkLive('free')
    if (this.inUse) throw new PoolError('free: the buffer is in use; dispose what use() returned first')
    const { memory } = this
    if (memory !== null) {
      const stream = memory.stream.isOpen ? memory.stream : this.set.pool.defaultStream
      this.orderAfterAll(stream)
      memory.free(stream === memory.stream ? undefined : stream)
    }
    this.freed = true
    this.memory = null
    this.set.forget(this)
    this.forgetCopy()
  }

  /** `free()` at the end of a `using` block; nothing when already freed. */
  [Symbol.dispose](): void {
    if (!this.freed) this.free()
  }

  /** One line for people, such as `SpillableBuffer { 2 MiB on the host }`; console.log shows it. */
  toString(): string {
    if (this.freed) return 'SpillableBuffer { freed }'
    const place = this.onDevice ? `on the device${this.inUse ? ', in use' : ''}` : 'on the host'
    return `SpillableBuffer { ${formatBytes(this.byteLength)} ${place} }`
  }

  /** The plain values that JSON.stringify writes, without the contents. */
  toJSON(): object {
    const { byteLength, onDevice, inUse, freed } = this
    return freed ? { freed } : { byteLength, onDevice, inUse, freed }
  }

  /**
   * Moves the buffer to the host; false if there is no room.
   * @internal
   */
  trySpill(stream: Stream): boolean {
    const memory = this.memory!
    const isKnown = this.copy !== null
    if (this.copy?.freed === true) this.copy = null // its pool was closed
    const copy = this.copy ?? this.set.takeHost(this.byteLength)
    if (copy === null) return false
    this.copy = copy
    const copiedBytes = this.isClean ? 0 : this.byteLength
    try {
      this.orderAfterAll(stream)
      if (!this.isClean) {
        copy.recordUse(stream)
        const driver = this.context.activate()
        const { ptr } = memory
        stream.submit('spill', handle => driver.cuMemcpyDtoHAsync(copy.bytes, ptr, handle))
        this.spilled = workOf(stream)
      }
      memory.free(stream === memory.stream ? undefined : stream)
    } catch (error) {
      // The contents are still on the device, unless the free was done before it failed.
      if (!memory.freed) {
        if (!isKnown) this.forgetCopy()
        throw error
      }
    }
    this.isClean = true
    this.memory = null
    this.worked.clear()
    this.set.leave(this, copiedBytes)
    return true
  }

  /**
   * Of a buffer on the device: gives up its copy, if that has the contents as `isClean` says. False for none.
   * @internal
   */
  dropCopy(isClean: boolean): boolean {
    if (this.copy === null || this.isClean !== isClean) return false
    this.forgetCopy()
    return true
  }

  /**
   * Ends a use.
   * @internal
   */
  release(buffer: DeviceBuffer, stream?: Stream): void {
    const { record } = buffer
    const user = this.uses.get(record)
    if (user === undefined) throw this.endedUse('free')
    this.noteWork(user)
    if (stream !== undefined) this.noteWork(stream)
    this.uses.delete(record)
  }

  /** @internal */
  addressOf(record: number, _tag: number, call: string): number {
    if (!this.uses.has(record)) throw this.endedUse(call)
    return this.memory!.rangeOf(call, 0, 0)
  }

  /** @internal */
  requestedBytesOf(record: number, _tag: number, call: string): number {
    if (!this.uses.has(record)) throw this.endedUse(call)
    return this.byteLength
  }

  /** @internal */
  isLive(record: number): boolean {
    return this.uses.has(record)
  }

  /** @internal */
  recordUse(record: number, _tag: number, stream: Stream): void {
    if (!this.uses.has(record)) throw this.endedUse('recordUse')
    if (stream.context !== this.context) {
      throw new PoolError('recordUse: the stream belongs to another device; use the buffer on one of its own')
    }
    this.memory!.recordUse(stream)
    this.noteWork(stream)
  }

  /** @internal */
  reachableFrom(context: Context): boolean {
    return this.memory?.reachableFrom(context) === true
  }

  private bringBack(stream: Stream): void {
    const copy = this.copy!
    if (copy.freed) throw new PoolError('use: the host pool that has the contents was closed; close it last')
    const memory = this.set.take(this.byteLength, stream)
    try {
      if (this.spilled !== null) orderAfter(stream, this.spilled)
      copy.recordUse(stream)
      const driver = this.context.activate()
      const { ptr } = memory
      stream.submit('use', handle => driver.cuMemcpyHtoDAsync(ptr, copy.bytes, handle))
    } catch (error) {
      memory.free()
      throw error
    }
    this.memory = memory
    this.ready = workOf(stream)
    this.set.enter(this, this.byteLength)
  }

  private noteWork(stream: Stream): void {
    const [slot, stamp] = stream.covering
    this.worked.set(slot, Math.max(stamp, this.worked.get(slot) ?? 0))
  }

  /** Work on `stream` from now on comes after all uses of the device memory. */
  private orderAfterAll(stream: Stream): void {
    orderAfter(stream, this.ready)
    for (const [slot, stamp] of this.worked) orderAfter(stream, { slot, stamp })
  }

  private forgetCopy(): void {
    if (this.copy?.freed === false) this.copy.free()
    this.copy = null
    this.isClean = false
  }

  private checkLive(call: string): void {
    if (this.freed) throw new PoolError(`${call}: the buffer was already freed; keep no reference to it after free()`)
  }

  private endedUse(call: string): PoolError {
    return new PoolError(`${call}: the use of the buffer has ended; call use(stream) again`)
  }
}

showAsText(SpillableBuffer)

function workOf(stream: Stream): Work {
  const [slot, stamp] = stream.covering
  return { slot, stamp }
}

function orderAfter(stream: Stream, { slot, stamp }: Work): void {
  const { clocks } = stream
  if (slot !== stream.slot && clocks.completed[slot] < stamp) clocks.order(stream.slot, slot, stamp, false)
}
