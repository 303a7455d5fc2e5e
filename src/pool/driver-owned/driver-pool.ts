// The driver's own pools: its allocator, which this library only passes on to. What they can do is set through attributes
// of the driver's; what they cost and keep is the driver's business.

import { randomUUID } from 'node:crypto'
import { checkByteCount, describe, formatBytes } from '../../base/bytes.js'
import { OutOfMemoryError, PoolError } from '../../base/errors.js'
import {
  CU_MEM_ALLOCATION_TYPE_PINNED,
  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
  CU_MEM_LOCATION_TYPE_DEVICE,
  POOL_ATTRIBUTE,
} from '../../driver/constants.js'
import type { MemPoolProperties } from '../../driver/driver.js'
import type { Clocks } from '../../order/clocks.js'
import { relaxed } from '../../order/relaxed.js'
import type { Stream } from '../../order/stream.js'
import { DeviceBuffer } from '../buffer.js'
import { type Connection, checkShare, type PassOptions, passDescriptor } from '../mapped/descriptor-passing.js'
import type { PoolStats } from '../pool.js'
import { asUnsupported } from '../unsupported.js'
import { ATTRIBUTE_NAMES, attributeNamed, checkedValue, type DriverPoolAttribute } from './driver-pool-attributes.js'
import { type DriverPoolOptions, parseDriverPoolOptions } from './driver-pool-options.js'
import { encodePointer } from './exported-pointer.js'
import { defaultPoolOf, makePool } from './make-driver-pool.js'
import { StreamOrderedPool } from './stream-ordered-pool.js'

/**
 * A pool of the driver's: cuMemAllocFromPoolAsync and cuMemFreeAsync. Made by the device: `device.defaultDriverPool()`, the
 * one that cuMemAllocAsync draws on unless another is made current, and `device.createDriverPool(options)`. Attributes are
 * read from the driver each time. Closing destroys a pool that was made here, and only lets go of the default one.
 */
export class DriverPool extends StreamOrderedPool {
  protected readonly handle: number
  /** null of the default pool */
  private readonly properties: MemPoolProperties | null
  private readonly id = randomUUID()
  /** to the processes that took the pool */
  private connections: Connection[] = []
  private sharesUnderWay = 0

  /** Without options the default pool. Throws TypeError and RangeError for bad ones, PoolError for what is not there. */
  constructor(clocks: Clocks, defaultStream: Stream, options: DriverPoolOptions | null = null) {
    super(clocks, defaultStream)
    const { context } = clocks
    this.properties = options === null ? null : parseDriverPoolOptions(options, context.device)
    this.handle = this.properties === null ? defaultPoolOf(context) : makePool(context, this.properties)
  }

  /** Idle memory above this goes back to the device at each synchronisation; Infinity keeps all. */
  get releaseThresholdBytes(): number {
    return this.get('releaseThresholdBytes', 'CU_MEMPOOL_ATTR_RELEASE_THRESHOLD')
  }
  /** Throws TypeError or RangeError unless it is a byte count or Infinity. */
  set releaseThresholdBytes(bytes: number) {
    this.set('releaseThresholdBytes', 'CU_MEMPOOL_ATTR_RELEASE_THRESHOLD', bytes)
  }

  /** Whether memory freed on one stream may serve another that an event has made wait for the free. */
  get followEventDependencies(): boolean {
    return this.get('followEventDependencies', 'CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES') === 1
  }
  /** Throws TypeError unless it is a boolean. */
  set followEventDependencies(on: boolean) {
    this.set('followEventDependencies', 'CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES', on)
  }

  /** Whether memory may serve another stream when its free happens to have completed. */
  get allowOpportunisticReuse(): boolean {
    return this.get('allowOpportunisticReuse', 'CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC') === 1
  }
  /** Throws TypeError unless it is a boolean. */
  set allowOpportunisticReuse(on: boolean) {
    this.set('allowOpportunisticReuse', 'CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC', on)
  }

  /** Whether the driver may make a stream wait so that it can have memory freed on another. */
  get allowInternalDependencies(): boolean {
    return this.get('allowInternalDependencies', 'CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES') === 1
  }
  /** Throws TypeError unless it is a boolean. */
  set allowInternalDependencies(on: boolean) {
    this.set('allowInternalDependencies', 'CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES', on)
  }

  /** Taken from the device, by all users of the pool in this process. */
  get reservedBytes(): number {
    return this.get('reservedBytes', 'CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT')
  }

