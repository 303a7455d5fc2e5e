// A pool of the driver's: this library passes calls on to CUDA's own allocator. The driver's attributes configure it;
// the driver decides what it costs and keeps.

import { randomUUID } from 'node:crypto'
import { type ByteSize, bytesOf, limitOf } from '../../base/byte-size.js'
import { formatBytes } from '../../base/bytes.js'
import { OutOfMemoryError, PoolError } from '../../base/errors.js'
import { checkFlag } from '../../base/option-names.js'
import type { Bytes } from '../../base/typed-arrays.js'
import {
  CU_MEM_ALLOCATION_TYPE_PINNED,
  CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR,
  CU_MEM_LOCATION_TYPE_DEVICE,
  POOL_ATTRIBUTE,
} from '../../driver/constants.js'
import type { MemPoolProperties } from '../../driver/driver.js'
import { asUnsupported } from '../../driver/unsupported.js'
import type { Clocks } from '../../order/clocks.js'
import { relaxed } from '../../order/relaxed.js'
import type { Stream } from '../../order/stream.js'
import type { DeviceArray } from '../array.js'
import { type DeviceBuffer, wholeBuffer } from '../buffer.js'
import type { CloseReport } from '../closable-pool.js'
import { type Connection, checkShare, type PassOptions, passDescriptor } from '../mapped/descriptor-passing.js'
import { askForLess, beyondDevice, deviceFull, figuresOf } from '../out-of-memory.js'
import type { PoolStats } from '../pool.js'
import { type DriverPoolOptions, parseDriverPoolOptions } from './driver-pool-options.js'
import { encodePointer } from './exported-pointer.js'
import { defaultPoolOf, makePool } from './make-driver-pool.js'
import { StreamOrderedPool } from './stream-ordered-pool.js'

type Attribute = keyof typeof POOL_ATTRIBUTE

/**
 * A pool of the driver's: cuMemAllocFromPoolAsync and cuMemFreeAsync. Made by the device.
 * `device.defaultDriverPool()` is the pool that cuMemAllocAsync uses unless another is current;
 * `device.createDriverPool(options)` makes a new one. Attributes are read from the driver each time. Closing destroys
 * a new pool; the default pool stays.
 */
export class DriverPool extends StreamOrderedPool {
  protected readonly handle: number
  /** null for the default pool */
  private readonly properties: MemPoolProperties | null
  private readonly id = randomUUID()
  /** connections to the processes that opened the pool */
  private connections: Connection[] = []
  private sharesUnderWay = 0

  /**
   * Without options this is the default pool. Throws TypeError or RangeError for bad options, PoolError if the driver
   * has no such pool.
   */
  constructor(clocks: Clocks, defaultStream: Stream, options?: DriverPoolOptions) {
    super(clocks, defaultStream)
    const { context } = clocks
    this.properties = options === undefined ? null : parseDriverPoolOptions(options, context)
    this.handle = this.properties === null ? defaultPoolOf(context) : makePool(context, this.properties)
    this.destroysHandle = this.properties !== null
  }

  /**
   * Idle memory above this many bytes goes back to the device at each synchronisation; Infinity keeps all. New pools
   * have 0. Setting it throws TypeError or RangeError for a bad value.
   */
  get releaseThresholdBytes(): number {
    return this.get('releaseThresholdBytes', 'CU_MEMPOOL_ATTR_RELEASE_THRESHOLD')
  }
  /** Throws TypeError or RangeError unless it is a byte count or Infinity. */
  set releaseThresholdBytes(bytes: ByteSize) {
    this.checkOpen('releaseThresholdBytes')
    const threshold = limitOf(bytes, 'releaseThresholdBytes', this.context, 0)
    this.set('CU_MEMPOOL_ATTR_RELEASE_THRESHOLD', threshold)
  }

  /** The most that the pool may reserve; Infinity without a limit. The driver fixes it: setting it throws PoolError. */
  get maxPoolBytes(): number {
    return this.properties?.maxBytes || Infinity
  }

  /** Throws PoolError. */
  set maxPoolBytes(_limit: unknown) {
    throw new PoolError('maxPoolBytes: the driver fixes the limit of its pools; create one with another limit')
  }

  /**
   * Whether memory freed on one stream may serve another stream that waits for the free by an event. New pools have
   * true.
   */
  get followEventDependencies(): boolean {
    return this.get('followEventDependencies', 'CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES') === 1
  }
  /** Throws TypeError unless it is a boolean. */
  set followEventDependencies(on: boolean) {
    this.setSwitch('followEventDependencies', 'CU_MEMPOOL_ATTR_REUSE_FOLLOW_EVENT_DEPENDENCIES', on)
  }

