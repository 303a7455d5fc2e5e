// The copies of one sleep or wake, on a stream of their own. A mark after every 64 MiB tells how far they have come.

import { MiB } from '../../base/bytes.js'
import { isDriverError } from '../../base/driver-error.js'
import type { Clocks } from '../../order/clocks.js'
import { untilDone } from '../../order/polling.js'
import { Stream } from '../../order/stream.js'
import type { SleepProgress } from './sleep-options.js'

const STEP_BYTES = 64 * MiB
const MOST_STEPS_OUT = 2

interface Step {
  readonly stamp: number
  readonly bytes: number
}

export class CopyStream {
  readonly stream: Stream
  private readonly steps: Step[] = []
  private unmarkedBytes = 0
  private copiedBytes = 0

  constructor(
    private readonly clocks: Clocks,
    private readonly totalBytes: number,
    private readonly onProgress: ((progress: SleepProgress) => void) | undefined,
  ) {
    this.stream = Stream.create(clocks)
  }

  /** Submits a copy from the device to pinned memory. */
  copyOut(host: Uint8Array, ptr: number): void {
    const driver = this.clocks.context.activate()
    this.stream.submit('sleep', handle => driver.cuMemcpyDtoHAsync(host, ptr, handle))
    this.count(host.length)
  }

  /** Submits a copy from pinned memory to the device. */
  copyIn(ptr: number, host: Uint8Array): void {
    const driver = this.clocks.context.activate()
    this.stream.submit('wake', handle => driver.cuMemcpyHtoDAsync(ptr, host, handle))
    this.count(host.length)
  }

  /** Resolves when few copies are under way, so that a failure is noticed before all have been submitted. */
  async untilFew(): Promise<void> {
    if (this.steps.length > MOST_STEPS_OUT) await untilDone(() => this.look() <= MOST_STEPS_OUT)
  }

  /** Resolves when the host has seen all copies complete. */
  async untilArrived(): Promise<void> {
    this.mark()
    await untilDone(() => this.look() === 0)
    if (this.totalBytes === 0) this.onProgress?.({ copiedBytes: 0, totalBytes: 0 })
  }

  /**
   * Makes all streams of the device wait for the copies, those made later too. Returns false if one cannot be made to
   * wait; see `Barriers`.
   */
  holdStreams(): boolean {
    this.mark()
    const { clocks, stream } = this
    return clocks.registry.barriers.raise(stream.slot, clocks.marked[stream.slot])
  }

  /** Waits for copies that still run after a failure, and ends the stream. */
  close(): void {
    const { clocks, stream } = this
    if (stream.closed) return
    unlessRefused(() => {
      if (this.steps.length > 0 || this.unmarkedBytes > 0) clocks.waitForAll(stream.slot)
    })
    clocks.registry.barriers.lower(stream.slot)
    unlessRefused(() => stream.close()) // the close of the device tries again
  }

  private count(bytes: number): void {
    this.unmarkedBytes += bytes
    if (this.unmarkedBytes >= STEP_BYTES) this.mark()
  }

  private mark(): void {
    if (this.unmarkedBytes === 0) return
    this.steps.push({ stamp: this.clocks.mark(this.stream.slot), bytes: this.unmarkedBytes })
    this.unmarkedBytes = 0
  }

  /** Looks how far the copies have come; returns how many steps are under way. */
  private look(): number {
    const { clocks, steps } = this
    const { slot, closed } = this.stream
    if (closed) return 0 // by the close of the device, which has waited for all work
    if (steps.length > 0) clocks.poll(slot)
    let arrived = 0
    while (steps.length > 0 && steps[0].stamp <= clocks.completed[slot]) arrived += steps.shift()!.bytes
    this.copiedBytes += arrived
    if (arrived > 0) this.onProgress?.({ copiedBytes: this.copiedBytes, totalBytes: this.totalBytes })
    return steps.length
  }
}

function unlessRefused(work: () => void): void {
  try {
    work()
  } catch (error) {
    if (!isDriverError(error)) throw error
  }
}
