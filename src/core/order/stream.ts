// A stream of work, and its life: made here, adopted from another library or lent by another thread; open, captured,
// closed. The file is long because each public verb first has to find out which of these the stream is.

import { WrongTypeError } from '../base/argument-errors.js'
import { describe } from '../base/bytes.js'
import { disposeOf } from '../base/disposal.js'
import { PoolError } from '../base/errors.js'
import { showAsText } from '../base/readable.js'
import { CU_STREAM_LEGACY_DEFAULT, CU_STREAM_NON_BLOCKING, CU_STREAM_PER_THREAD } from '../driver/constants.js'
import type { Context } from '../driver/context.js'
import { type CapturableStream, Capture, type CaptureMode } from './capture.js'
import type { Clocks } from './clocks.js'
import type { Graph } from './graph.js'
import { streamName } from './ordered-stream.js'
import { untilDone } from './polling.js'
import { relaxed } from './relaxed.js'
import { MOST_STREAMS } from './vector-clocks.js'
import { signalOf, type WaitOptions } from './wait-options.js'

/** Below all stamps, and no whole number, so that V8 keeps the field of a stream a float64. */
const NO_WORK = -0.5

/** Descriptor of a stream for another thread; made by `stream.share()`. */
export interface SharedStream {
  /** identifies the stream's device among those of the process */
  readonly device: number
  /** index of the stream among the device's open streams */
  readonly slot: number
  /** counts the streams that had the slot, one after another */
  readonly generation: number
}

/** Options of `device.createStream`. */
export interface StreamOptions {
  /**
   * a whole number from `device.properties.greatestPriority` to `leastPriority`; the GPU starts waiting work of
   * streams with lower numbers first (0, the lowest priority)
   */
  readonly priority?: number
}

/** Something that a stream can wait for: an `Event`. */
export interface Waitable {
  /** whether the event notes the time of its record */
  readonly timing: boolean
  /**
   * the context of the device that the event is on
   * @internal
   */
  readonly context: Context
  /**
   * Work submitted to `stream` from now on starts after the last record.
   * @internal
   */
  delay(stream: Stream): void
}

/**
 * A queue of work on a device. Work submitted to one stream runs in order; different streams run beside each other.
 */
export class Stream implements CapturableStream, Disposable {
  /**
   * the CUDA context of the stream's device
   * @internal
   */
  readonly context: Context
  /**
   * the stream's clocks while it takes work, as far as this thread has noticed; undefined if another thread can end
   * the stream
   * @internal
   */
  own: Clocks | undefined
  /**
   * as `own`; undefined for the per-thread default stream, too
   * @internal
   */
  readonly trusted: Clocks | undefined
  /**
   * the driver's handle, for use with any other library; NaN first, so that all streams have a float64 here and one
   * hidden class
   */
  readonly handle: number = Number.NaN
  /**
   * counts the streams that had the slot, one after another
   * @internal
   */
  readonly generation: number
  /**
   * index into the clocks; -1 once this thread has noticed that the stream is closed or captured
   * @internal
   */
  slot: number
  /**
   * while `slot` is -1: the former slot, and the stamp that covers all work submitted there; a float64 from the start
   * @internal
   */
  lastSlot = -1
  /** @internal */
  lastStamp = Number.NaN
  /**
   * the capture that the stream is part of
   * @internal
   */
  capture: Capture | null = null
  /**
   * of the legacy default stream: the capture that any work for it would break
   * @internal
   */
  blockedBy: Capture | null = null

  /**
   * the stamp that covers the work that this thread has submitted last, in the clocks of the capture while captured;
   * a float64 below all stamps before the first work
   */
  private workStamp = NO_WORK
  /** while captured: `workStamp` from before */
  private stampBefore = NO_WORK

  /** Made by the device: `device.createStream()`, `device.adoptStream(handle)`. */
  constructor(
    /** @internal */
    readonly clocks: Clocks,
    handle: number,
    /**
     * made by this library: `close` destroys it, and only our calls order it with other streams; false for an adopted
     * stream
     */
    readonly owned: boolean,
    private readonly beforeClose: (stream: Stream) => void = () => {},
    /** the slot of another thread's open stream, which that thread ends */
    private readonly lent?: SharedStream,
  ) {
    this.context = clocks.context
    this.own = lent === undefined ? clocks : undefined
    this.trusted = lent !== undefined || handle === CU_STREAM_PER_THREAD ? undefined : clocks
    this.handle = handle
    if (lent !== undefined) clocks.registry.lend(this, lent.slot)
    this.slot = lent?.slot ?? clocks.registry.open(this)
    this.generation = lent?.generation ?? clocks.slots.generationOf(this.slot)
  }

