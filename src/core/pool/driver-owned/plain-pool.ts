import { type Context, unreachable } from '../../driver/context.js'
import { relaxed } from '../../order/relaxed.js'
import type { Stream } from '../../order/stream.js'
import { type AccessLocation, changePlainAccess, type PoolAccess, peerOf } from '../access.js'
import type { DeviceBuffer } from '../buffer.js'
import type { CloseReport } from '../closable-pool.js'
import { PassThroughPool } from './pass-through-pool.js'

/**
 * A pool that calls cuMemAlloc and cuMemFree for each buffer: slow, and exact. Made by `device.createPlainPool()`.
 */
export class PlainPool extends PassThroughPool {
  /**
   * streams of other devices that use a buffer, by record; the driver's free waits for this device's streams itself
   */
  private readonly users = new Map<number, Set<Stream>>()

  /** @internal */
  recordUse(record: number, tag: number, stream: Stream): void {
    this.checkLive(record, tag, 'recordUse')
    if (!stream.context.sharesAddresses(this.context)) {
      throw unreachable('recordUse: the stream', stream.context, this.context)
    }
    if (stream.clocks !== this.clocks) this.users.set(record, (this.users.get(record) ?? new Set()).add(stream))
  }

  protected override takeBack(buffer: DeviceBuffer, stream?: Stream): void {
    this.checkLive(buffer.record, buffer.tag, 'free')
    this.finishUsers(buffer.record)
    super.takeBack(buffer, stream)
    this.users.delete(buffer.record)
  }

  /** @internal */
  override reachableFrom(context: Context): boolean {
    return context.hasPeerAccess(this.context)
  }

  /** @internal */
  override changeAccess(location: AccessLocation, access: PoolAccess): void {
    this.checkOpen('setAccess')
    const peer = peerOf(this.context, location, access)
    if (peer !== null) changePlainAccess(this.context, peer, access)
  }

  override close(): CloseReport {
    for (const record of this.users.keys()) this.finishUsers(record)
    this.context.finishPeers()
    const report = super.close()
    this.users.clear()
    return report
  }

  protected obtain(bytes: number): number {
    const driver = this.context.activate()
    return relaxed(driver, () => driver.cuMemAlloc(bytes))
  }

  protected giveBack(ptr: number): void {
    const driver = this.context.activate()
    relaxed(driver, () => driver.cuMemFree(ptr))
  }

  /** Waits on the host for other devices' work on a buffer. */
  private finishUsers(record: number): void {
    for (const { clocks, covering } of this.users.get(record) ?? []) clocks.catchUp(...covering, true)
  }
}