  /** Whether memory may serve another stream if its free happens to be complete. New pools have true. */
  get allowOpportunisticReuse(): boolean {
    return this.get('allowOpportunisticReuse', 'CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC') === 1
  }
  /** Throws TypeError unless it is a boolean. */
  set allowOpportunisticReuse(on: boolean) {
    this.setSwitch('allowOpportunisticReuse', 'CU_MEMPOOL_ATTR_REUSE_ALLOW_OPPORTUNISTIC', on)
  }

  /**
   * Whether the driver may make a stream wait for another, to reuse memory that was freed there. New pools have true.
   */
  get allowInternalDependencies(): boolean {
    return this.get('allowInternalDependencies', 'CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES') === 1
  }
  /** Throws TypeError unless it is a boolean. */
  set allowInternalDependencies(on: boolean) {
    this.setSwitch('allowInternalDependencies', 'CU_MEMPOOL_ATTR_REUSE_ALLOW_INTERNAL_DEPENDENCIES', on)
  }

  /**
   * Bytes taken from the device, for all users of the pool in this process. To have memory there beforehand, raise
   * `releaseThresholdBytes`, allocate that much once and free it.
   */
  get reservedBytes(): number {
    return this.get('reservedBytes', 'CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT')
  }

  /** The highest value of `reservedBytes` since `resetPeaks`, or since the pool was made. */
  get peakReservedBytes(): number {
    return this.get('peakReservedBytes', 'CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH')
  }

  /** Bytes in live buffers, as the driver rounds them, for all users of the pool in this process. */
  get usedBytes(): number {
    return this.get('usedBytes', 'CU_MEMPOOL_ATTR_USED_MEM_CURRENT')
  }

  /** The highest value of `usedBytes` since `resetPeaks`, or since the pool was made. */
  get peakUsedBytes(): number {
    return this.get('peakUsedBytes', 'CU_MEMPOOL_ATTR_USED_MEM_HIGH')
  }

  /** Sets both peaks to the current values. */
  resetPeaks(): void {
    this.checkOpen('resetPeaks')
    this.set('CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH', 0)
    this.set('CU_MEMPOOL_ATTR_USED_MEM_HIGH', 0)
  }

  /** Whether cuMemAllocAsync uses this pool, in this process and on this device. */
  get isCurrent(): boolean {
    this.checkOpen('isCurrent')
    return this.context.activate().cuDeviceGetMemPool(this.context.device) === this.handle
  }

  /**
   * Makes all calls of cuMemAllocAsync in this process use this pool on this device. Closing the pool makes the
   * default pool current again. Throws PoolError unless the pool has pinned memory of the device.
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
   * Gives idle memory back to the device, in whole pieces of the driver's, until `bytes` stay reserved. Returns how
   * many bytes went back. Memory becomes idle when the host has seen its free complete, so synchronise first. The
   * driver keeps the memory of a pool that can be shared until the pool is closed.
   */
  trimTo(bytes: ByteSize): number {
    this.checkOpen('trimTo')
    const most = bytesOf(bytes, 'trimTo: bytes', this.context, 0)
    const before = this.reservedBytes
    const driver = this.context.activate()
    relaxed(driver, () => driver.cuMemPoolTrimTo(this.handle, most))
    return before - this.reservedBytes
  }

  /** How many processes have this pool open, having received it from here and not ended. */
  get importers(): number {
    this.connections = this.connections.filter(connection => connection.open)
    return this.connections.length
  }

  /**
   * Passes the pool to one other process of the same user, which calls `device.importPool(path)`; either may come
   * first. `path` names a socket file, which must not exist, and is removed when the promise settles. Blocks of the
   * pool are shared one by one, by `exportPointer`. Rejects with PoolError unless the pool was created with
   * `handleTypes: 'posixFileDescriptor'`. Rejects with DescriptorError when no process opens the path in time
   * (`timeoutMs`, 10 seconds), the system forbids it, or is not Linux.
   */
  async exportTo(path: string, options: PassOptions = {}): Promise<void> {
    checkShare('exportTo', path, options)
    this.checkShareable('exportTo')
    const type = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR
    const descriptor = this.context.activate().cuMemPoolExportToShareableHandle(this.handle, type)
    const announcement = { kind: 'pool', id: this.id, byteLength: 0, memoryBytes: 0 } as const
    this.sharesUnderWay++
    try {
      this.connections.push(await passDescriptor(path, descriptor, announcement, options))
    } finally {
      this.sharesUnderWay--
    }
  }