  /**
   * A stream that is not ordered with the default stream. A refused call leaves nothing behind.
   * @internal
   */
  static create(clocks: Clocks, beforeClose?: (stream: Stream) => void, priority = 0): Stream {
    const driver = clocks.context.activate()
    const handle =
      priority === 0
        ? driver.cuStreamCreate(CU_STREAM_NON_BLOCKING)
        : driver.cuStreamCreateWithPriority(CU_STREAM_NON_BLOCKING, priority)
    try {
      return new Stream(clocks, handle, true, beforeClose)
    } catch (error) {
      clocks.context.discard(() => driver.cuStreamDestroy(handle))
      throw error
    }
  }

  /**
   * This thread's object for another thread's open stream; null if the stream was closed there.
   * @internal
   */
  static borrow(clocks: Clocks, lent: SharedStream, beforeClose?: (stream: Stream) => void): Stream | null {
    const handle = clocks.handles[lent.slot]
    if (!clocks.slots.isCurrent(lent.slot, lent.generation)) return null
    return new Stream(clocks, handle, false, beforeClose, lent)
  }

  /** Whether the stream was closed, in any thread; a captured stream is not closed. */
  get closed(): boolean {
    if (this.slot !== -1 && this.lent !== undefined) this.noticeEnd()
    return this.slot === -1 && this.capture === null && this.blockedBy === null
  }

  /** Whether the stream takes work that runs; false once closed or captured, in any thread. */
  get isOpen(): boolean {
    return this.slot !== -1 && this.clocks.slots.isOpenIn(this.slot, this.generation)
  }

  /**
   * The priority that the stream was made with: lower numbers come first, and 0 is the default. Asks the driver, also
   * about a stream of another library. Throws PoolError for a closed stream.
   */
  get priority(): number {
    this.checkUsable('priority')
    const driver = this.context.activate()
    return this.ask('priority', handle => driver.cuStreamGetPriority(handle))
  }

  /**
   * False for the per-thread default stream: each thread has a different one.
   * @internal
   */
  get isShareable(): boolean {
    return this.handle !== CU_STREAM_PER_THREAD
  }

  /**
   * Submits work to an open stream, or one that is captured here, as `ask` does.
   * @internal
   */
  submit<R>(call: string, work: (handle: number) => R): R {
    this.noteWork()
    return this.ask(call, work)
  }

  /**
   * The next work of the stream comes after something that other streams know nothing of yet.
   * @internal
   */
  noteWork(): void {
    const { capture } = this
    this.workStamp = 1 + (capture === null ? this.clocks.marked[this.slot] : capture.marked[this.lastSlot])
  }

  /**
   * Whether all work that was submitted to `earlier` so far is known to come before the next work of this stream: by
   * events, or since the host has seen it complete. Of streams to which others submit work, only completion is known.
   * @internal
   */
  comesAfter(earlier: Stream): boolean {
    if (earlier === this) return true
    if (earlier.capture !== null) {
      if (earlier.capture !== this.capture) return false
      const { known, stride } = earlier.capture
      // The stamps of marks are at least 0, so a stream without work comes first.
      if (!(known[this.lastSlot * stride + earlier.lastSlot] >= earlier.workStamp)) return false
    }
    const [slot, stamp] = earlier.ranUpTo
    const { clocks } = earlier
    if (clocks.completed[slot] >= stamp) return true
    if (this.clocks !== clocks) return false
    const [own] = this.covering
    return clocks.known[own * MOST_STREAMS + slot] >= stamp || clocks.orderedElsewhere[slot] >= stamp
  }

  /**
   * Whether work that was submitted to `earlier` so far may come after the next work of this stream. Of streams on
   * which others submit work, and of other devices, that is not known, and the answer is false.
   * @internal
   */
  mayComeBefore(earlier: Stream): boolean {
    return this.isOurs && earlier.isOurs && this.clocks === earlier.clocks && !this.comesAfter(earlier)
  }

  /**
   * Whether this stream can be made to wait for all work of `earlier` without a mark of the program: that one is
   * closed, so no later work can follow.
   * @internal
   */
  canFollow(earlier: Stream): boolean {
    return earlier.closed && this.slot !== -1 && this.clocks === earlier.clocks
  }

  /**
   * Makes this stream wait for all work of `earlier`, see `canFollow`.
   * @internal
   */
  follow(earlier: Stream): void {
    this.clocks.order(this.slot, ...earlier.covering, false)
  }

