import { type Context, unreachable } from '../../driver/context.js'
import { checkIsStream, type Stream } from '../../order/stream.js'
import type { AccessLocation, PoolAccess } from '../access.js'
import type { DeviceBuffer } from '../buffer.js'
import type { CloseReport } from '../closable-pool.js'
import { PassThroughPool } from './pass-through-pool.js'
import { accessOf, changeAccess } from './pool-access.js'

/** A stream-ordered pool of the driver's: the base of pools made here and of pools of other processes. */
export abstract class StreamOrderedPool extends PassThroughPool {
  /** the streams besides its own that use a buffer, by record */
  private readonly users = new Map<number, Set<Stream>>()
  /** other devices that may be using the memory */
  private readonly peers = new Set<Context>()
  private ended = false

  /** The driver's handle. */
  protected abstract readonly handle: number
  /** Gives the driver's pool back, when all of its buffers are freed. */
  protected abstract end(): void

  /** @internal */
  recordUse(record: number, tag: number, stream: Stream): void {
    this.checkLive(record, tag, 'recordUse')
    if (!stream.context.sharesAddresses(this.context)) {
      throw unreachable('recordUse: the stream', stream.context, this.context)
    }
    this.users.set(record, (this.users.get(record) ?? new Set()).add(stream))
  }

  /** Makes the stream of the free wait for the other streams that use the buffer. */
  protected override takeBack(buffer: DeviceBuffer, stream: Stream = buffer.stream): void {
    this.checkLive(buffer.record, buffer.tag, 'free')
    checkIsStream('free', stream)
    const isOurs = stream.clocks === this.clocks
    this.checkTakesFrees(isOurs ? stream : buffer.stream)
    if (isOurs) for (const user of this.users.get(buffer.record) ?? []) if (user !== stream) this.order(user, stream)
    super.takeBack(buffer, stream) // for another device's stream this notes a use, and calls this method again
    if (isOurs) this.users.delete(buffer.record)
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
    this.users.clear()
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
    for (const user of [...this.users.values()].flatMap(users => [...users])) {
      if (user.clocks !== this.clocks) user.clocks.catchUp(...user.covering, true)
    }
    for (const peer of this.peers) peer.finishWork()
  }

  /** Refuses a stream on which the driver's free would break a capture. */
  private checkTakesFrees(stream: Stream): void {
    stream.checkUncaptured('free')
    const submitsTo = stream.closed ? this.defaultStream : stream
    submitsTo.checkOpen('free')
  }

  /** Adds no node to a capture: the last mark of a captured stream covers its earlier work. */
  private order(earlier: Stream, later: Stream): void {
    const { clocks } = earlier
    const [slot, stamp] = earlier.covering
    if (later.closed) clocks.catchUp(slot, stamp, true)
    else if (clocks === this.clocks) clocks.order(later.slot, slot, stamp, false)
    else clocks.orderPeer(slot, stamp, later)
  }
}
