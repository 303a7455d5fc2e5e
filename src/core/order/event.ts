import { WrongTypeError } from '../base/argument-errors.js'
import { describe } from '../base/bytes.js'
import { disposeOf } from '../base/disposal.js'
import { PoolError } from '../base/errors.js'
import { showAsText } from '../base/readable.js'
import { CU_EVENT_DEFAULT, CU_EVENT_DISABLE_TIMING } from '../driver/constants.js'
import type { Context } from '../driver/context.js'
import { Capture } from './capture.js'
import type { Clocks, VectorTime } from './clocks.js'
import { untilDone } from './polling.js'
import { relaxed } from './relaxed.js'
import { checkIsStream, type Stream, type Waitable } from './stream.js'
import { signalOf, type WaitOptions } from './wait-options.js'

/** Descriptor of an event for another thread; made by `event.transfer()`. */
export interface SharedEvent {
  /** identifies the event's device among those of the process */
  readonly device: number
  /** @internal */
  readonly handle: number
  /** @internal */
  readonly vectorTime: Float64Array
  /** @internal */
  readonly timing: boolean
  /**
   * shared by all copies: 1 once a thread has adopted the event
   * @internal
   */
  readonly adopted: Int32Array
}

/** Options of `device.createEvent`. */
export interface EventOptions {
  /**
   * true: the event notes the time of its record, for `elapsedSince` in milliseconds; such records cost ten times as
   * much (false)
   */
  readonly timing?: boolean
}

/** A point in the work of a stream. The host, or another stream, can wait for it. */
export class Event implements Waitable, Disposable {
  private handle: number
  /** clocks of the last record: the device's, or the capture's; null before the first record */
  private clocks: Clocks | Capture | null = null
  private vectorTime: VectorTime = []
  private transferred = false

  /** Made by the device: `device.createEvent()`. */
  constructor(
    /**
     * the CUDA context of the event's device
     * @internal
     */
    readonly context: Context,
    /** whether the event notes the time of its record, for `elapsedSince` */
    readonly timing = false,
    handle?: number,
  ) {
    this.handle = handle ?? context.activate().cuEventCreate(timing ? CU_EVENT_DEFAULT : CU_EVENT_DISABLE_TIMING)
  }

  /**
   * The event that another thread has transferred, as it was recorded there. Throws PoolError if a thread has adopted
   * it: each would end it, and the driver gives its handle to another event then.
   * @internal
   */
  static adopt(clocks: Clocks, { handle, vectorTime, timing, adopted }: SharedEvent): Event {
    if (Atomics.exchange(adopted, 0, 1) === 1) {
      throw new PoolError('adoptEvent: the event was adopted already; each event.transfer() can be adopted once')
    }
    const event = new Event(clocks.context, timing, handle)
    event.clocks = clocks
    event.vectorTime = Array.from(vectorTime)
    return event
  }

  /**
   * Hands the event over, as it was recorded last. Send the descriptor to another thread that has the device
   * attached; `device.adoptEvent(descriptor)` makes an event of it there, once. The event cannot be used here
   * afterwards. Throws PoolError for an event that was never recorded, or was recorded in a capture.
   */
  transfer(): SharedEvent {
    const handle = this.recordedHandle('transfer')
    const clocks = this.uncaptured('transfer')
    clocks.share()
    this.handle = 0
    this.transferred = true
    const { timing } = this
    const adopted = new Int32Array(new SharedArrayBuffer(4))
    return { device: clocks.identity, handle, vectorTime: Float64Array.from(this.vectorTime), timing, adopted }
  }

  /**
   * Moves the event behind everything submitted to `stream` so far. Throws PoolError for a closed event or stream, or
   * a stream of another device; CudaError if the driver refuses, and the event is then as it was.
   */
  record(stream: Stream): void {
    const handle = this.openHandle('record')
    checkIsStream('record', stream)
    stream.checkUsable('record')
    if (stream.context !== this.context) {
      throw new PoolError(
        'record: the stream belongs to another device; use an event of that device',
        'ERR_OTHER_DEVICE',
      )
    }
    const driver = this.context.activate()
    stream.ask('record', streamHandle => {
      const clocks = stream.capture ?? stream.clocks
      const vectorTime = clocks.tick(stream.capture === null ? stream.slot : stream.lastSlot)
      driver.cuEventRecord(handle, streamHandle)
      this.clocks = clocks
      this.vectorTime = vectorTime
    })
  }

  /**
   * Whether all work before the last record has completed. Throws PoolError for an event that was never recorded, was
   * recorded in a capture, or is closed.
   */
  query(): boolean {
    const handle = this.recordedHandle('query')
    const clocks = this.uncaptured('query')
    const { vectorTime } = this
    const driver = this.context.activate()
    if (!relaxed(driver, () => driver.cuEventQuery(handle))) return false
    clocks.watcher.learn(vectorTime, false)
    return true
  }

  /** Blocks the thread until all work before the last record has completed. Throws as `query`. */
  synchronize(): void {
    const handle = this.recordedHandle('synchronize')
    const clocks = this.uncaptured('synchronize')
    const { vectorTime } = this
    const driver = this.context.activate()
    relaxed(driver, () => driver.cuEventSynchronize(handle))
    clocks.watcher.learn(vectorTime, true)
  }

  /**
   * Resolves when all work before the last record has completed; Node goes on meanwhile. A close of the device waits
   * for that work, so the promise resolves then, too. Rejects as `query` throws, with PoolError if the event is closed
   * before the work is known to be complete, and with the reason of `signal` when it is aborted.
   */
  async finished(options: WaitOptions = {}): Promise<void> {
    const signal = signalOf('finished', options)
    this.recordedHandle('finished')
    this.uncaptured('finished')
    this.context.activate()
    await untilDone(() => this.isKnownComplete || this.query(), { signal })
  }

