import { PoolError } from '../base/errors.js'
import { CU_EVENT_DISABLE_TIMING } from '../driver/constants.js'
import type { Context } from '../driver/context.js'
import { untilDone } from './polling.js'
import type { Stream } from './stream.js'

/** A point in the work of a stream that the host or another stream can wait for. */
export class Event implements Disposable {
  private handle: number
  /** the stream slot and stamp of the last record, for the clocks; slot -1 before the first */
  private slot = -1
  private stamp = 0
  private clocks: Stream['clocks'] | null = null

  /** Made by the device: `device.createEvent()`. */
  constructor(readonly context: Context) {
    this.handle = context.activate().cuEventCreate(CU_EVENT_DISABLE_TIMING)
  }

  /** Moves the event to behind everything submitted to `stream` so far. */
  record(stream: Stream): void {
    const handle = this.openHandle('record')
    stream.checkOpen('record')
    if (stream.context !== this.context) throw new PoolError('record: the stream belongs to another device')
    const stamp = ++stream.clocks.marked[stream.slot]
    this.context.activate().cuEventRecord(handle, stream.handle)
    this.clocks = stream.clocks
    this.slot = stream.slot
    this.stamp = stamp
  }

  /** True when what was submitted before the last record has completed; an event never recorded is an error. */
  query(): boolean {
    const handle = this.recordedHandle('query')
    const { clocks, slot, stamp } = this
    if (!this.context.activate().cuEventQuery(handle)) return false
    clocks?.complete(slot, stamp)
    return true
  }

  /** Blocks the thread until the last record has completed. */
  synchronize(): void {
    const handle = this.recordedHandle('synchronize')
    const { clocks, slot, stamp } = this
    this.context.activate().cuEventSynchronize(handle)
    clocks?.complete(slot, stamp)
  }

  /** Resolves when the last record has completed, without blocking Node. */
  async finished(): Promise<void> {
    this.recordedHandle('finished')
    await untilDone(() => this.query())
  }

  /** A second close does nothing, nor does one after the device was closed. */
  close(): void {
    if (this.handle === 0 || this.context.released) return
    const handle = this.handle
    this.handle = 0
    this.context.giveBack(driver => driver.cuEventDestroy(handle))
  }

  [Symbol.dispose](): void {
    this.close()
  }

  /** The driver's handle, for a stream that waits; refuses a closed event in the name of `call`. */
  openHandle(call: string): number {
    if (this.handle === 0) throw new PoolError(`${call}: the event is closed; use an open one`)
    return this.handle
  }

  private recordedHandle(call: string): number {
    const handle = this.openHandle(call)
    if (this.slot === -1) throw new PoolError(`${call}: the event was never recorded; call record(stream) first`)
    return handle
  }
}
