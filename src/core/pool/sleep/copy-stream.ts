// The copies of one sleep or wake, on a stream of their own if a slot is free. A mark after every 64 MiB tells how far
// they have come.

import { MiB } from '../../base/bytes.js'
import { DeviceLostError, PoolError } from '../../base/errors.js'
import { isDriverError } from '../../base/thrown.js'
import { CU_STREAM_LEGACY_DEFAULT } from '../../driver/constants.js'
import { copyMany } from '../../driver/copy-many.js'
import type { BatchedCopy, CopyDirection } from '../../driver/driver.js'
import type { Clocks } from '../../order/clocks.js'
import { untilDone } from '../../order/polling.js'
import { openStreams, Stream } from '../../order/stream.js'
import type { SleepProgress } from './sleep-options.js'

/** Bytes that a mark covers, at least. */
export const COPY_STEP_BYTES = 64 * MiB
const MOST_STEPS_OUT = 2

interface Step {
  readonly stamp: number
  readonly bytes: number
}

export class CopyStream {
  readonly stream: Stream
  /** of the stream, also while a capture keeps it idle */
  private readonly slot: number
  private readonly steps: Step[] = []
  private unmarkedBytes = 0
  /** The call that submitted the copies has ended, and streams wait for them. */
  private isHeld = false
  private copiedBytes = 0

  constructor(
    private readonly clocks: Clocks,
    private readonly totalBytes: number,
    private onProgress: ((progress: SleepProgress) => void) | undefined,
  ) {
    this.stream = streamFor(clocks)
    this.slot = this.stream.slot
  }

  /** Submits copies between the device and pinned memory, in any order. */
  copy(direction: CopyDirection, copies: readonly BatchedCopy[]): void {
    const call = direction === 'toHost' ? 'sleep' : 'wake'
    const driver = this.clocks.context.activate()
    this.stream.checkOpen(call)
    // Counted first: a refusal may come after a part of them.
    for (const { host } of copies) this.unmarkedBytes += host.byteLength
    this.stream.submit(call, handle => copyMany(driver, copies, direction, handle))
    if (this.unmarkedBytes >= COPY_STEP_BYTES) this.mark()
  }

  /** Resolves when few copies are under way, so that a failure is noticed before all have been submitted. */
  async untilFew(): Promise<void> {
    if (this.steps.length > MOST_STEPS_OUT) await untilDone(() => this.look() <= MOST_STEPS_OUT)
  }

  /** Resolves when the host has seen all copies complete. */
  async untilArrived(): Promise<void> {
    this.mark()
    await untilDone(() => this.look() === 0)
    if (this.totalBytes === 0) this.report()
  }

  /**
   * Makes all streams of the device wait for the copies, those made later too. Returns false if one cannot be made to
   * wait; see `Barriers`.
   */
  holdStreams(): boolean {
    this.mark()
    const { clocks, slot } = this
    this.isHeld = clocks.registry.barriers.raise(slot, clocks.marked[slot])
    return this.isHeld
  }

  /** After `holdStreams`: resolves when all copies have arrived and the stream has ended. */
  async untilEnded(): Promise<void> {
    try {
      await this.untilArrived()
    } catch (error) {
      if (!isDriverError(error)) throw error // an error of the device shows in the streams that wait
    }
    await this.untilClosed()
  }

  /** Resolves once `close` has succeeded; does not keep Node's process alive. */
  async untilClosed(): Promise<void> {
    await untilDone(() => this.close(), { keepAlive: false })
  }

  /**
   * Waits for copies that still run after a failure, and ends the stream. Returns false if the driver refuses the wait:
   * the copies may still run then.
   */
  close(): boolean {
    const { clocks, stream, slot } = this
    if (stream.closed) return true // by the close of the device, which has waited for all work
    try {
      if (this.steps.length > 0 || this.unmarkedBytes > 0) clocks.watcher.waitForAll(slot)
    } catch (error) {
      if (!isDriverError(error)) throw error
      return error instanceof DeviceLostError // nothing runs on it any more
    }
    clocks.registry.barriers.lower(slot)
    try {
      stream.close()
    } catch (error) {
      if (!isDriverError(error)) throw error // the close of the device tries again
    }
    return true
  }

  private mark(): void {
    if (this.unmarkedBytes === 0) return
    this.steps.push({ stamp: this.clocks.watcher.mark(this.slot), bytes: this.unmarkedBytes })
    this.unmarkedBytes = 0
  }

  /** Looks how far the copies have come; returns how many steps are under way. */
  private look(): number {
    const { clocks, steps, slot } = this
    if (this.stream.closed) return 0 // by the close of the device, which has waited for all work
    if (steps.length > 0) clocks.watcher.poll(slot)
    let arrived = 0
    while (steps.length > 0 && steps[0].stamp <= clocks.completed[slot]) arrived += steps.shift()!.bytes
    this.copiedBytes += arrived
    if (arrived > 0) this.report()
    return steps.length
  }

  private report(): void {
    const { onProgress, copiedBytes, totalBytes, isHeld } = this
    try {
      onProgress?.({ copiedBytes, totalBytes })
    } catch (error) {
      if (!isHeld) throw error
      this.onProgress = undefined
      queueMicrotask(() => {
        throw error // no call is left to reject
      })
    }
  }
}

/** A new stream; the default stream if all slots are taken. */
function streamFor(clocks: Clocks): Stream {
  try {
    return Stream.create(clocks)
  } catch (error) {
    const defaultStream = openStreams(clocks).find(stream => stream?.handle === CU_STREAM_LEGACY_DEFAULT)
    if (!(error instanceof PoolError) || !defaultStream) throw error
    return defaultStream
  }
}
