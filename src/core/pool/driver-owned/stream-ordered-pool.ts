import type { Context } from '../../driver/context.js'
import type { Driver } from '../../driver/driver.js'
import type { Stream } from '../../order/stream.js'
import type { AccessLocation, PoolAccess } from '../access.js'
import { PassThroughPool } from './pass-through-pool.js'
import { accessOf, changeAccess } from './pool-access.js'

/** A stream-ordered pool of the driver's: the base of pools made here and of pools of other processes. */
export abstract class StreamOrderedPool extends PassThroughPool {
  /** other devices that may be using the memory */
  private readonly peers = new Set<Context>()
  /** false for the driver's default pool, which stays */
  protected destroysHandle = true

  /** The driver's handle. */
  protected abstract readonly handle: number

  /** Adds no node to a capture: the last mark of a captured stream covers its earlier work. */
  protected awaitUsers(record: number, stream: Stream): void {
    const submitsTo = stream.closed ? this.defaultStream : stream
    submitsTo.checkOpen('free')
    for (const user of this.users.get(record) ?? []) {
      if (user === stream) continue
      const { clocks } = user
      const [slot, stamp] = user.covering
      if (stream.closed) clocks.catchUp(slot, stamp, true)
      else if (clocks === this.clocks) clocks.order(stream.slot, slot, stamp, false)
      else clocks.orderPeer(slot, stamp, stream)
    }
  }

  /** @internal */
  override changeAccess(location: AccessLocation, access: PoolAccess): void {
    this.checkOpen('setAccess')
    changeAccess(this.context, this.handle, location, access)
  }

  /** Whether a device or the host may read and write the memory of this pool. Throws TypeError for a bad location. */
  access(location: AccessLocation): PoolAccess {
    this.checkOpen('access')
    return accessOf(this.context, this.handle, location)
  }

  /**
   * Asks the driver, because others can change the access to a pool, too.
   * @internal
   */
  override reachableFrom(context: Context): boolean {
    if (context.sharesDevice(this.context)) return true
    if (!this.isAccepting || !context.sharesAddresses(this.context) || this.access({ context }) === 'none') return false
    this.peers.add(context)
    return true
  }

  protected giveBack(ptr: number, stream: Stream): void {
    const driver = this.context.activate()
    stream.submit('free', handle => driver.cuMemFreeAsync(ptr, handle))
  }

  protected override end(driver: Driver): void {
    driver.cuCtxSynchronize() // gives memory that was just freed back to the device, down to the threshold
    if (this.destroysHandle) driver.cuMemPoolDestroy(this.handle)
  }

  protected override finishPeers(): void {
    super.finishPeers()
    for (const peer of this.peers) peer.finishWork()
  }
}
