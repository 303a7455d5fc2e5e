// Buffers that move to pinned host memory when the device has no room, those first whose last use is the oldest. The
// upstream pool decides who gets the device memory in which order.

import { WrongTypeError } from '../../base/argument-errors.js'
import { type ByteSize, bytesOf, limitOf } from '../../base/byte-size.js'
import { describe, formatBytes } from '../../base/bytes.js'
import { disposeOf } from '../../base/disposal.js'
import { OutOfMemoryError, PoolError } from '../../base/errors.js'
import { checkOptionNames } from '../../base/option-names.js'
import { showAsText } from '../../base/readable.js'
import type { Stream } from '../../order/stream.js'
import type { DeviceBuffer } from '../buffer.js'
import type { HostBuffer } from '../host/host-buffer.js'
import { HostPool } from '../host/host-pool.js'
import { isOptions } from '../long-form.js'
import { announcePool } from '../new-pools.js'
import { askForLess, figuresOf } from '../out-of-memory.js'
import { Pool } from '../pool.js'
import { checkSpillStream, SpillableBuffer, type SpillingPlace } from './spillable-buffer.js'

/** Options of `spillable`. */
export interface SpillableOptions {
  /** a host pool of the same device: the memory of spilled buffers */
  readonly host: HostPool
  /** the most bytes that the buffers have on the device at once (no limit but the pool's) */
  readonly maxPoolBytes?: ByteSize
}

/** Counters of spillable buffers, in bytes and events since they were made. */
export interface SpillableStats {
  /** of buffers that are on the device */
  readonly onDeviceBytes: number
  /** the highest value of `onDeviceBytes` */
  readonly peakOnDeviceBytes: number
  /** of buffers that are on the host only */
  readonly onHostBytes: number
  /** buffers that are not freed, wherever they are */
  readonly liveBuffers: number
  /** buffers allocated so far */
  readonly allocations: number
  /** moves to the host, and of these bytes those that were copied */
  readonly spills: number
  /** bytes copied to the host; a buffer that was only read since its return needs no copy */
  readonly spilledBytes: number
  /** moves back to the device */
  readonly returns: number
  /** bytes copied to the device */
  readonly returnedBytes: number
}

/**
 * Buffers of `pool` that spill to `host` when memory is short: `allocate` one, and take it by `use(stream)` around the
 * work that needs it. Throws TypeError or RangeError for bad options, and PoolError for a host pool of another device.
 */
export function spillable(pool: Pool, options: SpillableOptions): SpillableSet {
  if (!(pool instanceof Pool)) {
    const given = (pool as unknown) instanceof HostPool ? 'a host pool, which is the option host' : describe(pool)
    throw new WrongTypeError(`spillable: pool must be a pool of device memory, not ${given}`)
  }
  checkOptionNames('spillable', options, ['host', 'maxPoolBytes'])
  const { host, maxPoolBytes = Infinity } = options
  if (!(host instanceof HostPool)) {
    throw new WrongTypeError(`spillable: host must be a host pool, of device.createHostPool, not ${describe(host)}`)
  }
  if (host.context !== pool.context) {
    throw new PoolError(
      'spillable: the host pool belongs to another device; use one of the pool’s device',
      'ERR_OTHER_DEVICE',
    )
  }
  return new SpillableSet(pool, host, limitOf(maxPoolBytes, 'spillable: maxPoolBytes', pool.context))
}

