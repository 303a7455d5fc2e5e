import { describe } from '../base/bytes.js'
import { PoolError } from '../base/errors.js'
import { CU_STREAM_LEGACY_DEFAULT, CU_STREAM_NON_BLOCKING, CU_STREAM_PER_THREAD } from '../driver/constants.js'
import type { Context } from '../driver/context.js'
import { Capture, type CaptureMode } from './capture.js'
import type { Clocks } from './clocks.js'
import type { Event } from './event.js'
import type { Graph } from './graph.js'
import { untilDone } from './polling.js'
import { relaxed } from './relaxed.js'

/** What another thread needs to use a stream; made by `stream.share()`. */
export interface SharedStream {
  /** which of the process's devices it is a stream of */
  readonly device: number
  /** its index among the streams of the device */
  readonly slot: number
  /** which use of the slot it is */
  readonly generation: number
}

/** A queue of work on a device: what is submitted to one stream runs in order, different streams run beside each other. */
export class Stream implements Disposable {
  /** @internal */
  readonly context: Context
  /** its clocks; undefined for a stream that another thread can end, whose `slot` alone does not tell whether it takes work */
  readonly own: Clocks | undefined
  /** its clocks where `slot` alone tells whether it takes work; undefined for one that another thread can end, and for the per-thread default stream */
  readonly trusted: Clocks | undefined
  /** the driver's handle, for any other library; a float64 from the start, so that all streams have one shape */
  readonly handle: number = Number.NaN
  /** which of the streams that had its slot, one after another, it is */
  readonly generation: number
  /** index into the clocks, -1 once closed and while it is captured, as far as this thread has noticed */
  slot: number
  /** while `slot` is -1: the slot that it had, and the stamp that covers everything submitted to it and run; a float64 from the start */
  lastSlot = -1
  /** @internal */
  lastStamp = Number.NaN
  /** the capture that it is part of */
  capture: Capture | null = null
  /** of the legacy default stream: the capture that any work for it would break */
  blockedBy: Capture | null = null

  /** Made by the device: `device.createStream()`, `device.adoptStream(handle)`. */
  constructor(
    /** @internal */
    readonly clocks: Clocks,
    handle: number,
    /** made here: ended by `close`, and ordered with other streams by nothing but our calls; else adopted */
    readonly owned: boolean,
    private readonly beforeClose: (stream: Stream) => void = () => {},
    /** the open slot of a stream of another thread, which ends it */
    private readonly lent?: SharedStream,
  ) {
    this.context = clocks.context
    this.own = lent === undefined ? clocks : undefined
    this.trusted = lent !== undefined || handle === CU_STREAM_PER_THREAD ? undefined : clocks
    this.handle = handle
    if (lent !== undefined) clocks.lend(this, lent.slot)
    this.slot = lent?.slot ?? clocks.open(this)
    this.generation = lent?.generation ?? clocks.slots.generationOf(this.slot)
  }

  /** A stream of its own, not ordered with the default stream; nothing stays behind when that fails. */
  static create(clocks: Clocks, beforeClose?: (stream: Stream) => void): Stream {
    const driver = clocks.context.activate()
    const handle = driver.cuStreamCreate(CU_STREAM_NON_BLOCKING)
    try {
      return new Stream(clocks, handle, true, beforeClose)
    } catch (error) {
      clocks.context.discard(() => driver.cuStreamDestroy(handle))
      throw error
    }
  }

  /** The open stream of another thread that has a slot; null when it was closed there. */
  static borrow(clocks: Clocks, lent: SharedStream, beforeClose?: (stream: Stream) => void): Stream | null {
    const handle = clocks.handles[lent.slot]
    if (!clocks.slots.isCurrent(lent.slot, lent.generation)) return null
    return new Stream(clocks, handle, false, beforeClose, lent)
  }

  /** True after `close`, also of the thread that lent the stream. */
  get closed(): boolean {
    if (this.slot !== -1 && this.lent !== undefined) this.noticeEnd()
    return this.slot === -1 && this.capture === null && this.blockedBy === null
  }

  /** Whether it takes work that runs, in whichever thread it was made. */
  get isOpen(): boolean {
    return this.slot !== -1 && this.clocks.slots.isOpenIn(this.slot, this.generation)
  }

  /** False for the per-thread default stream, which is another one in each thread. */
  get isShareable(): boolean {
    return this.handle !== CU_STREAM_PER_THREAD
  }

