// The clocks of a device's streams, in memory that its threads share (shared-order.ts). A clock ticks only while its
// stream is open.
//
// The two rules of vector-clocks.ts hold between threads as well. A free reads the clock after its work was
// submitted. If it reads the clock before the tick of another thread's mark, its work comes before the mark's event,
// which is recorded after the tick.
//
// Ticks take a lock. Without it two ticks could be one, and a clock that goes back lets a mark cover later work.
// Knowledge takes no lock: each value was true when it was written and stays true, so either of two writers may come
// last. A thread writes to a row of `known` only while the row's stream cannot end (stream-slots.ts), so never into
// the row of the slot's next stream.

import { PoolError } from '../base/errors.js'
import { CU_STREAM_LEGACY_DEFAULT } from '../driver/constants.js'
import type { Context } from '../driver/context.js'
import { Life, type OrderState } from './shared-order.js'
import { StreamSlots } from './stream-slots.js'
import { MOST_STREAMS, VectorClocks, type VectorTime } from './vector-clocks.js'

export abstract class StreamClocks extends VectorClocks {
  /** by stream slot: the latest mark known complete */
  readonly completed: Float64Array
  /** as `completed`, but learnt by waiting on the host alone, and so independent of how fast the device is */
  readonly waited: Float64Array
  /**
   * by slot: the driver's handle of its latest stream in any thread, open or closed; -1 for none, 0 for the default
   * stream
   */
  readonly handles: Float64Array
  /** lives, owners and pins of the slots */
  readonly slots: StreamSlots

  constructor(
    readonly context: Context,
    /** the views of the shared memory */
    readonly state: OrderState,
  ) {
    super(state.marked, state.known, state.limit, MOST_STREAMS)
    this.completed = state.completed
    this.waited = state.waited
    this.handles = state.handles
    this.slots = new StreamSlots(state)
  }

  /**
   * Ends the streams of threads that have died, with a last mark each, and destroys their events. Returns the number
   * of streams.
   */
  abstract buryStreams(): number

  /** Whether a slot has an open stream, of any thread, that is not captured. */
  isOpen(slot: number): boolean {
    return this.slots.isOpen(slot)
  }

  /**
   * Advances the clock for a mark, and returns the mark's vector time. Throws PoolError where another thread has
   * ended the stream.
   */
  override tick(slot: number): VectorTime {
    const vectorTime = this.tickOpen(slot)
    if (vectorTime === null) throw this.notOpen('mark', slot)
    return vectorTime
  }

  /** As `tick`; null for a stream that has ended or is about to. */
  tickOpen(slot: number): VectorTime | null {
    this.slots.acquire()
    const ticks = this.slots.me === 0 || this.slots.isTicking(slot)
    if (ticks) this.marked[slot]++
    const vectorTime = ticks ? this.vectorTimeOf(slot) : null
    this.slots.release()
    return vectorTime
  }

  /**
   * Advances the clocks of all open streams, for a wait for all work; returns the stamps that are complete after the
   * wait.
   */
  tickAll(): VectorTime {
    this.slots.acquire()
    // A closed stream has its last mark. After a tick that the driver then refuses, no mark would cover the clock.
    const vectorTime: number[] = []
    for (let slot = 0; slot < this.slotLimit; slot++) {
      if (this.slots.isTicking(slot)) this.marked[slot]++
      vectorTime.push(slot, this.marked[slot])
    }
    this.slots.release()
    return vectorTime
  }

  /**
   * The stamp of the first mark that covers everything submitted to a slot's stream so far: the next mark, or the
   * last one.
   */
  covering(slot: number): number {
    this.awaitClosing(slot)
    return this.coveringSoon(slot)
  }

  /**
   * As `covering`, without the wait for another thread that is placing the last mark. The stamp is one too high if
   * that thread has just placed it.
   */
  coveringSoon(slot: number): number {
    const life = this.state.lives[slot] // read first: another thread may end the stream before the clock is read
    return this.marked[slot] + Number(life === Life.open || life === Life.closing)
  }

  /** Returns once no other thread is placing the last mark of a slot's stream. */
  awaitClosing(slot: number): void {
    while (!this.slots.awaitClosing(slot)) this.buryStreams()
  }

  /**
   * How far a stamp may be above the last mark of a stream that has ended: a free in another thread may have seen the
   * last tick too early. The clock of the slot's next stream begins above that stamp.
   */
  get lateTicks(): number {
    return Number(this.slots.me !== 0)
  }

  /**
   * The vector time of the end of a slot's stream; null if the slot is open, or the stream's work is not known
   * complete.
   */
  vectorTimeOfEnded(slot: number): VectorTime | null {
    const { lives } = this.state
    this.slots.acquire()
    const isOver =
      lives[slot] !== Life.open && lives[slot] !== Life.closing && this.completed[slot] >= this.marked[slot]
    const vectorTime = isOver ? this.vectorTimeOf(slot) : null
    if (vectorTime !== null) vectorTime[1] += this.lateTicks
    this.slots.release()
    return vectorTime
  }

  /** The marks of a slot that are known complete, and none of other slots. */
  vectorTimeOfFormer(slot: number): VectorTime {
    return [slot, this.completed[slot]]
  }

  /**
   * Calls the driver for the open stream of a slot, which no other thread ends or captures meanwhile. Throws
   * PoolError, in the name of `call`, if the stream is not open.
   */
  submit<R>(call: string, slot: number, work: (handle: number) => R): R {
    if (!this.slots.pin(slot)) throw this.notOpen(call, slot)
    try {
      return work(this.handles[slot])
    } finally {
      this.slots.unpin()
    }
  }

  /** The error of a call for the stream of a slot that takes no work. */
  notOpen(call: string, slot: number): PoolError {
    const { lives, owners, handles } = this.state
    const where = owners[slot] === this.slots.me ? '' : ' in another thread'
    if (lives[slot] !== Life.suspended) {
      return new PoolError(`${call}: the stream was closed${where}; use an open one`, 'ERR_STREAM_CLOSED')
    }
    const isDefault = handles[slot] === CU_STREAM_LEGACY_DEFAULT
    const fact = isDefault ? 'the default stream is kept idle by a capture' : 'the stream is being captured'
    return new PoolError(
      `${call}: ${fact}${where}; end the capture first, or use an open stream`,
      'ERR_STREAM_CAPTURED',
    )
  }
}
