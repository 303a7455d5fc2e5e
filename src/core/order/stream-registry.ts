// This thread's streams by slot, from their opening to the last mark, which covers all their work. Streams that a
// dead thread left open end here as well.

import { CudaError, PoolError } from '../base/errors.js'
import { isDriverError } from '../base/thrown.js'
import { CU_EVENT_DISABLE_TIMING, CU_STREAM_PER_THREAD } from '../driver/constants.js'
import { Barriers } from './barriers.js'
import type { MarkWatcher } from './mark-watcher.js'
import { type OrderedStream, streamName } from './ordered-stream.js'
import { Life } from './shared-order.js'
import type { StreamClocks } from './stream-clocks.js'
import { MOST_STREAMS } from './vector-clocks.js'

/** Ended streams that `open` asks the driver about: to ask about hundreds would take longer than to open a stream. */
const MOST_LOOKS = 64

export class StreamRegistry {
  /** by slot: this thread's open stream, null while it is captured */
  readonly streams: (OrderedStream | null)[] = new Array(MOST_STREAMS).fill(null)
  /** by slot: streams of this thread that get no marks before a capture has ended */
  readonly suspended = new Map<number, OrderedStream>()
  /** work that each stream comes after */
  readonly barriers: Barriers

  /** the slot after the last one that `reclaim` looked at */
  private lookFrom = 0

  constructor(
    private readonly clocks: StreamClocks,
    private readonly watcher: MarkWatcher,
  ) {
    this.barriers = new Barriers(clocks, watcher, this.suspended)
  }

  /**
   * Gives a new stream a slot. The slot of a closed stream serves again once that stream's work is known complete.
   * Stamps of a slot go on from where they were, so knowledge of the old stream's marks stays true. Throws PoolError
   * if all slots are in use.
   */
  open(stream: OrderedStream): number {
    this.reclaim(MOST_LOOKS)
    let slot = this.clocks.slots.claim(stream.handle, stream.owned)
    if (slot === -1) {
      this.buryStreams()
      slot = this.claimByWaiting(stream)
    }
    if (slot === -1) {
      throw new PoolError(`${MOST_STREAMS} streams are open on this device, which is the limit; close one first`)
    }
    try {
      this.barriers.hold(slot)
    } catch (error) {
      this.vacate(slot)
      throw error
    }
    this.streams[slot] = stream
    return slot
  }

  /** This thread uses an open stream of another thread. */
  lend(stream: OrderedStream, slot: number): void {
    this.barriers.hold(slot)
    this.streams[slot] = stream
  }

  /** Ends `lend`. The clock ticks, so that the next mark, and no earlier one, covers what was submitted here. */
  giveUp(stream: OrderedStream): void {
    const { slot } = stream
    if (this.clocks.tickOpen(slot) === null) {
      this.clocks.awaitClosing(slot)
      this.clocks.tickOpen(slot) // the stream is open again if its owner could not end it
    }
    this.forget(stream)
  }

  /** This thread no longer uses a stream of another thread. */
  forget(stream: OrderedStream): void {
    if (this.streams[stream.slot] === stream) this.streams[stream.slot] = null
  }

  /** A stream of this thread is about to be captured: a last mark covers everything submitted to it. */
  suspend(stream: OrderedStream): void {
    const { slot } = stream
    this.stop(slot, 'beginCapture')
    this.clocks.slots.suspend(slot)
    this.suspended.set(slot, stream)
    this.streams[slot] = null
  }

  /** Ends `suspend`. */
  resume(stream: OrderedStream): void {
    const { lastSlot } = stream
    this.suspended.delete(lastSlot)
    this.clocks.slots.reopen(lastSlot)
    this.streams[lastSlot] = stream
    try {
      this.barriers.hold(lastSlot)
    } catch (error) {
      // A device that refuses a wait of the stream and one of the host has failed. The capture has to end all the same.
      if (!isDriverError(error)) throw error
    }
  }

  /** A stream is about to be closed: a last mark covers everything submitted to it. */
  retire(slot: number): void {
    this.stop(slot, 'close')
    this.vacate(slot)
  }

  /** The stream of a slot was destroyed elsewhere, so no mark can be placed on it: all work is waited for. */
  abandon(slot: number): void {
    const { slots } = this.clocks
    if (!slots.stop(slot)) throw this.clocks.notOpen('adoptStream', slot)
    try {
      this.synchronize()
    } catch (error) {
      slots.reopen(slot)
      throw error
    }
    this.vacate(slot)
  }

  /** This thread's stream in a slot, open or captured; null for none. */
  streamOf(slot: number): OrderedStream | null {
    const stream = this.streams[slot] ?? this.suspended.get(slot) ?? null
    return stream === null || stream.closed ? null : stream
  }