  /** The most that was, since `resetPeaks` or since the pool was made. */
  get peakReservedBytes(): number {
    return this.get('peakReservedBytes', 'CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH')
  }

  /** Handed out, as the driver rounds it, to all users of the pool in this process. */
  get usedBytes(): number {
    return this.get('usedBytes', 'CU_MEMPOOL_ATTR_USED_MEM_CURRENT')
  }

  /** The most that was, since `resetPeaks` or since the pool was made. */
  get peakUsedBytes(): number {
    return this.get('peakUsedBytes', 'CU_MEMPOOL_ATTR_USED_MEM_HIGH')
  }

  /** Both peaks begin again with the current values. */
  resetPeaks(): void {
    this.setAttribute('CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH', 0)
    this.setAttribute('CU_MEMPOOL_ATTR_USED_MEM_HIGH', 0)
  }

  /** All attributes under the driver's names: bytes, and 0 or 1 for the three that are switches. */
  attributes(): Record<DriverPoolAttribute, number> {
    const read = ATTRIBUTE_NAMES.map(name => [name, this.get('attributes', name)] as const)
    return Object.fromEntries(read) as Record<DriverPoolAttribute, number>
  }

  /**
   * Sets an attribute by its name in the driver API, CU_MEMPOOL_ATTR_…, or in the runtime API, cudaMemPool…. Throws
   * TypeError for what can only be read, RangeError for values that cannot be; the message says what to use instead.
   */
  setAttribute(name: DriverPoolAttribute | `cudaMemPool${string}`, value: number | boolean): void {
    this.set(`setAttribute: ${name}`, attributeNamed('setAttribute', name), value)
  }

  /** Whether cuMemAllocAsync, in this process and on this device, draws on this pool. */
  get isCurrent(): boolean {
    this.checkOpen('isCurrent')
    return this.context.activate().cuDeviceGetMemPool(this.context.device) === this.handle
  }

  /**
   * Makes cuMemAllocAsync of this process draw on this pool, whoever calls it for this device. When the pool is closed the
   * default one is current again. Throws PoolError for memory that is not the device's own.
   */
  setCurrent(): void {
    this.checkOpen('setCurrent')
    const { locationType, allocationType } = this.properties ?? {}
    const isOfDevice = locationType === CU_MEM_LOCATION_TYPE_DEVICE && allocationType === CU_MEM_ALLOCATION_TYPE_PINNED
    if (this.properties !== null && !isOfDevice) {
      throw new PoolError("setCurrent: only a pool of 'pinned' memory at the location 'device' can be current")
    }
    this.context.activate().cuDeviceSetMemPool(this.context.device, this.handle)
  }

  /**
   * Gives idle memory back to the device, in whole pieces of the driver's, as long as `bytes` stay reserved; returns how
   * much that was. Memory whose free the host has not seen complete is not idle yet: synchronise first. Of a pool that can
   * be shared the driver gives nothing back before it is closed.
   */
  trimTo(bytes: number): number {
    this.checkOpen('trimTo')
    if (bytes !== 0) checkByteCount(bytes, 'trimTo: bytes')
    const before = this.reservedBytes
    const driver = this.context.activate()
    relaxed(driver, () => driver.cuMemPoolTrimTo(this.handle, bytes))
    return before - this.reservedBytes
  }

  /** Processes that have this pool open, as far as they took it from here and have not ended. */
  get importers(): number {
    this.connections = this.connections.filter(connection => connection.open)
    return this.connections.length
  }

  /**
   * Hands the pool to one other process of the same user, which calls `device.openSharedPool(path)`; either may come first.
   * `path` names a socket file, which must not exist and is gone when the returned promise settles. What is in the pool goes
   * block by block, by `exportPointer`. Rejects with PoolError when the pool was not created with `handleTypes`
   * 'posixFileDescriptor', with DescriptorError when nobody comes in time (`timeoutMs`, 10 seconds), or when the system
   * forbids it or is not Linux.
   */
  async share(path: string, options: PassOptions = {}): Promise<void> {
    checkShare('share', path, options)
    this.checkShareable('share')
    const type = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    const descriptor = this.context.activate().cuMemPoolExportToShareableHandle(this.handle, type)
    const announcement = { kind: 'pool', id: this.id, byteLength: 0, memoryBytes: 0 } as const
    this.sharesUnderWay++
    try {
      this.connections.push(await passDescriptor(this.context, path, descriptor, announcement, options))
    } finally {
      this.sharesUnderWay--
    }
  }

