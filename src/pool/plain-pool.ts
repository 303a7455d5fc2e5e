import type { Stream } from '../order/stream.js'
import { AddressPool } from './address-pool.js'

/** cuMemAlloc and cuMemFree for each buffer. Made by the device: `device.createPlainPool()`. */
export class PlainPool extends AddressPool {
  /** Nothing to note: the driver's free waits for every stream. */
  recordUse(record: number, tag: number, _stream: Stream): void {
    this.checkLive(record, tag, 'recordUse')
  }

  protected obtain(bytes: number): number {
    return this.context.activate().cuMemAlloc(bytes)
  }

  protected giveBack(ptr: number): void {
    this.context.activate().cuMemFree(ptr)
  }
}