  /**
   * Calls the driver for an open stream, or one that is captured here; no other thread ends or captures it meanwhile. Refuses,
   * in the name of `call`, a stream of another thread where that has done so.
   */
  submit<R>(call: string, work: (handle: number) => R): R {
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
   * A small descriptor, to be sent to another thread that has the device attached, where `device.adoptStream(descriptor)`
   * makes a stream of it. It stays this one's: it is closed here, after which it refuses there. Throws PoolError for a closed
   * or captured stream, and for the per-thread default stream.
   */
  share(): SharedStream {
    this.checkOpen('share')
    this.checkShareable('share')
    this.clocks.share()
    return { device: this.clocks.identity, slot: this.slot, generation: this.generation }
  }

  /**
   * Work submitted to this stream from now on starts after `event`'s last record, on whichever device that was; an event
   * never recorded is an error. Nothing waits on the host.
   */
  wait(event: Event): void {
    this.checkUsable('wait')
    // By what it can do, since both files cannot import each other.
    if (typeof event?.delay !== 'function') {
      throw new TypeError(`wait: event must be an Event, not ${describe(event)}; record one on the stream to wait for`)
    }
    if (!event.context.sharesAddresses(this.context)) {
      throw new PoolError('wait: the event belongs to another device, of another driver; open both with openDevices()')
    }
    event.delay(this)
  }

  /** Slot and stamp of the first mark that will cover everything submitted so far, or of a closed stream did. */
  get covering(): readonly [slot: number, stamp: number] {
    if (this.closed || this.slot < 0) return [this.lastSlot, this.lastStamp]
    return [this.slot, this.clocks.covering(this.slot)]
  }

  /**
   * What is submitted to this stream from now on is recorded instead of run, until `endCapture`; so is work of other streams
   * that are made to wait for it, which must be joined to it again, by an event, before the end. Memory for captured work
   * comes from caching pools only. Throws PoolError for the default stream.
   */
  beginCapture(mode: CaptureMode = 'global'): void {
    this.checkOpen('beginCapture')
    this.checkCapturable('beginCapture')
    Capture.begin(this, mode)
  }

  /** Refuses, in the name of `call`, the default stream, which the driver does not capture. */
  checkCapturable(call: string): void {
    if (this.handle === CU_STREAM_LEGACY_DEFAULT) {
      throw new PoolError(`${call}: the default stream cannot be captured; create one`)
    }
    if (this.lent === undefined) return
    throw new PoolError(`${call}: the stream is another thread's; capture it there, or one that was made here`)
  }

  /**
   * Ends the capture that began on this stream, and makes a graph of it. Throws CudaError for a capture that a call has
   * broken or of which a stream was not joined again; nothing of it is left then.
   */
  endCapture(): Graph {
    return this.originated('endCapture').end()
  }

  /** Ends the capture that began on this stream without making anything of it. Throws CudaError where the driver refuses that: do it again. */
  abortCapture(): void {
    this.originated('abortCapture').abort()
  }

  /** True when everything submitted so far has completed. */
  query(): boolean {
    this.checkOpen('query')
    const driver = this.context.activate()
    return this.submit('query', handle => {
      const vectorTime = this.clocks.tick(this.slot)
      if (!relaxed(driver, () => driver.cuStreamQuery(handle))) return false
      this.clocks.learn(vectorTime, false)
      return true
    })
  }

  /** Blocks the thread until everything submitted so far has completed. */
  synchronize(): void {
    this.checkOpen('synchronize')
    if (this.lent !== undefined) {
      this.clocks.waitForAll(this.slot) // by an event: its thread can close it meanwhile
      return
    }
    const vectorTime = this.clocks.tick(this.slot)
    const driver = this.context.activate()
    relaxed(driver, () => driver.cuStreamSynchronize(this.handle))
    this.clocks.learn(vectorTime, true)
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

  /**
   * Ends the stream; work already submitted still completes. A second close does nothing but what the driver refused at the
   * first. An adopted stream stays open for its owner.
   */
  close(): void {
    if (this.closed) {
      this.beforeClose(this) // of a stream that another thread has ended
      this.context.destroyRest()
      return
    }
    const isLent = this.lent !== undefined && this.slot !== -1
    if (!isLent) this.checkOpen('close')
    this.beforeClose(this)
    if (isLent) this.clocks.giveUp(this)
    else this.context.giveBack(() => this.clocks.retire(this.slot))
    this.leaveSlot()
    if (this.owned) this.context.destroy(driver => driver.cuStreamDestroy(this.handle))
  }

  /**
   * For an adopted stream that was destroyed elsewhere before it was closed here, so that its handle may mean another one:
   * nothing can be asked of it any more, and all work on the device is waited for.
   */
  abandon(): void {
    this.beforeClose(this)
    this.clocks.abandon(this.slot)
    this.leaveSlot()
  }

  /** The same as `close()`. */
  [Symbol.dispose](): void {
    this.close()
  }

  /** For captures: this stream gets no marks until it is resumed. */
  suspend(): void {
    this.clocks.suspend(this)
    this.leaveSlot()
  }

  /** For captures: ends `suspend`; a stream that was not suspended stays as it is. */
  resume(): void {
    if (this.slot !== -1) return
    this.clocks.resume(this)
    this.slot = this.lastSlot
  }

  /** Refuses, in the name of `call`, a stream that is closed or captured. */
  checkOpen(call: string): void {
    if (this.isOpen) return
    if (this.slot !== -1) this.clocks.slots.takeBackEnd(this.slot)
    if (!this.isOpen) throw this.refusal(call)
  }

  /** Refuses, in the name of `call`, a stream that takes no work; a captured one does. */
  checkUsable(call: string): void {
    if (this.capture === null) this.checkOpen(call)
  }

  /** Refuses, in the name of `call`, a captured stream, for pools that cannot keep memory for a graph. */
  checkUncaptured(call: string): void {
    if (this.capture === null) return
    const fact = 'the stream is being captured, and only ordinary caching pools keep memory for a graph'
    throw new PoolError(`${call}: ${fact}; do it when the capture has ended`)
  }

  /** Refuses, in the name of `call`, the per-thread default stream, for what other threads place marks on. */
  checkShareable(call: string): void {
    if (this.isShareable) return
    const fact =
      'the per-thread default stream is another one in each thread, and cannot be used with what threads share'
    throw new PoolError(`${call}: ${fact}; use a stream of device.createStream()`)
  }

  private refusal(call: string): PoolError {
    if (this.capture !== null) return new PoolError(`${call}: the stream is being captured; end the capture first`)
    if (this.closed) {
      const name = streamName(this.handle)
      const fact = this.lent === undefined ? 'the stream is closed' : `${name} is closed, here or where it was made`
      return new PoolError(`${call}: ${fact}; use an open one`)
    }
    if (this.slot !== -1) {
      const isDefault = this.handle === CU_STREAM_LEGACY_DEFAULT
      const fact = isDefault ? 'is kept idle by a capture' : 'is being captured, or just being closed,'
      return new PoolError(`${call}: ${streamName(this.handle)} ${fact} in another thread; wait until that has ended`)
    }
    const fact = 'a stream that is ordered with the default stream is being captured'
    return new PoolError(`${call}: ${fact}; end the capture first, or capture a stream of device.createStream()`)
  }

  private originated(call: string): Capture {
    if (this.capture?.origin === this) return this.capture
    if (this.capture !== null) throw new PoolError(`${call}: the capture began on another stream; end it there`)
    this.checkOpen(call)
    throw new PoolError(`${call}: the stream is not being captured; call beginCapture() first`)
  }

  /** Another thread may have ended the stream that it lent: it is closed here, too, then. */
  private noticeEnd(): void {
    if (!this.clocks.slots.hasEnded(this.slot, this.generation)) return
    this.clocks.forget(this)
    this.leaveSlot()
  }

  private leaveSlot(): void {
    this.lastSlot = this.slot
    this.lastStamp = this.clocks.marked[this.slot]
    this.slot = -1
  }
}

/** Refuses, in the name of `call`, what is no stream. */
export function checkIsStream(call: string, stream: unknown): asserts stream is Stream {
  if (!(stream instanceof Stream)) throw new TypeError(`${call}: stream must be a Stream, not ${describe(stream)}`)
}

/** Refuses, in the name of `call`, what is no stream, or one of another device than that of `clocks`. */
export function checkStreamOf(call: string, stream: unknown, clocks: Clocks): asserts stream is Stream {
  checkIsStream(call, stream)
  if (stream.clocks !== clocks) throw new PoolError(`${call}: the stream belongs to another device; pass one of this`)
}

/** For messages: a stream by its handle; null for one that is closed. */
export function streamName(handle: number | null): string {
  if (handle === null) return 'a closed stream'
  return handle <= CU_STREAM_LEGACY_DEFAULT ? 'the default stream' : `stream 0x${handle.toString(16)}`
}