  /**
   * Bytes by which a process that opened this pool finds a live buffer of it: `importBuffer` there. They may go any way, a
   * message for example. Between the processes nothing is ordered: the work that fills the buffer must have completed when
   * the other one uses it, and the other one must have freed it, and that have completed, before it is freed here.
   */
  exportPointer(buffer: DeviceBuffer): Uint8Array<ArrayBuffer> {
    this.checkShareable('exportPointer')
    if (!(buffer instanceof DeviceBuffer)) {
      throw new TypeError(`exportPointer: buffer must be a DeviceBuffer, not ${describe(buffer)}`)
    }
    if (buffer.allocation.pool !== this)
      throw new PoolError('exportPointer: the buffer is none of this pool; ask its own pool')
    const ptr = this.addressOf(buffer.record, buffer.tag, 'exportPointer')
    const offset = this.offsetOf(buffer.record)
    const driverBytes = this.context.activate().cuMemPoolExportPointer(ptr - offset)
    return encodePointer({ driverBytes, poolId: this.id, byteLength: buffer.byteLength, offset })
  }

  /** Bytes are the driver's, counts of buffers those of this object. */
  override stats(): PoolStats {
    if (this.closed) return super.stats()
    return {
      ...super.stats(),
      liveBytes: this.usedBytes,
      peakLiveBytes: this.peakUsedBytes,
      reservedBytes: this.reservedBytes,
      peakReservedBytes: this.peakReservedBytes,
      limitBytes: this.limitBytes,
    }
  }

  /**
   * Waits for pending work, frees what is still held, and destroys the pool; the default one is only let go of, as it is.
   * Throws PoolError while other processes have the pool open, since theirs must go first. A second close does nothing.
   */
  override close(): void {
    const { importers, sharesUnderWay } = this
    if (importers > 0) {
      throw new PoolError(`close: other processes, ${importers}, have this pool open; have them close it first`)
    }
    if (sharesUnderWay > 0)
      throw new PoolError('close: the pool is being shared; wait for the promise of share() first')
    super.close()
  }

  protected obtain(bytes: number, stream: Stream): number {
    try {
      const driver = this.context.activate()
      return stream.submit('allocate', handle => driver.cuMemAllocFromPoolAsync(bytes, this.handle, handle))
    } catch (error) {
      throw asUnsupported(
        error,
        'allocate: this device or system allows no allocation from driver pools; use createPool()',
      )
    }
  }

  protected end(): void {
    if (this.properties !== null) this.context.activate().cuMemPoolDestroy(this.handle)
  }

  protected override outOfMemory(bytes: number): OutOfMemoryError {
    const { limitBytes, usedBytes, reservedBytes } = this
    const { freeBytes } = this.context.activate().cuMemGetInfo()
    const message =
      usedBytes + bytes > limitBytes
        ? `no room for ${formatBytes(bytes)} in a driver pool of at most ${formatBytes(limitBytes)}, of which ` +
          `${formatBytes(usedBytes)} are in use; free some, or create it with a larger maxPoolBytes`
        : `no room for ${formatBytes(bytes)} in a driver pool of ${formatBytes(reservedBytes)}, with ${formatBytes(freeBytes)} ` +
          'free on the device; free memory, here or in other programs'
    return new OutOfMemoryError(message, {
      requestedBytes: bytes,
      liveBytes: usedBytes,
      pendingBytes: 0,
      reservedBytes,
      largestFreeBytes: Math.max(0, Math.min(freeBytes, limitBytes - usedBytes)),
      limitBytes,
      deviceFreeBytes: freeBytes,
    })
  }

  /** What was asked for as `maxPoolBytes`. */
  private get limitBytes(): number {
    return this.properties?.maxBytes || Infinity
  }

  private get(what: string, attribute: DriverPoolAttribute): number {
    this.checkOpen(what)
    return this.context.activate().cuMemPoolGetAttribute(this.handle, POOL_ATTRIBUTE[attribute])
  }

  private set(what: string, attribute: DriverPoolAttribute, value: unknown): void {
    this.checkOpen(what)
    const checked = checkedValue(what, attribute, value)
    this.context.activate().cuMemPoolSetAttribute(this.handle, POOL_ATTRIBUTE[attribute], checked)
  }

  private checkShareable(call: string): void {
    this.checkOpen(call)
    if (this.properties?.handleTypes === CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return
    throw new PoolError(
      `${call}: the pool was not made to be shared; use createDriverPool({ handleTypes: 'posixFileDescriptor' })`,
    )
  }
}