  /** Whether all work of the stream, in this thread, is submitted by calls of this package. */
  private get isOurs(): boolean {
    return this.owned || this.handle <= CU_STREAM_LEGACY_DEFAULT
  }

  /** Slot and stamp of the work that runs, without captured work. */
  private get ranUpTo(): readonly [slot: number, stamp: number] {
    if (!this.isOurs) return this.covering
    if (this.slot !== -1) return [this.slot, this.workStamp]
    return [this.lastSlot, this.capture === null ? this.workStamp : this.stampBefore]
  }

  /**
   * Calls the driver for an open stream, or one that is captured here; no other thread ends or captures it meanwhile.
   * Throws PoolError, in the name of `call`, if another thread has already done so.
   * @internal
   */
  ask<R>(call: string, work: (handle: number) => R): R {
    // Every thread has the default stream, which is never destroyed.
    if (this.lent === undefined || this.handle === CU_STREAM_LEGACY_DEFAULT) return work(this.handle)
    const { slots } = this.clocks
    if (!slots.pin(this.slot, this.generation)) throw this.refusal(call)
    try {
      return work(this.handle)
    } finally {
      slots.unpin()
    }
  }

  /**
   * A small descriptor for another thread that has the device attached; `device.adoptStream(descriptor)` makes a
   * stream of it there. This thread keeps the stream, and its close ends the stream everywhere. Throws PoolError for
   * a closed or captured stream, and for the per-thread default stream.
   */
  share(): SharedStream {
    this.checkOpen('share')
    this.checkShareable('share')
    this.clocks.share()
    return { device: this.clocks.identity, slot: this.slot, generation: this.generation }
  }

  /**
   * Work submitted to this stream from now on starts after `event`'s last record, on any device. Nothing waits on the
   * host. Throws PoolError for an event that was never recorded or is closed, and for a closed stream; TypeError for
   * anything else than an Event.
   */
  wait(event: Waitable): void {
    this.checkUsable('wait')
    if (typeof event?.delay !== 'function') {
      throw new WrongTypeError(
        `wait: event must be an Event, not ${describe(event)}; record one on the stream to wait for`,
      )
    }
    if (!event.context.sharesAddresses(this.context)) {
      throw new PoolError(
        'wait: the event belongs to another device, of another driver; open both with openDevices()',
        'ERR_OTHER_DEVICE',
      )
    }
    event.delay(this)
  }

  /**
   * Slot and stamp of the first mark that covers everything submitted so far: the next mark, or the last mark of a
   * closed stream.
   * @internal
   */
  get covering(): readonly [slot: number, stamp: number] {
    if (this.closed || this.slot < 0) return [this.lastSlot, this.lastStamp]
    return [this.slot, this.clocks.covering(this.slot)]
  }

  /**
   * Records work submitted to this stream instead of running it, until `endCapture`. Another stream that is made to
   * wait for this stream is captured as well; it must be joined again, by an event, before the end. Memory for
   * captured work comes from caching pools and block pools, or from the arena of a graph group. Throws PoolError for
   * the default stream and for a closed stream, TypeError for an unknown mode.
   */
  beginCapture(mode?: CaptureMode): void {
    this.startCapture('beginCapture', mode)
  }

  /**
   * `beginCapture` in the name of `call`.
   * @internal
   */
  startCapture(call: string, mode?: CaptureMode): void {
    this.checkOpen(call)
    this.checkCapturable(call)
    Capture.begin(call, this, mode)
  }

  /**
   * Throws PoolError, in the name of `call`, for a stream that cannot be captured: the default stream, or another
   * thread's.
   * @internal
   */
  checkCapturable(call: string): void {
    if (this.handle === CU_STREAM_LEGACY_DEFAULT) {
      throw new PoolError(`${call}: the default stream cannot be captured; create one`)
    }
    if (this.lent === undefined) return
    throw new PoolError(`${call}: the stream is another thread's; capture it there, or one that was made here`)
  }

  /**
   * Ends the capture that began on this stream, and makes a graph of it. Throws CudaError if a call has broken the
   * capture, or a stream was not joined again; nothing of the capture is left then. Throws PoolError if no capture
   * began here.
   */
  endCapture(): Graph<undefined> {
    return this.endCaptureWith(undefined)
  }

  /**
   * `endCapture`, with a result for the graph.
   * @internal
   */
  endCaptureWith<R>(result: R): Graph<R> {
    return this.originated('endCapture').end(result)
  }