  /**
   * The bytes by which a process that opened this pool imports a live buffer, with `importBuffer`. Send them in any
   * way, for example in a message. No order holds between processes. The work that fills the buffer must be complete
   * when the other process uses it. The other process must have freed the buffer, and that free must be complete,
   * before it is freed here. Throws TypeError for anything but a buffer or an array, and PoolError if the buffer is of
   * another pool or freed, or this pool cannot be shared.
   */
  exportPointer(memory: DeviceBuffer | DeviceArray): Bytes {
    this.checkShareable('exportPointer')
    const buffer = wholeBuffer('exportPointer', memory)
    if (buffer.allocation.pool !== this)
      throw new PoolError('exportPointer: the buffer is none of this pool; ask its own pool')
    const ptr = this.addressOf(buffer.record, buffer.tag, 'exportPointer')
    const offset = this.offsetOf(buffer.record)
    const driverBytes = this.context.activate().cuMemPoolExportPointer(ptr - offset)
    return encodePointer({ driverBytes, poolId: this.id, byteLength: buffer.byteLength, offset })
  }

  /**
   * Counters. Live and reserved bytes are the driver's figures, for all users of the pool in this process; driver
   * calls read them.
   */
  override stats(): PoolStats {
    if (!this.isAccepting) return super.stats()
    return {
      ...super.stats(),
      liveBytes: this.usedBytes,
      peakLiveBytes: this.peakUsedBytes,
      reservedBytes: this.reservedBytes,
      peakReservedBytes: this.peakReservedBytes,
      maxPoolBytes: this.maxPoolBytes,
    }
  }

  /**
   * Waits for pending work, frees live buffers, and destroys the pool; the default pool itself stays as it is. Returns
   * how many buffers it freed. Throws PoolError while other processes have the pool open: they must close it first. A
   * second close does nothing.
   */
  override close(): CloseReport {
    const { importers, sharesUnderWay } = this
    if (importers > 0) {
      const who = importers === 1 ? '1 other process has' : `${importers} other processes have`
      throw new PoolError(`close: ${who} this pool open; close it there first`, 'ERR_POOL_IN_USE')
    }
    if (sharesUnderWay > 0) {
      throw new PoolError(
        'close: the pool is being exported; wait for the promise of exportTo() first',
        'ERR_POOL_IN_USE',
      )
    }
    return super.close()
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

  protected override outOfMemory(bytes: number): OutOfMemoryError {
    const { maxPoolBytes, usedBytes, reservedBytes } = this
    const { freeBytes, totalBytes } = this.context.activate().cuMemGetInfo()
    const isOnDevice = this.properties === null || this.properties.locationType === CU_MEM_LOCATION_TYPE_DEVICE
    const advice = isOnDevice ? beyondDevice(usedBytes, bytes, totalBytes) : null
    const isOverLimit = usedBytes + bytes > maxPoolBytes
    const message = isOverLimit
      ? `no room for ${formatBytes(bytes)} in a driver pool of at most ${formatBytes(maxPoolBytes)}, of which ` +
        `${formatBytes(usedBytes)} are in use; ${bytes > maxPoolBytes ? 'ask for less' : 'free some'}, or create it with a larger maxPoolBytes`
      : `no room for ${formatBytes(bytes)} in a driver pool of ${formatBytes(reservedBytes)}, with ${formatBytes(freeBytes)} ` +
        `free on the device; ${advice ?? 'free memory, here or in other programs'}`
    const largestFreeBytes = Math.max(0, Math.min(freeBytes, maxPoolBytes - usedBytes))
    const mostBytes = isOnDevice ? Math.min(maxPoolBytes, totalBytes) : maxPoolBytes
    const figures = figuresOf(bytes, { ...this.stats(), largestFreeBytes }, freeBytes)
    const remedy = askForLess(bytes, mostBytes)
    return isOverLimit || !isOnDevice
      ? new OutOfMemoryError(message, figures, [], remedy)
      : deviceFull(this.context, message, figures, remedy)
  }

  private get(what: string, attribute: Attribute): number {
    this.checkOpen(what)
    return this.context.activate().cuMemPoolGetAttribute(this.handle, POOL_ATTRIBUTE[attribute])
  }

  private setSwitch(what: string, attribute: Attribute, on: boolean): void {
    this.checkOpen(what)
    checkFlag(what, on)
    this.set(attribute, Number(on))
  }

  private set(attribute: Attribute, value: number): void {
    this.context.activate().cuMemPoolSetAttribute(this.handle, POOL_ATTRIBUTE[attribute], value)
  }

  private checkShareable(call: string): void {
    this.checkOpen(call)
    if (this.properties?.handleTypes === CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR) return
    throw new PoolError(
      `${call}: the pool was not made to be shared; use createDriverPool({ handleTypes: 'posixFileDescriptor' })`,
    )
  }
}
