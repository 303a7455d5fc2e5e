import type { Context } from '../../driver/context.js'
import type { Stream } from '../../order/stream.js'
import type { AccessLocation, PoolAccess } from '../access.js'
import type { CloseReport } from '../closable-pool.js'
import { PassThroughPool } from './pass-through-pool.js'
import { accessOf, changeAccess } from './pool-access.js'

/** A stream-ordered pool of the driver's: the base of pools made here and of pools of other processes. */
export abstract class StreamOrderedPool extends PassThroughPool {
  /** other devices that may be using the memory */
  private readonly peers = new Set<Context>()
  private ended = false

  /** The driver's handle. */
  protected abstract readonly handle: number
  /** Gives the driver's pool back, when all of its buffers are freed. */
  protected abstract end(): void

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
    if (this.closed || !context.sharesAddresses(this.context) || this.access({ context }) === 'none') return false
    this.peers.add(context)
    return true
  }

  /**
   * Waits for pending work, frees live buffers, and gives back the driver's pool. Returns how many buffers it freed. A
   * second close does nothing.
   */
  override close(): CloseReport {
    if (!this.ended) {
      this.clocks.finishWork()
      this.finishPeers()
    }
    const report = super.close()
    if (this.ended) return report
    this.context.giveBack(driver => {
      driver.cuCtxSynchronize() // gives memory that was just freed back to the device, down to the threshold
      this.end()
    })
    this.ended = true
    return report
  }

  protected giveBack(ptr: number, stream: Stream): void {
    const driver = this.context.activate()
    stream.submit('free', handle => driver.cuMemFreeAsync(ptr, handle))
  }

  /** Waits on the host for other devices' work that may be using the memory. */
  private finishPeers(): void {
    for (const record of this.users.keys()) {
      for (const { clocks, covering } of this.peersOf(record)) clocks.catchUp(...covering, true)
    }
    for (const peer of this.peers) peer.finishWork()
  }
}
