import { PoolError } from '../base/errors.js'
import { CU_STREAM_NON_BLOCKING } from '../driver/constants.js'
import type { Context } from '../driver/context.js'
import type { Clocks } from './clocks.js'
import type { Event } from './event.js'
import { untilDone } from './polling.js'

/** A queue of work on a device: what is submitted to one stream runs in order, different streams run beside each other. */
export class Stream implements Disposable {
  readonly context: Context
  /** index into the clocks, -1 once closed */
  slot: number
  /** once closed: the slot that it had, and the stamp that covers everything submitted to it */
  lastSlot = -1
  lastStamp = 0

  /** Made by the device: `device.createStream()`, `device.adoptStream(handle)`. */
  constructor(
    readonly clocks: Clocks,
    /** the driver's handle, for any other library */
    readonly handle: number,
    /** made here: ended by `close`, and ordered with other streams by nothing but our calls; else adopted */
    readonly owned: boolean,
    private readonly onClose: (stream: Stream) => void = () => {},
  ) {
    this.context = clocks.context
    this.slot = clocks.open(this)
  }

  /** A stream of its own, not ordered with the default stream; nothing stays behind when that fails. */
  static create(clocks: Clocks, onClose?: (stream: Stream) => void): Stream {
    const driver = clocks.context.activate()
    const handle = driver.cuStreamCreate(CU_STREAM_NON_BLOCKING)
    try {
      return new Stream(clocks, handle, true, onClose)
    } catch (error) {
      driver.cuStreamDestroy(handle)
      throw error
    }
  }

  get closed(): boolean {
    return this.slot === -1
  }

  /**
   * Work submitted to this stream from now on starts after `event`'s last record, on whichever device that was; an event
   * never recorded is an error. Nothing waits on the host.
   */
  wait(event: Event): void {
    this.checkOpen('wait')
    if (!event.context.sharesAddresses(this.context)) {
      throw new PoolError('wait: the event belongs to another device, of another driver; open both with openDevices()')
    }
    event.delay(this)
  }

  /** Slot and stamp of the first mark that will cover everything submitted so far, or of a closed stream did. */
  get covering(): readonly [slot: number, stamp: number] {
    return this.slot >= 0 ? [this.slot, this.clocks.marked[this.slot] + 1] : [this.lastSlot, this.lastStamp]
  }

  /** True when everything submitted so far has completed. */
  query(): boolean {
    this.checkOpen('query')
    const reach = this.clocks.tick(this.slot)
    if (!this.context.activate().cuStreamQuery(this.handle)) return false
    this.clocks.learn(reach, false)
    return true
  }

  /** Blocks the thread until everything submitted so far has completed. */
  synchronize(): void {
    this.checkOpen('synchronize')
    const reach = this.clocks.tick(this.slot)
    this.context.activate().cuStreamSynchronize(this.handle)
    this.clocks.learn(reach, true)
  }

  /** Resolves when everything submitted so far has completed, without blocking Node. */
  async finished(): Promise<void> {
    this.checkOpen('finished')
    const { clocks, slot } = this
    const stamp = clocks.mark(slot)
    await untilDone(() => {
      clocks.poll(slot)
      return clocks.completed[slot] >= stamp
    })
  }

  /** Ends the stream; work already submitted still completes. A second close does nothing. An adopted stream stays open for its owner. */
  close(): void {
    if (this.slot === -1) return
    this.context.giveBack(() => this.clocks.retire(this.slot))
    try {
      this.end()
    } finally {
      if (this.owned) this.context.giveBack(driver => driver.cuStreamDestroy(this.handle))
    }
  }

  /**
   * For an adopted stream that was destroyed elsewhere before it was closed here, so that its handle may mean another one:
   * nothing can be asked of it any more, and all work on the device is waited for.
   */
  abandon(): void {
    this.clocks.synchronize()
    this.clocks.vacate(this.slot)
    this.end()
  }

  [Symbol.dispose](): void {
    this.close()
  }

  private end(): void {
    this.lastSlot = this.slot
    this.lastStamp = this.clocks.marked[this.slot]
    this.slot = -1
    this.onClose(this)
  }

  /** Refuses a closed stream in the name of `call`. */
  checkOpen(call: string): void {
    if (this.slot === -1) throw new PoolError(`${call}: the stream is closed; use an open one`)
  }
}
