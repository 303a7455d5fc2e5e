import { PoolError } from '../base/errors.js'
import type { Stream } from '../order/stream.js'
import { AddressPool } from './address-pool.js'

/** cuMemAlloc and cuMemFree for each buffer. Made by the device: `device.createPlainPool()`. */
export class PlainPool extends AddressPool {
  /** Nothing to note: the driver's free waits for every stream. */
  recordUse(record: number, tag: number, stream: Stream): void {
    this.checkLive(record, tag, 'recordUse')
    if (stream.clocks !== this.clocks) throw new PoolError('recordUse: the stream belongs to another device')
  }

  protected obtain(bytes: number): number {
    return this.context.activate().cuMemAlloc(bytes)
  }

  protected giveBack(ptr: number): void {
    this.context.activate().cuMemFree(ptr)
  }
}
