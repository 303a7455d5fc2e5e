// What is known of the order of work. A stream's clock ticks at each mark: an event placed on it, or a call that waits for
// it. A free stamps its block with the first mark that will cover it, `marked + 1`. The block may be used by another
// stream once that mark is known to come before: because the host has seen it complete (`completed`), or because the other
// stream waits for it (`known`).
//
// A mark has a reach: by slot, the marks that are complete once it is, its own among them. Whoever waits for a mark, the
// host or a stream, learns its whole reach, so order is passed on from stream to stream. Two rules keep this sound: the
// clock ticks and the reach is taken before the driver is called for a mark, and what is learnt is written down after the
// driver was called. A mistake in timing then costs a reuse and never data.

import { CudaError, DeviceLostError, PoolError } from '../base/errors.js'
import { CU_EVENT_DISABLE_TIMING, FATAL_RESULTS } from '../driver/constants.js'
import type { Context } from '../driver/context.js'
import type { Capture } from './capture.js'
import type { Graph } from './graph.js'
import { KnownOrder, MOST_STREAMS, type Reach } from './known-order.js'
import { relaxed } from './relaxed.js'
import type { Stream } from './stream.js'

export { MOST_STREAMS, type Reach }

/** Marks of one stream that are watched at a time; a further one takes the place of the newest. */
const MOST_MARKS = 64

export interface Mark {
  readonly event: number
  readonly slot: number
  readonly stamp: number
  readonly reach: Reach
  /** counted over all streams: which of two marks is older */
  readonly number: number
}

export class Clocks extends KnownOrder {
  /** by stream slot: the latest mark known complete */
  readonly completed = new Float64Array(MOST_STREAMS)
  /** as `completed`, but learnt by waiting on the host alone, so that it does not depend on how fast the device is */
  readonly waited = new Float64Array(MOST_STREAMS)
  /** by slot: streams that get no marks before a capture has ended */
  readonly suspended = new Map<number, Stream>()
  /** captures that are under way, and graphs that can be launched */
  readonly captures = new Set<Capture>()
  readonly graphs = new Set<Graph>()
  /** the open stream that has a slot, unless it is being captured */
  readonly streams: (Stream | null)[] = Array.from({ length: MOST_STREAMS }, () => null)
  private readonly marks: Mark[][] = Array.from({ length: MOST_STREAMS }, () => [])
  private placed = 0
  private readonly spareEvents: number[] = []
  private readonly freeSlots = Array.from({ length: MOST_STREAMS }, (_, index) => MOST_STREAMS - 1 - index)
  /** slots of closed streams whose last mark is not known complete yet */
  private readonly retired: number[] = []

  constructor(readonly context: Context) {
    super()
  }

  /**
   * A slot for a new stream; one of a closed stream is used again once that stream's work is known complete. Stamps of a
   * slot go on from where they were, so whatever is known of the old stream's marks stays true.
   */
  open(stream: Stream): number {
    this.reclaim()
    if (this.freeSlots.length === 0 && this.retired.length > 0) {
      this.waitFor(this.retired[0], this.marked[this.retired[0]])
      this.reclaim()
    }
    const slot = this.freeSlots.pop()
    if (slot === undefined) {
      throw new PoolError(`${MOST_STREAMS} streams are open on this device, which is the limit; close one first`)
    }
    this.known.fill(0, slot * MOST_STREAMS, (slot + 1) * MOST_STREAMS)
    this.slotLimit = Math.max(this.slotLimit, slot + 1)
    this.streams[slot] = stream
    return slot
  }

  /** A stream is about to be captured: a last mark covers all that was submitted to it. */
  suspend(slot: number): void {
    this.mark(slot)
    this.streams[slot] = null
  }

  /** A stream is about to be closed, with a last mark likewise. */
  retire(slot: number): void {
    this.mark(slot)
    this.vacate(slot)
  }

  /** A slot has no stream any more, and serves another one once its marks are known complete. */
  vacate(slot: number): void {
    this.streams[slot] = null
    this.retired.push(slot)
  }

  /** The stream that has a slot and is not closed, captured or not. */
  streamOf(slot: number): Stream | null {
    return this.streams[slot] ?? this.suspended.get(slot) ?? null
  }

