import type { Context } from '../../driver/context.js'
import { relaxed } from '../../order/relaxed.js'
import { type AccessLocation, changePlainAccess, type PoolAccess, peerOf } from '../access.js'
import { PassThroughPool } from './pass-through-pool.js'

/**
 * A pool that calls cuMemAlloc and cuMemFree for each buffer: slow, and exact. Made by `device.createPlainPool()`.
 */
export class PlainPool extends PassThroughPool {
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

  protected obtain(bytes: number): number {
    const driver = this.context.activate()
    return relaxed(driver, () => driver.cuMemAlloc(bytes))
  }

  protected giveBack(ptr: number): void {
    const driver = this.context.activate()
    relaxed(driver, () => driver.cuMemFree(ptr))
  }

  /** The driver's free waits for this device's streams itself. */
  protected awaitUsers(record: number): void {
    this.finishPeersOf(record)
  }

  protected override finishPeers(): void {
    super.finishPeers()
    this.context.finishPeers()
  }
}
