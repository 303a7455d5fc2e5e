import { PoolError } from '../base/errors.js'
import { Event } from '../order/event.js'
import type { Stream } from '../order/stream.js'
import { AddressPool } from './address-pool.js'
import type { DeviceBuffer } from './buffer.js'
import {
  type AccessChange,
  type AccessLocation,
  accessOf,
  changeAccess,
  changeAccesses,
  type PoolAccess,
} from './pool-access.js'

/** A pool that the driver keeps: what the pools made here and those of other processes have in common. */
export abstract class StreamOrderedPool extends AddressPool {
  /** by record: the streams besides its own that use a buffer */
  private readonly users = new Map<number, Set<Stream>>()
  /** moved to where one stream waits for another; a wait stays where the event was */
  private event: Event | null = null
  private ended = false

  /** The driver's handle. */
  protected abstract readonly handle: number
  /** Gives the driver's pool itself back, all of its buffers being freed. */
  protected abstract end(): void

  recordUse(record: number, tag: number, stream: Stream): void {
    this.checkLive(record, tag, 'recordUse')
    if (stream.clocks !== this.clocks) throw new PoolError('recordUse: the stream belongs to another device')
    this.users.set(record, (this.users.get(record) ?? new Set()).add(stream))
  }

  /** The stream of the free is made to wait for the others that use the buffer. */
  override release(buffer: DeviceBuffer, stream: Stream = buffer.stream): void {
    this.checkLive(buffer.record, buffer.tag, 'free')
    for (const user of this.users.get(buffer.record) ?? []) if (user !== stream) this.order(user, stream)
    super.release(buffer, stream)
    this.users.delete(buffer.record)
  }

  /**
   * Lets a device, or the host, read and write the memory of this pool, or no longer: one change, or a list, of which each
   * is made that can be. Throws TypeError for what is no location or access, PoolError for what cannot be; of a list it
   * names those that failed.
   */
  setAccess(location: AccessLocation, access: PoolAccess): void
  setAccess(changes: readonly AccessChange[]): void
  setAccess(what: AccessLocation | readonly AccessChange[], access?: PoolAccess): void {
    this.checkOpen('setAccess')
    if (isList(what)) changeAccesses(this.context, this.handle, what)
    else changeAccess(this.context, this.handle, what, access!)
  }

  /** Whether a device, or the host, may read and write the memory of this pool. */
  access(location: AccessLocation): PoolAccess {
    this.checkOpen('access')
    return accessOf(this.context, this.handle, location)
  }

  /** Waits for pending work, frees what is still held, and lets go of the driver's pool. A second close does nothing. */
  override close(): void {
    super.close()
    this.users.clear()
    if (this.ended) return
    this.context.giveBack(driver => {
      driver.cuCtxSynchronize() // what was freed now goes back to the device, as far as the threshold says so
      this.event?.close()
      this.end()
    })
    this.ended = true
  }

  protected giveBack(ptr: number, stream: Stream): void {
    this.context.activate().cuMemFreeAsync(ptr, stream.handle)
  }

  private order(earlier: Stream, later: Stream): void {
    if (later.closed) return // the free itself waits for all work then
    if (earlier.closed) {
      this.context.activate().cuCtxSynchronize()
      return
    }
    this.event ??= new Event(this.context)
    this.event.record(earlier)
    later.wait(this.event)
  }
}

function isList(what: AccessLocation | readonly AccessChange[]): what is readonly AccessChange[] {
  return Array.isArray(what)
}