  /** Places a mark on the open stream that has `slot`, and returns its stamp; its completion is noticed by `poll`. */
  mark(slot: number): number {
    const driver = this.context.activate()
    const stream = this.streams[slot]!.handle
    const marks = this.marks[slot]
    if (marks.length >= MOST_MARKS) this.query(slot)
    const reach = this.tick(slot)
    const isFull = marks.length >= MOST_MARKS
    if (!isFull && this.spareEvents.length === 0) this.spareEvents.push(driver.cuEventCreate(CU_EVENT_DISABLE_TIMING))
    const event = isFull ? marks[marks.length - 1].event : this.spareEvents[this.spareEvents.length - 1]
    driver.cuEventRecord(event, stream)
    if (isFull) marks.pop()
    else this.spareEvents.pop()
    const stamp = reach[slot]
    marks.push({ event, slot, stamp, reach, number: ++this.placed })
    return stamp
  }

  /**
   * Lets the open stream of slot `later` wait for `stamp` of slot `earlier`: for the oldest watched mark that covers it, or
   * with `afresh` for one of now. Returns whether there was something to wait for.
   */
  order(later: number, earlier: number, stamp: number, afresh: boolean): boolean {
    if (stamp > this.marked[earlier] || (afresh && this.streams[earlier] !== null)) this.mark(earlier)
    else this.cover(earlier)
    const marks = this.marks[earlier]
    const mark = afresh ? marks.at(-1) : marks.find(candidate => candidate.stamp >= stamp)
    if (mark === undefined) {
      // Complete. Of a closed stream nothing was submitted since its last mark, so that its whole reach is known, too.
      if (this.streams[earlier] === null) this.follow(later, this.reachOf(earlier))
      return false
    }
    this.context.activate().cuStreamWaitEvent(this.streams[later]!.handle, mark.event)
    this.follow(later, mark.reach)
    return true
  }

  /** The host has seen a mark of this reach complete, by waiting for it or by asking. */
  learn(reach: Reach, byWaiting: boolean): void {
    for (let slot = 0; slot < reach.length; slot++) {
      const stamp = reach[slot]
      if (byWaiting && stamp > this.waited[slot]) this.waited[slot] = stamp
      if (stamp <= this.completed[slot]) continue
      this.completed[slot] = stamp
      const marks = this.marks[slot]
      let passed = 0
      while (passed < marks.length && marks[passed].stamp <= stamp) this.spareEvents.push(marks[passed++].event)
      marks.splice(0, passed)
    }
  }

  /** Asks the driver how far a stream has come; true when that is further than was known. */
  poll(slot: number): boolean {
    this.cover(slot)
    return this.query(slot)
  }

  /** Waits on the host until `stamp` of a stream, one that its clock has reached, is complete. */
  waitFor(slot: number, stamp: number): void {
    if (this.completed[slot] >= stamp) return
    this.cover(slot)
    const mark = this.marks[slot].find(candidate => candidate.stamp >= stamp)
    if (mark !== undefined) this.waitForMark(mark)
  }

  /** The watched marks of a slot, the oldest first. */
  watched(slot: number): readonly Mark[] {
    this.cover(slot)
    return this.marks[slot]
  }

  /** Waits on the host for a watched mark. */
  waitForMark(mark: Mark): void {
    const driver = this.context.activate()
    relaxed(driver, () => driver.cuEventSynchronize(mark.event))
    this.learn(mark.reach, true)
  }

  /** Waits on the host for all that was submitted to a slot's stream. */
  waitForAll(slot: number): void {
    if (this.streams[slot] !== null) this.mark(slot)
    const last = this.marks[slot].at(-1)
    if (last !== undefined) this.waitForMark(last)
    else this.learn(this.reachOf(slot), true) // of a closed stream: what was known to it when it was closed
  }

  /** Refuses, in the name of `call`, to wait for all work while a stream is being captured. */
  checkNoCapture(call: string): void {
    if (this.captures.size === 0) return
    throw new PoolError(`${call}: a stream is being captured, which a wait for all work would break; end that first`)
  }