/** The buffers of one `spillable`. */
export class SpillableSet implements SpillingPlace, Disposable {
  /** true after `close` */
  closed = false
  /** on the device, the one whose last use is the oldest first */
  private readonly resident = new Set<SpillableBuffer>()
  private readonly away = new Set<SpillableBuffer>()
  private onDeviceBytes = 0
  private peakOnDeviceBytes = 0
  private allocations = 0
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
    readonly maxPoolBytes: number,
  ) {
    announcePool(this)
  }

  /**
   * A buffer of `bytes`, with undefined contents. Others spill if there is no room. Throws like `pool.allocate`; the
   * error for too little memory tells both sides.
   */
  allocate(size: ByteSize, place: Stream | { readonly stream?: Stream | undefined } = {}): SpillableBuffer {
    const bytes = bytesOf(size, 'allocate: bytes', this.pool.context)
    if (isOptions(place)) checkOptionNames('allocate', place, ['stream'])
    const { stream = this.pool.defaultStream } = isOptions(place) ? place : { stream: place as Stream }
    this.checkOpen('allocate')
    checkSpillStream('allocate', stream, this.pool)
    const memory = this.take(bytes, stream)
    if (this.closed) memory.free() // by a callback of the pool
    this.checkOpen('allocate')
    const buffer = new SpillableBuffer(this, bytes, memory)
    this.allocations++
    this.enter(buffer)
    return buffer
  }

  /**
   * Moves buffers to the host until at least `bytes` are free of them, or the rest is in use or has no room there.
   * Work on `stream` copies them. Returns the bytes that left the device.
   */
  spill(size: ByteSize, stream: Stream = this.pool.defaultStream): number {
    this.checkOpen('spill')
    const bytes = bytesOf(size, 'spill: bytes', this.pool.context, 0)
    checkSpillStream('spill', stream, this.pool)
    const before = this.onDeviceBytes
    while (before - this.onDeviceBytes < bytes && this.spillOldest(stream)) {}
    return before - this.onDeviceBytes
  }

  /** The counters as they are now. */
  stats(): SpillableStats {
    const { onDeviceBytes, peakOnDeviceBytes, onHostBytes, allocations } = this
    const { spills, spilledBytes, returns, returnedBytes } = this
    const liveBuffers = this.resident.size + this.away.size
    const moves = { spills, spilledBytes, returns, returnedBytes }
    return { onDeviceBytes, peakOnDeviceBytes, onHostBytes, liveBuffers, allocations, ...moves }
  }

  /** Frees all buffers. Throws PoolError while one is in use; then nothing has changed. A second close does nothing. */
  close(): void {
    if (this.closed) return
    const all = [...this.resident, ...this.away]
    const used = all.filter(({ inUse }) => inUse).length
    if (used > 0) {
      throw new PoolError(
        `close: ${used} buffers are in use; dispose what their use() returned first`,
        'ERR_POOL_IN_USE',
      )
    }
    for (const buffer of all) buffer.free()
    this.closed = true
  }

  /** `close()` at the end of a `using` block. Where that throws, this warns. */
  [Symbol.dispose](): void {
    disposeOf(this, () => this.close())
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

  /** @internal */
  take(bytes: number, stream: Stream): DeviceBuffer {
    if (this.usedBytes + bytes > this.maxPoolBytes) throw this.overLimit(bytes) // before anything spills in vain
    while (this.onDeviceBytes + bytes > this.maxPoolBytes) if (!this.spillOldest(stream)) throw this.overLimit(bytes)
    let memory = this.pool.tryAllocate(bytes, stream)
    const isPossible = memory === null && bytes <= this.pool.stats().maxPoolBytes
    while (isPossible && memory === null && this.spillOldest(stream)) memory = this.pool.tryAllocate(bytes, stream)
    if (memory !== null) return memory
    try {
      return this.pool.allocate(bytes, stream)
    } catch (error) {
      if (!(error instanceof OutOfMemoryError)) throw error
      const { message, figures, streams, remedy, processes } = error
      throw new OutOfMemoryError(`${message}; ${this.text()}`, figures, streams, remedy, processes)
    }
  }

  /** @internal */
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

  /** @internal */
  enter(buffer: SpillableBuffer, returnedBytes = 0): void {
    if (this.away.delete(buffer)) {
      this.onHostBytes -= buffer.byteLength
      this.returns++
      this.returnedBytes += returnedBytes
    }
    if (!this.resident.delete(buffer)) this.onDeviceBytes += buffer.byteLength
    this.peakOnDeviceBytes = Math.max(this.peakOnDeviceBytes, this.onDeviceBytes)
    this.resident.add(buffer)
  }

  /** @internal */
  leave(buffer: SpillableBuffer, copiedBytes: number): void {
    this.forget(buffer)
    this.away.add(buffer)
    this.onHostBytes += buffer.byteLength
    this.spills++
    this.spilledBytes += copiedBytes
  }

  /** @internal */
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
    if (this.closed) {
      throw new PoolError(`${call}: the spillable buffers are closed; call spillable again`, 'ERR_POOL_CLOSED')
    }
  }

  /** Bytes on the device that cannot spill now. */
  private get usedBytes(): number {
    let bytes = 0
    for (const { inUse, byteLength } of this.resident) if (inUse) bytes += byteLength
    return bytes
  }

  private text(): string {
    const { liveBytes, maxPoolBytes } = this.host.stats()
    return (
      `of the spillable buffers ${formatBytes(this.onDeviceBytes)} are on the device, ${formatBytes(this.usedBytes)} of them ` +
      `in use, and ${formatBytes(this.onHostBytes)} on the host, whose pool has ${formatBytes(liveBytes)} of ` +
      `${formatBytes(maxPoolBytes)}`
    )
  }

  private overLimit(bytes: number): OutOfMemoryError {
    const { onDeviceBytes, maxPoolBytes } = this
    const own = { liveBytes: onDeviceBytes, largestFreeBytes: Math.max(0, maxPoolBytes - onDeviceBytes), maxPoolBytes }
    return new OutOfMemoryError(
      `no room for ${formatBytes(bytes)} within maxPoolBytes, ${formatBytes(maxPoolBytes)}: ${this.text()}; ` +
        'end a use, or raise maxPoolBytes or the maxPoolBytes of the host pool',
      figuresOf(bytes, { ...this.pool.stats(), ...own }, this.pool.context.activate().cuMemGetInfo().freeBytes),
      [],
      askForLess(bytes, maxPoolBytes),
    )
  }
}

showAsText(SpillableSet)
