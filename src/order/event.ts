import { PoolError } from '../base/errors.js'
import { CU_EVENT_DISABLE_TIMING } from '../driver/constants.js'
import type { Context } from '../driver/context.js'
import type { Clocks, Reach } from './clocks.js'
import { untilDone } from './polling.js'
import type { Stream } from './stream.js'

/** A point in the work of a stream that the host or another stream can wait for. */
export class Event implements Disposable {
  private handle: number
  /** the clocks of the last record's stream, and the reach of that mark; null before the first */
  private clocks: Clocks | null = null
  private reach: Reach = new Float64Array(0)

  /** Made by the device: `device.createEvent()`. */
  constructor(readonly context: Context) {
    this.handle = context.activate().cuEventCreate(CU_EVENT_DISABLE_TIMING)
  }

  /** Moves the event to behind everything submitted to `stream` so far. */
  record(stream: Stream): void {
    const handle = this.openHandle('record')
    stream.checkOpen('record')
    if (stream.context !== this.context) throw new PoolError('record: the stream belongs to another device')
    const reach = stream.clocks.tick(stream.slot)
    this.context.activate().cuEventRecord(handle, stream.handle)
    this.clocks = stream.clocks
    this.reach = reach
  }

  /** True when what was submitted before the last record has completed; an event never recorded is an error. */
  query(): boolean {
    const handle = this.recordedHandle('query')
    const { clocks, reach } = this
    if (!this.context.activate().cuEventQuery(handle)) return false
    clocks?.learn(reach, false)
    return true
  }

  /** Blocks the thread until the last record has completed. */
  synchronize(): void {
    const handle = this.recordedHandle('synchronize')
    const { clocks, reach } = this
    this.context.activate().cuEventSynchronize(handle)
    clocks?.learn(reach, true)
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

  /** For streams: what is submitted to `stream` from now on starts after the last record. */
  delay(stream: Stream): void {
    const handle = this.recordedHandle('wait')
    stream.context.activate().cuStreamWaitEvent(stream.handle, handle)
    if (this.clocks === stream.clocks) stream.clocks.follow(stream.slot, this.reach)
  }

  private openHandle(call: string): number {
    if (this.handle === 0) throw new PoolError(`${call}: the event is closed; use an open one`)
    return this.handle
  }

  private recordedHandle(call: string): number {
    const handle = this.openHandle(call)
    if (this.clocks === null) throw new PoolError(`${call}: the event was never recorded; call record(stream) first`)
    return handle
  }
}