  /** Refuses, in the name of `call`, work for the legacy default stream while one that is ordered with it is being captured. */
  checkLegacyUsable(call: string): void {
    for (const stream of this.suspended.values()) if (stream.blockedBy !== null) stream.checkUsable(call)
  }

  /** Waits on the host for all work on the context. */
  synchronize(): void {
    this.checkNoCapture('synchronize')
    // A closed stream has its last mark; a tick that the driver then refuses would be covered by none.
    for (let slot = 0; slot < this.slotLimit; slot++) if (this.streams[slot] !== null) this.marked[slot]++
    const reach = this.marked.slice(0, this.slotLimit)
    this.context.activate().cuCtxSynchronize()
    this.learn(reach, true)
  }

  /**
   * Work submitted to `stream`, of another device, from now on starts after all that `stamp` of a slot covers. Nothing waits
   * on the host. Returns whether there was something to wait for.
   */
  orderPeer(slot: number, stamp: number, stream: Stream): boolean {
    const event = this.unlessEnded(slot, stamp, () => {
      const covers = (mark: Mark) => mark.stamp >= stamp
      if (!this.marks[slot].some(covers)) this.mark(slot)
      return this.marks[slot].find(covers)!.event
    })
    if (event === undefined) return false
    stream.context.activate().cuStreamWaitEvent(stream.handle, event)
    return true
  }

  /** For another device: asks whether `stamp`, which was reached or comes next, is complete, or waits for it on the host. */
  catchUp(slot: number, stamp: number, wait: boolean): void {
    this.unlessEnded(slot, stamp, () => {
      if (this.marked[slot] < stamp) this.mark(slot)
      if (wait) this.waitFor(slot, stamp)
      else this.poll(slot)
    })
  }

  /** Runs what asks the driver for `stamp`, if need be; on a lost or closed device nothing runs any more, so it is complete. */
  private unlessEnded<R>(slot: number, stamp: number, ask: () => R): R | undefined {
    if (this.completed[slot] >= stamp) return undefined
    try {
      if (!this.context.released) return ask()
    } catch (error) {
      const isFault = error instanceof CudaError && FATAL_RESULTS.includes(error.code)
      if (!isFault && !(error instanceof DeviceLostError)) throw error // a fault is told to whoever uses that device
    }
    const ended = new Float64Array(slot + 1)
    ended[slot] = stamp
    this.learn(ended, true)
    return undefined
  }

  /** Waits for all work and gives the events back to the driver. */
  close(): void {
    const driver = this.context.activate()
    this.synchronize() // whoever still awaits something learns that it is done
    for (const marks of this.marks) this.spareEvents.push(...marks.splice(0).map(mark => mark.event))
    for (let event = this.spareEvents.at(-1); event !== undefined; event = this.spareEvents.at(-1)) {
      driver.cuEventDestroy(event)
      this.spareEvents.pop()
    }
  }

  /** Ticks that placed no mark of ours (a query, an event of the user's, a refused record) are watched by a new one. */
  private cover(slot: number): void {
    const watched = this.marks[slot].at(-1)?.stamp ?? this.completed[slot]
    if (watched < this.marked[slot] && this.streams[slot] !== null) this.mark(slot)
  }

  private query(slot: number): boolean {
    const marks = this.marks[slot]
    if (marks.length === 0) return false
    const driver = this.context.activate()
    // Marks complete in their order: all before `done` have, those from `end` on have not. Mostly the newest one tells all.
    let done = 0
    let end = marks.length
    relaxed(driver, () => {
      for (let asked = end - 1; done < end; asked = (done + end) >> 1) {
        if (driver.cuEventQuery(marks[asked].event)) done = asked + 1
        else end = asked
      }
    })
    if (done === 0) return false
    this.learn(marks[done - 1].reach, false)
    return true
  }

  private reclaim(): void {
    for (let index = this.retired.length - 1; index >= 0; index--) {
      const slot = this.retired[index]
      this.poll(slot)
      if (this.completed[slot] < this.marked[slot]) continue
      this.retired.splice(index, 1)
      this.freeSlots.push(slot)
    }
  }
}
