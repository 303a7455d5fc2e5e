// Work that everything else on the device comes after: copies into memory that pools hand out already. An open stream
// is made to wait at once, a new one when it comes, and a captured one when its capture ends.

import { isDriverError } from '../base/thrown.js'
import type { Mark, MarkWatcher } from './mark-watcher.js'
import type { OrderedStream } from './ordered-stream.js'
import type { StreamClocks } from './stream-clocks.js'

export class Barriers {
  /** by slot of the stream with the work: the stamp that covers the work */
  private readonly stamps = new Map<number, number>()

  constructor(
    private readonly clocks: StreamClocks,
    private readonly watcher: MarkWatcher,
    /** by slot: streams of this thread that wait at `hold`, once their capture has ended */
    private readonly suspended: ReadonlyMap<number, OrderedStream>,
  ) {}

  /**
   * Makes all streams of the device wait for `stamp` of a slot, until `lower`. Returns false, and raises nothing, if a
   * stream cannot be made to wait: another thread captures it, or it is another thread's own default stream.
   */
  raise(slot: number, stamp: number): boolean {
    const { clocks, suspended } = this
    const { slots } = clocks
    const mark = this.watcher.find(slot, stamp, false)
    if (mark === null) return true // complete
    for (let other = 0; other < clocks.slotLimit; other++) {
      if (other === slot || suspended.has(other)) continue
      clocks.awaitClosing(other)
      if (!this.delay(other, mark) && !slots.hasEnded(other, slots.generationOf(other))) return false
    }
    this.stamps.set(slot, stamp)
    return true
  }

  /** The work on the stream of a slot is complete. */
  lower(slot: number): void {
    this.stamps.delete(slot)
  }

  /**
   * Work submitted to the stream of a slot from now on comes after all barriers. If the stream cannot be made to wait,
   * the host waits.
   */
  hold(slot: number): void {
    for (const [earlier, stamp] of this.stamps) {
      const mark = this.watcher.find(earlier, stamp, false)
      if (mark !== null && !this.delay(slot, mark)) this.watcher.waitForMark(mark)
    }
  }

  /** Returns false if this thread cannot call the driver for the stream of a slot, or the driver refuses the wait. */
  private delay(slot: number, { event }: Mark): boolean {
    const { context, slots, handles } = this.clocks
    const driver = context.activate()
    if (!slots.pin(slot)) return false
    try {
      driver.cuStreamWaitEvent(handles[slot], event)
    } catch (error) {
      if (!isDriverError(error)) throw error
      return false
    } finally {
      slots.unpin()
    }
    return true
  }
}