  /** Whether the host has seen the last record complete. A closed device can be asked for nothing more. */
  private get isKnownComplete(): boolean {
    const [slot, stamp] = this.vectorTime
    return !(this.clocks instanceof Capture) && this.clocks!.completed[slot] >= stamp
  }

  /**
   * Milliseconds of the GPU's clock between the last record of `earlier` and the last one of this event; negative if
   * that order was the other way round. Both records must be complete, for example after `await event.finished()`.
   * The resolution is about half a microsecond. On the simulated device it is modelled time: that of the driver calls
   * between both completions. Throws TypeError for anything else than an Event. Throws PoolError unless both events
   * are of one device, were made by `createEvent({ timing: true })`, and their records are complete.
   */
  elapsedSince(earlier: Event): number {
    if (!(earlier instanceof Event)) {
      throw new WrongTypeError(`elapsedSince: earlier must be an Event, not ${describe(earlier)}`)
    }
    const [start, end] = [earlier.timedHandle(), this.timedHandle()]
    if (!earlier.context.sharesDevice(this.context)) {
      throw new PoolError(
        'elapsedSince: the events are of two devices, which have clocks of their own',
        'ERR_OTHER_DEVICE',
      )
    }
    if (!earlier.query() || !this.query()) {
      throw new PoolError('elapsedSince: the work before the records is not complete; await event.finished() first')
    }
    const driver = this.context.activate()
    const elapsedMs = relaxed(driver, () => driver.cuEventElapsedTime(start, end))
    return Number(elapsedMs.toPrecision(7)) // the digits of a float32
  }

  /**
   * Destroys the event. A second close only repeats what the driver refused at the first. A close after the device's
   * does nothing.
   */
  close(): void {
    const { handle, context } = this
    this.handle = 0
    if (handle === 0) context.destroyRest()
    else if (!context.released) context.destroy(driver => driver.cuEventDestroy(handle))
  }

  /** `close()` at the end of a `using` block. Where that throws, this warns. */
  [Symbol.dispose](): void {
    disposeOf(this, () => this.close())
  }

  /** One line for people, such as `Event { recorded }`; console.log shows it. */
  toString(): string {
    return `Event { ${this.condition} }`
  }

  /** The plain values that JSON.stringify writes. */
  toJSON(): object {
    return { device: this.context.ordinal, state: this.condition, timing: this.timing }
  }

  private get condition(): string {
    if (this.transferred) return 'handed to another thread'
    if (this.handle === 0 || this.context.released) return 'closed'
    if (this.clocks === null) return 'never recorded'
    return this.clocks instanceof Capture ? 'recorded in a capture' : 'recorded'
  }

  /**
   * For `stream.wait`: work submitted to `stream` from now on starts after the last record.
   * @internal
   */
  delay(stream: Stream): void {
    const handle = this.recordedHandle('wait')
    if (this.clocks instanceof Capture) {
      this.delayCaptured(this.clocks, handle, stream)
      return
    }
    stream.checkOpen('wait: the event was recorded outside of the capture')
    if (this.clocks === stream.clocks) stream.clocks.delay(stream.slot, handle, this.vectorTime)
    else {
      const driver = stream.context.activate()
      stream.submit('wait', streamHandle => driver.cuStreamWaitEvent(streamHandle, handle))
      stream.clocks.notePeerWait()
    }
  }

  private delayCaptured(capture: Capture, handle: number, stream: Stream): void {
    this.checkUnended(capture, 'wait')
    if (stream.context !== this.context) {
      throw new PoolError('wait: a capture has streams of one device only', 'ERR_OTHER_DEVICE')
    }
    if (stream.capture !== capture) {
      stream.checkOpen('wait: the event belongs to another capture')
      capture.join(stream)
      try {
        stream.context.activate().cuStreamWaitEvent(stream.handle, handle)
      } catch (error) {
        capture.leave(stream)
        throw error
      }
    } else stream.context.activate().cuStreamWaitEvent(stream.handle, handle)
    capture.follow(stream.lastSlot, this.vectorTime)
  }

  private checkUnended(capture: Capture, call: string): void {
    if (capture.ended) {
      throw new PoolError(`${call}: the event was recorded in a capture, which has ended; record it again`)
    }
  }

  /**
   * The clocks of the last record. Throws PoolError for a record in a capture, which never happened on the device.
   */
  private uncaptured(call: string): Clocks {
    const clocks = this.clocks!
    if (!(clocks instanceof Capture)) return clocks
    this.checkUnended(clocks, call)
    throw new PoolError(`${call}: the event was recorded in a capture; wait for what launches the graph instead`)
  }

  /** The handle of an event whose last record has a time. */
  private timedHandle(): number {
    const handle = this.recordedHandle('elapsedSince')
    this.uncaptured('elapsedSince')
    if (this.timing) return handle
    throw new PoolError('elapsedSince: the event notes no time; make both with device.createEvent({ timing: true })')
  }

  private openHandle(call: string): number {
    if (this.transferred) {
      throw new PoolError(`${call}: the event was handed to another thread; adopt it there, or create one here`)
    }
    if (this.handle === 0) throw new PoolError(`${call}: the event is closed; use an open one`)
    // The handle may be that of another event by now.
    if (this.context.released) {
      throw new PoolError(
        `${call}: the device is closed, and its events are; open it again and create another event`,
        'ERR_DEVICE_CLOSED',
      )
    }
    return this.handle
  }

  private recordedHandle(call: string): number {
    const handle = this.openHandle(call)
    if (this.clocks === null) throw new PoolError(`${call}: the event was never recorded; call record(stream) first`)
    return handle
  }
}

showAsText(Event)