  /** See StreamClocks. */
  buryStreams(): number {
    const { slots, context } = this.clocks
    let buried = 0
    for (const dead of slots.dead()) {
      for (let slot = 0; slot < this.clocks.slotLimit; slot++) {
        const was = slots.inherit(slot, dead)
        if (was === null) continue
        this.bury(slot, was, dead)
        buried++
      }
      for (let event = slots.takeEvent(dead); event !== 0; event = slots.takeEvent(dead)) {
        const taken = event
        context.destroy(driver => driver.cuEventDestroy(taken))
      }
      slots.forget(dead)
    }
    return buried
  }

  /**
   * Waits on the host for all work on the context. Throws PoolError while a stream is being captured, in any thread.
   */
  synchronize(): void {
    this.checkNoCapture('synchronize')
    const vectorTime = this.clocks.tickAll()
    this.clocks.context.activate().cuCtxSynchronize()
    this.watcher.learn(vectorTime, true)
  }

  /**
   * Throws PoolError, in the name of `call`, while a stream is being captured in any thread: a wait for all work
   * would break that.
   */
  checkNoCapture(call: string): void {
    const { slots } = this.clocks
    if (slots.captured() === null) return
    this.buryStreams() // the capture of a dead thread has ended with it
    const handle = slots.captured()
    if (handle === null) return
    const fact = `a stream is being captured (${streamName(handle)}), which a wait for all work would break`
    throw new PoolError(
      `${call}: ${fact}; end the capture in its thread first, then call ${call} again`,
      'ERR_STREAM_CAPTURED',
    )
  }

  /** Throws PoolError, in the name of `call`, while a capture is ordered with the legacy default stream. */
  checkLegacyUsable(call: string): void {
    for (const stream of this.suspended.values()) if (stream.blockedBy !== null) stream.checkUsable(call)
  }

  /** Closes a slot to other threads and places its last mark. */
  private stop(slot: number, call: string): void {
    const { slots } = this.clocks
    if (!slots.stop(slot)) throw this.clocks.notOpen(call, slot)
    try {
      this.placeLast(slot)
    } catch (error) {
      slots.reopen(slot)
      throw error
    }
  }

  /** Places the mark that covers all work of a stream that is about to end, where every thread finds it. */
  private placeLast(slot: number): void {
    const { clocks } = this
    const driver = clocks.context.activate()
    const { lastEvents } = clocks.state
    clocks.tick(slot)
    if (lastEvents[slot] === 0) lastEvents[slot] = driver.cuEventCreate(CU_EVENT_DISABLE_TIMING)
    driver.cuEventRecord(lastEvents[slot], clocks.handles[slot])
  }

  /** The stream of a slot has ended. The slot serves another stream once its marks are known complete. */
  private vacate(slot: number): void {
    this.streams[slot] = null
    this.clocks.slots.retire(slot)
  }

  /** Ends a stream that this thread has taken over from a dead thread. */
  private bury(slot: number, was: Life, dead: number): void {
    const { clocks } = this
    const handle = clocks.handles[slot]
    const isOwned = clocks.state.owned[slot] === 1
    try {
      // A captured stream has its last mark, and captured work never runs. Another thread's per-thread default stream
      // has no handle here.
      const canMark = handle !== CU_STREAM_PER_THREAD
      if (was !== Life.suspended && !(canMark && this.attempt(() => this.placeLast(slot)))) this.synchronize()
    } catch (error) {
      clocks.slots.disown(slot, dead)
      throw error
    }
    this.vacate(slot)
    if (isOwned) clocks.context.discard(driver => driver.cuStreamDestroy(handle))
  }

  /**
   * A dead thread's stream may refuse a mark: another library may have destroyed it, or it may be captured for ever.
   */
  private attempt(work: () => void): boolean {
    try {
      work()
    } catch (error) {
      if (!(error instanceof CudaError)) throw error
      return false
    }
    return true
  }

  private claimByWaiting(stream: OrderedStream): number {
    const { clocks } = this
    const { lives } = clocks.state
    for (let tries = 0; tries < MOST_STREAMS; tries++) {
      this.reclaim(MOST_STREAMS)
      const slot = clocks.slots.claim(stream.handle, stream.owned)
      const retired = lives.indexOf(Life.retired)
      if (slot !== -1 || retired === -1) return slot
      this.watcher.waitFor(retired, clocks.marked[retired])
    }
    return -1
  }

  /** Frees slots of ended streams whose work is complete. Asks about the next `mostLooks` ended streams, in turns. */
  private reclaim(mostLooks: number): void {
    const { clocks } = this
    const { lives } = clocks.state
    let looks = 0
    for (let slots = clocks.slotLimit; slots > 0 && looks < mostLooks; slots--) {
      const slot = this.lookFrom < clocks.slotLimit ? this.lookFrom : 0
      this.lookFrom = slot + 1
      if (lives[slot] !== Life.retired) continue
      this.watcher.poll(slot)
      clocks.slots.free(slot)
      looks++
    }
  }
}