  /**
   * Ends the capture that began on this stream, and drops what was recorded. Throws CudaError if the driver refuses;
   * call it again then. Throws PoolError if no capture began here.
   */
  abortCapture(): void {
    this.originated('abortCapture').abort()
  }

  /** Whether everything submitted so far has completed. Throws PoolError for a closed or captured stream. */
  query(): boolean {
    this.checkOpen('query')
    const driver = this.context.activate()
    return this.ask('query', handle => {
      const vectorTime = this.clocks.tick(this.slot)
      if (!relaxed(driver, () => driver.cuStreamQuery(handle))) return false
      this.clocks.watcher.learn(vectorTime, false)
      return true
    })
  }

  /**
   * Blocks the thread until everything submitted so far has completed. Throws PoolError for a closed or captured
   * stream.
   */
  synchronize(): void {
    this.checkOpen('synchronize')
    if (this.lent !== undefined) {
      this.clocks.watcher.waitForAll(this.slot) // waits for an event, since the stream's thread may close it meanwhile
      return
    }
    const vectorTime = this.clocks.tick(this.slot)
    const driver = this.context.activate()
    relaxed(driver, () => driver.cuStreamSynchronize(this.handle))
    this.clocks.watcher.learn(vectorTime, true)
  }

  /**
   * Resolves when everything submitted so far has completed, also if the stream or the device is closed meanwhile; Node
   * goes on until then. Rejects with PoolError for a stream that was closed before, or is captured, and with the reason
   * of `signal` when it is aborted.
   */
  async finished(options: WaitOptions = {}): Promise<void> {
    const signal = signalOf('finished', options)
    this.checkOpen('finished')
    const { clocks, slot } = this
    const stamp = clocks.watcher.mark(slot)
    await untilDone(
      () => {
        clocks.watcher.poll(slot)
        return clocks.completed[slot] >= stamp
      },
      { signal },
    )
  }

  /**
   * Ends the stream; work already submitted still completes. An adopted stream stays open for its owner, and the
   * default stream stays open until the device closes. A second close only repeats what the driver refused at the
   * first. Throws PoolError for a captured stream.
   */
  close(): void {
    if (this.handle !== CU_STREAM_LEGACY_DEFAULT) this.end()
  }

  /**
   * For the device's close: `close`, also of the default stream.
   * @internal
   */
  end(): void {
    if (this.closed) {
      this.beforeClose(this) // of a stream that another thread has ended
      this.context.destroyRest()
      return
    }
    const isLent = this.lent !== undefined && this.slot !== -1
    if (!isLent) this.checkOpen('close')
    this.beforeClose(this)
    if (isLent) this.clocks.registry.giveUp(this)
    else this.context.giveBack(() => this.clocks.registry.retire(this.slot))
    this.leaveSlot()
    if (this.owned) this.context.destroy(driver => driver.cuStreamDestroy(this.handle))
  }

  /**
   * For an adopted stream that was destroyed elsewhere before it was closed here, or may have been. Its handle may
   * belong to a new stream. The driver cannot be asked about the old stream, so all work on the device is waited for.
   * @internal
   */
  abandon(): void {
    this.beforeClose(this)
    this.context.giveBack(() => this.clocks.registry.abandon(this.slot))
    this.leaveSlot()
  }

  /** `close()` at the end of a `using` block. Where that throws, this warns. */
  [Symbol.dispose](): void {
    disposeOf(this, () => this.close())
  }

  /** One line for people, such as `Stream { stream 0x10, open }`; console.log shows it. */
  toString(): string {
    return `Stream { ${streamName(this.handle)}, ${this.condition} }`
  }

  /** The plain values that JSON.stringify writes. */
  toJSON(): object {
    return { handle: this.handle, device: this.context.ordinal, state: this.condition }
  }

  /** `open`, `closed`, or in a capture. */
  private get condition(): string {
    if (this.capture !== null) return 'captured'
    if (this.closed) return 'closed'
    return this.isOpen ? 'open' : 'kept idle by a capture'
  }

  /**
   * For captures: the stream gets no marks until `resume`.
   * @internal
   */
  suspend(): void {
    this.clocks.registry.suspend(this)
    this.leaveSlot()
    this.stampBefore = this.workStamp
    this.workStamp = NO_WORK
  }

  /**
   * For captures: ends `suspend`; a stream that was not suspended stays as it is.
   * @internal
   */
  resume(): void {
    if (this.slot !== -1) return
    this.clocks.registry.resume(this)
    this.slot = this.lastSlot
    this.workStamp = this.stampBefore
    if (this.lent === undefined) this.own = this.clocks
  }

