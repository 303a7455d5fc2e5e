import { PoolError } from '../base/errors.js'
import { DEVICE_ATTRIBUTE, POOL_ATTRIBUTE } from '../driver/constants.js'
import type { Clocks } from '../order/clocks.js'
import { Event } from '../order/event.js'
import type { Stream } from '../order/stream.js'
import { AddressPool } from './address-pool.js'
import type { DeviceBuffer } from './buffer.js'
import type { PoolStats } from './pool.js'

const {
  CU_MEMPOOL_ATTR_RELEASE_THRESHOLD: RELEASE_THRESHOLD,
  CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT: RESERVED_CURRENT,
  CU_MEMPOOL_ATTR_RESERVED_MEM_HIGH: RESERVED_HIGH,
  CU_MEMPOOL_ATTR_USED_MEM_CURRENT: USED_CURRENT,
  CU_MEMPOOL_ATTR_USED_MEM_HIGH: USED_HIGH,
} = POOL_ATTRIBUTE

/**
 * cuMemAllocAsync and cuMemFreeAsync on the driver's own default pool, told to keep what it has: the rival to compare
 * with. Made by the device: `device.defaultDriverPool()`. Throws PoolError where the device has no memory pools.
 */
export class DriverPool extends AddressPool {
  private readonly handle: number
  private readonly thresholdBefore: number
  private restored = false
  /** by record: the streams besides its own that use a buffer */
  private readonly users = new Map<number, Set<Stream>>()

  constructor(clocks: Clocks, defaultStream: Stream) {
    super(clocks, defaultStream)
    const driver = this.context.activate()
    if (
      driver.cuDeviceGetAttribute(DEVICE_ATTRIBUTE.CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, this.context.device) !==
      1
    ) {
      throw new PoolError('defaultDriverPool: this device or driver has no memory pools (driver 11.2); use createPool')
    }
    this.handle = driver.cuDeviceGetDefaultMemPool(this.context.device)
    this.thresholdBefore = driver.cuMemPoolGetAttribute(this.handle, RELEASE_THRESHOLD)
    driver.cuMemPoolSetAttribute(this.handle, RELEASE_THRESHOLD, Infinity)
    driver.cuMemPoolSetAttribute(this.handle, RESERVED_HIGH, 0)
    driver.cuMemPoolSetAttribute(this.handle, USED_HIGH, 0)
  }

  recordUse(record: number, tag: number, stream: Stream): void {
    this.checkLive(record, tag, 'recordUse')
    if (stream.clocks !== this.clocks) throw new PoolError('recordUse: the stream belongs to another device')
    this.users.set(record, (this.users.get(record) ?? new Set()).add(stream))
  }

  /** The stream of the free is made to wait for the others that use the buffer. */
  override release(buffer: DeviceBuffer, stream: Stream = buffer.stream): void {
    this.checkLive(buffer.record, buffer.tag, 'free')
    for (const user of this.users.get(buffer.record) ?? []) this.order(user, stream)
    super.release(buffer, stream)
    this.users.delete(buffer.record)
  }

  override stats(): PoolStats {
    const driver = this.context.activate()
    const attribute = (which: number) => driver.cuMemPoolGetAttribute(this.handle, which)
    return {
      ...super.stats(),
      liveBytes: attribute(USED_CURRENT),
      peakLiveBytes: attribute(USED_HIGH),
      reservedBytes: attribute(RESERVED_CURRENT),
      peakReservedBytes: attribute(RESERVED_HIGH),
    }
  }

  /** Frees what is still held and gives the driver's pool back its release threshold. */
  override close(): void {
    super.close()
    this.users.clear()
    if (this.restored) return
    const driver = this.context.activate()
    driver.cuCtxSynchronize()
    driver.cuMemPoolSetAttribute(this.handle, RELEASE_THRESHOLD, this.thresholdBefore)
    driver.cuMemPoolTrimTo(this.handle, 0)
    this.restored = true
  }

  private order(earlier: Stream, later: Stream): void {
    if (later.closed) return // the free itself waits for all work then
    if (earlier.closed) {
      this.context.activate().cuCtxSynchronize()
      return
    }
    using event = new Event(this.context)
    event.record(earlier)
    later.wait(event)
  }

  protected obtain(bytes: number, stream: Stream): number {
    return this.context.activate().cuMemAllocAsync(bytes, stream.handle)
  }

  protected giveBack(ptr: number, stream: Stream): void {
    this.context.activate().cuMemFreeAsync(ptr, stream.handle)
  }
}