  /**
   * Throws PoolError, in the name of `call`, if the stream is closed or captured.
   * @internal
   */
  checkOpen(call: string): void {
    if (this.isOpen) return
    if (this.slot !== -1) this.clocks.slots.takeBackEnd(this.slot)
    if (!this.isOpen) throw this.refusal(call)
  }

  /**
   * Throws PoolError, in the name of `call`, if the stream takes no work; a captured stream does.
   * @internal
   */
  checkUsable(call: string): void {
    if (this.capture === null) this.checkOpen(call)
  }

  /**
   * Throws PoolError, in the name of `call`, for a captured stream: the pool cannot keep memory for a graph.
   * @internal
   */
  checkUncaptured(call: string): void {
    if (this.capture === null) return
    const fact = 'the stream is being captured, and this pool keeps no memory for a graph'
    throw new PoolError(`${call}: ${fact}; do it when the capture has ended`, 'ERR_STREAM_CAPTURED')
  }

  /**
   * Throws PoolError, in the name of `call`, for the per-thread default stream, on which other threads can place no
   * marks.
   * @internal
   */
  checkShareable(call: string): void {
    if (this.isShareable) return
    const fact =
      'the per-thread default stream is another one in each thread, and cannot be used with what threads share'
    throw new PoolError(`${call}: ${fact}; use a stream of device.createStream()`)
  }

  private refusal(call: string): PoolError {
    if (this.capture !== null) {
      return new PoolError(`${call}: the stream is being captured; end the capture first`, 'ERR_STREAM_CAPTURED')
    }
    if (this.closed) {
      const name = streamName(this.handle)
      const fact = this.lent === undefined ? 'the stream is closed' : `${name} is closed, here or where it was made`
      return new PoolError(`${call}: ${fact}; use an open one`, 'ERR_STREAM_CLOSED')
    }
    if (this.slot !== -1) {
      const isDefault = this.handle === CU_STREAM_LEGACY_DEFAULT
      const fact = isDefault ? 'is kept idle by a capture' : 'is being captured, or just being closed,'
      return new PoolError(
        `${call}: ${streamName(this.handle)} ${fact} in another thread; wait until that has ended`,
        'ERR_STREAM_CAPTURED',
      )
    }
    const fact = 'a stream that is ordered with the default stream is being captured'
    return new PoolError(
      `${call}: ${fact}; end the capture first, or capture a stream of device.createStream()`,
      'ERR_STREAM_CAPTURED',
    )
  }

  private originated(call: string): Capture {
    if (this.capture?.origin === this) return this.capture
    if (this.capture !== null) throw new PoolError(`${call}: the capture began on another stream; end it there`)
    this.checkOpen(call)
    throw new PoolError(`${call}: the stream is not being captured; call beginCapture() first`)
  }

  /** If another thread has ended the stream that it lent, the stream is closed here, too. */
  private noticeEnd(): void {
    if (!this.clocks.slots.hasEnded(this.slot, this.generation)) return
    this.clocks.registry.forget(this)
    this.leaveSlot()
  }

  private leaveSlot(): void {
    this.lastSlot = this.slot
    this.lastStamp = this.clocks.marked[this.slot]
    this.slot = -1
    this.own = undefined
  }
}

showAsText(Stream)

/** Throws TypeError, in the name of `call`, for anything else than a Stream. */
export function checkIsStream(call: string, stream: unknown): asserts stream is Stream {
  if (!(stream instanceof Stream)) throw new WrongTypeError(`${call}: stream must be a Stream, not ${describe(stream)}`)
}

/**
 * Throws TypeError, in the name of `call`, for anything else than a Stream, and PoolError for a stream of another
 * device.
 */
export function checkStreamOf(call: string, stream: unknown, clocks: Clocks): asserts stream is Stream {
  checkIsStream(call, stream)
  if (stream.clocks !== clocks) {
    throw new PoolError(`${call}: the stream belongs to another device; pass one of this`, 'ERR_OTHER_DEVICE')
  }
}

/** By slot: this thread's open stream, null while it is captured. */
export function openStreams(clocks: Clocks): readonly (Stream | null)[] {
  return clocks.streams as readonly (Stream | null)[] // only the constructor registers streams
}

/** This thread's stream in a slot, open or captured; null for none. */
export function streamOf(clocks: Clocks, slot: number): Stream | null {
  return clocks.registry.streamOf(slot) as Stream | null // as above
}
