// What is known of the order of work. A stream's clock ticks at each mark: an event placed on it, or a call that waits for
// it. A free stamps its block with the first mark that will cover it, `marked + 1`. The block may be used by another
// stream once that mark is known to come before: because the host has seen it complete (`completed`), or because the other
// stream waits for it (`known`).
//
// A mark has a vector time: by slot, the marks that are complete once it is, its own among them. Whoever waits for a mark, the
// host or a stream, learns its whole vector time, so order is passed on from stream to stream. Two rules keep this sound: the
// clock ticks and the vector time is taken before the driver is called for a mark, and what is learnt is written down after the
// driver was called. A mistake in timing then costs a reuse and never data.
//
// All of this lies in memory that other threads can share (shared-order.ts), and then the two rules hold between threads as
// well. A free in one thread reads the clock after its work was submitted; if it finds it before the tick of a mark that
// another thread places, that work comes before the event, which is recorded after the tick. Ticks of two threads would be
// lost without a lock, and a clock that goes back lets a mark cover what came after it. What is learnt needs none: each
// value was true when it was written and stays true, so of two writers it does not matter whose value lasts; and a row of
// `known` is written only while its stream cannot end (stream-slots.ts), so never into that of the next one.
// Marks that are watched are the thread's own; where another thread's ticks go beyond them, `cover` places a fresh one, and
// the last mark of a stream that has ended is found by all.
//
// The file is long because all that places a mark, and all that learns of one, shares the watched marks and must keep the two rules;
// what has no part in that is beside it: the slots of streams (stream-slots.ts) and the algebra alone (known-order.ts).

import { CudaError, DeviceLostError, PoolError } from '../base/errors.js'
import { CU_EVENT_DISABLE_TIMING, CU_STREAM_PER_THREAD, FATAL_RESULTS } from '../driver/constants.js'
import type { Context } from '../driver/context.js'
import type { Capture } from './capture.js'
import type { Graph } from './graph.js'
import { firstOf, KnownOrder, MOST_STREAMS, type VectorTime } from './known-order.js'
import { relaxed } from './relaxed.js'
import { Life, newOrder, noteEvent, type OrderState, orderState, type SharedOrder } from './shared-order.js'
import { type Stream, streamName } from './stream.js'
import { StreamSlots } from './stream-slots.js'

export { MOST_STREAMS, type VectorTime }

/** Marks of one stream that are watched at a time; a further one replaces the newest. */
const MOST_MARKS = 64
/** When the list is full, the driver is asked only after so many new marks: a stream that lags usually keeps lagging. */
const MARKS_PER_QUESTION = MOST_MARKS / 2

export interface Mark {
  readonly event: number
  readonly slot: number
  readonly stamp: number
  readonly vectorTime: VectorTime
  /** counted over all streams of the thread: which of two marks is older */
  readonly number: number
  /** of a stream that has ended: the event is the slot's, not this thread's */
  readonly isLast: boolean
}

export class Clocks extends KnownOrder {
  /** by stream slot: the latest mark known complete */
  readonly completed: Float64Array
  /** as `completed`, but learnt by waiting on the host alone, so that it does not depend on how fast the device is */
  readonly waited: Float64Array
  /** by slot: the driver's handle of the stream, whichever thread's it is, also once it is closed; -1 for none (0 is the default stream's) */
  readonly handles: Float64Array
  /** which slots are open, and whose */
  readonly slots: StreamSlots
  /** by slot: streams of this thread that get no marks before a capture has ended */
  readonly suspended = new Map<number, Stream>()
  /** captures that are under way, and graphs that can be launched, of this thread */
  readonly captures = new Set<Capture>()
  readonly graphs = new Set<Graph>()
  /** told of each stream of this thread that becomes part of a capture */
  readonly onCapture = new Set<(stream: Stream) => void>()
  /** this thread's open stream that has a slot, unless it is being captured */
  readonly streams: (Stream | null)[] = Array.from({ length: MOST_STREAMS }, () => null)
  /** by slot: the latest mark that work submitted since may come after by way of another device, whose order is not followed */
  readonly orderedElsewhere = new Float64Array(MOST_STREAMS)
  private readonly marks: Mark[][] = Array.from({ length: MOST_STREAMS }, () => [])
  private placed = 0
  /** by slot: before this stamp is not asked whether there is room for a further mark */
  private readonly asksFrom = new Float64Array(MOST_STREAMS)
  private readonly spareEvents: number[] = []
  private readonly state: OrderState
  private readonly sharedOrder: SharedOrder

  /** Of a device of its own, or with an order that another thread shares attached to that. */
  constructor(
    readonly context: Context,
    attached: SharedOrder | null = null,
  ) {
    const order = attached ?? newOrder()
    const state = orderState(order)
    super(state.marked, state.known, state.limit)
    this.sharedOrder = order
    this.state = state
    this.completed = state.completed
    this.waited = state.waited
    this.handles = state.handles
    this.slots = new StreamSlots(state)
    if (attached === null) return
    this.slots.join()
    try {
      if (this.slots.hasEstate) this.buryStreams()
    } catch (error) {
      this.slots.resign()
      throw error
    }
  }

  /** What another thread needs to attach to this order. From the first call on ticks take a lock. */
  share(): SharedOrder {
    if (this.slots.me === 0) {
      this.slots.join()
      for (const { event, isLast } of this.marks.flat()) if (!isLast) noteEvent(this.state, this.slots.me, event)
      for (const event of this.spareEvents) noteEvent(this.state, this.slots.me, event)
    }
    return this.sharedOrder
  }

  /** Tells the device from others of the process in all threads; 0 until shared. */
  get identity(): number {
    return this.state.identity[0]
  }

  /**
   * A slot for a new stream; one of a closed stream is used again once that stream's work is known complete. Stamps of a
   * slot go on from where they were, so whatever is known of the old stream's marks stays true.
   */
  open(stream: Stream): number {
    this.reclaim()
    let slot = this.slots.claim(stream.handle, stream.owned)
    if (slot === -1) {
      this.buryStreams()
      slot = this.claimByWaiting(stream)
    }
    if (slot === -1) {
      throw new PoolError(`${MOST_STREAMS} streams are open on this device, which is the limit; close one first`)
    }
    this.streams[slot] = stream
    return slot
  }

  /** This thread uses the open stream of another one. */
  lend(stream: Stream, slot: number): void {
    this.streams[slot] = stream
  }

  /** Ends `lend`. The clock ticks, so that the next mark covers what was submitted here, and none of the past does. */
  giveUp(stream: Stream): void {
    const { slot } = stream
    if (this.tickOpen(slot) === null) {
      this.awaitClosing(slot)
      this.tickOpen(slot) // it is open again where its owner could not end it
    }
    this.forget(stream)
  }

  /** This thread has a stream of another one no longer. */
  forget(stream: Stream): void {
    if (this.streams[stream.slot] === stream) this.streams[stream.slot] = null
  }

  /** A stream of this thread is about to be captured: a last mark covers all that was submitted to it. */
  suspend(stream: Stream): void {
    const { slot } = stream
    this.stop(slot, 'beginCapture')
    this.slots.suspend(slot)
    this.suspended.set(slot, stream)
    this.streams[slot] = null
  }

  /** Ends `suspend`. */
  resume(stream: Stream): void {
    this.suspended.delete(stream.lastSlot)
    this.slots.reopen(stream.lastSlot)
    this.streams[stream.lastSlot] = stream
  }

  /** A stream is about to be closed, with a last mark likewise. */
  retire(slot: number): void {
    this.stop(slot, 'close')
    this.vacate(slot)
  }

  /** A slot that is no longer open has no stream any more, and serves another one once its marks are known complete. */
  private vacate(slot: number): void {
    this.streams[slot] = null
    this.slots.retire(slot)
  }

  /** The stream of a slot was destroyed by others, so that nothing can be asked of it: all work is waited for. */
  abandon(slot: number): void {
    if (!this.slots.stop(slot)) throw this.notOpen('adoptStream')
    try {
      this.synchronize()
    } catch (error) {
      this.slots.reopen(slot)
      throw error
    }
    this.vacate(slot)
  }

  /** This thread's stream that has a slot and is not closed, captured or not. */
  streamOf(slot: number): Stream | null {
    const stream = this.streams[slot] ?? this.suspended.get(slot) ?? null
    return stream === null || stream.closed ? null : stream
  }

  /** Whether a slot has an open stream that is not captured, of whichever thread. */
  isOpen(slot: number): boolean {
    return this.slots.isOpen(slot)
  }

  /**
   * Ends the streams of threads that have died, with a last mark each, and gives back what those threads made. Returns how many
   * streams that were.
   */
  buryStreams(): number {
    let buried = 0
    for (const dead of this.slots.dead()) {
      for (let slot = 0; slot < this.slotLimit; slot++) {
        const was = this.slots.inherit(slot, dead)
        if (was === null) continue
        this.bury(slot, was, dead)
        buried++
      }
      for (let event = this.slots.takeEvent(dead); event !== 0; event = this.slots.takeEvent(dead)) {
        const taken = event
        this.context.destroy(driver => driver.cuEventDestroy(taken))
      }
      this.slots.forget(dead)
    }
    return buried
  }

  /** Places a mark on the open stream that has `slot`, whichever thread's it is, and returns its stamp; its completion is noticed by `poll`. */
  mark(slot: number): number {
    if (this.place(slot)) return this.marks[slot][this.marks[slot].length - 1].stamp
    this.cover(slot)
    return this.marked[slot]
  }

  /** The clock ticks; the vector time of a mark that is placed now. To be called before the driver is. */
  override tick(slot: number): VectorTime {
    const vectorTime = this.tickOpen(slot)
    if (vectorTime === null) throw this.notOpen('mark')
    return vectorTime
  }

  /** The stamp of the first mark that covers all that was submitted to a slot's stream so far: the next one, or the last. */
  covering(slot: number): number {
    this.awaitClosing(slot)
    return this.coveringSoon(slot)
  }

  /** The same without waiting for another thread that is placing the last mark: one too high where that has just been done. */
  coveringSoon(slot: number): number {
    const life = this.state.lives[slot] // read first, since another thread may end the stream before the clock is read
    return this.marked[slot] + Number(life === Life.open || life === Life.closing)
  }

  /**
   * Lets the open stream of slot `later` wait for `stamp` of slot `earlier`: for the oldest watched mark that covers it, or
   * with `afresh` for one of now. Returns whether there was something to wait for.
   */
  order(later: number, earlier: number, stamp: number, afresh: boolean): boolean {
    if (!((stamp > this.marked[earlier] || afresh) && this.place(earlier))) this.cover(earlier)
    const marks = this.marks[earlier]
    let index = afresh ? marks.length - 1 : 0
    while (index < marks.length && !afresh && marks[index].stamp < stamp) index++
    if (index < 0 || index === marks.length) {
      // Complete. Of a closed stream nothing was submitted since its last mark, so that its whole vector time is known, too.
      const vectorTime = this.vectorTimeOfEnded(earlier)
      if (vectorTime !== null) this.delay(later, 0, vectorTime)
      return false
    }
    this.delay(later, marks[index].event, marks[index].vectorTime)
    return true
  }

  /** Lets the open stream of a slot wait for an event whose mark has this vector time; 0 for one that is complete. No other thread ends the stream meanwhile. */
  delay(later: number, event: number, vectorTime: VectorTime): void {
    const driver = this.context.activate()
    this.submit('wait', later, handle => {
      if (event !== 0) driver.cuStreamWaitEvent(handle, event)
      this.follow(later, vectorTime)
    })
  }

  /** Calls the driver for the open stream of a slot; no other thread ends or captures it meanwhile. Refuses, in the name of `call`, one that is not open. */
  submit<R>(call: string, slot: number, work: (handle: number) => R): R {
    if (!this.slots.pin(slot)) throw this.notOpen(call)
    try {
      return work(this.handles[slot])
    } finally {
      this.slots.unpin()
    }
  }

  /** The host has seen a mark of this vector time complete, by waiting for it or by asking. */
  learn(vectorTime: VectorTime, byWaiting: boolean): void {
    for (let slot = 0; slot < vectorTime.length; slot++) {
      const stamp = vectorTime[slot]
      if (byWaiting && stamp > this.waited[slot]) this.waited[slot] = stamp
      if (stamp <= this.completed[slot]) continue
      this.completed[slot] = stamp
      this.prune(slot)
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

  /** Whether `stamp` of a stream, one that a watched mark covers, is complete; asks the driver where that is not known. */
  hasCompleted(slot: number, stamp: number): boolean {
    if (this.completed[slot] >= stamp) return true
    if (!this.marks[slot].some(mark => mark.stamp >= stamp)) this.cover(slot)
    this.query(slot)
    return this.completed[slot] >= stamp
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
    this.learn(mark.vectorTime, true)
  }

  /** Waits on the host for all that was submitted to a slot's stream. */
  waitForAll(slot: number): void {
    if (!this.place(slot)) this.cover(slot)
    const last = this.marks[slot].at(-1)
    if (last !== undefined) {
      this.waitForMark(last)
      return
    }
    // What is left is what was known to a stream when it was closed, or the work before a stream that only its own thread can mark.
    const vectorTime = this.vectorTimeOfEnded(slot) ?? this.vectorTimeOfFormer(slot)
    this.learn(vectorTime, true)
  }

  /** Refuses, in the name of `call`, to wait for all work while a stream is being captured, in whichever thread. */
  checkNoCapture(call: string): void {
    if (this.slots.captured() === null) return
    this.buryStreams() // a dead thread's capture has ended with it
    const handle = this.slots.captured()
    if (handle === null) return
    const fact = `a stream is being captured (${streamName(handle)}), which a wait for all work would break`
    throw new PoolError(`${call}: ${fact}; end the capture in its thread first, then call ${call} again`)
  }

  /** For `close`: waits on the host for all work, or refuses beside a capture, before anything is given back. */
  finishWork(): void {
    this.checkNoCapture('close')
    this.context.finishWork()
  }

  /** Refuses, in the name of `call`, work for the legacy default stream while one that is ordered with it is being captured. */
  checkLegacyUsable(call: string): void {
    for (const stream of this.suspended.values()) if (stream.blockedBy !== null) stream.checkUsable(call)
  }

  /** Waits on the host for all work on the context. */
  synchronize(): void {
    this.checkNoCapture('synchronize')
    this.slots.acquire()
    // A closed stream has its last mark; a tick that the driver then refuses would be covered by none.
    for (let slot = 0; slot < this.slotLimit; slot++) if (this.slots.isTicking(slot)) this.marked[slot]++
    const vectorTime = firstOf(this.marked, this.slotLimit)
    this.slots.release()
    this.context.activate().cuCtxSynchronize()
    this.learn(vectorTime, true)
  }

  /**
   * Work submitted to `stream`, of another device, from now on starts after all that `stamp` of a slot covers. Nothing waits
   * on the host. Returns whether there was something to wait for.
   */
  orderPeer(slot: number, stamp: number, stream: Stream): boolean {
    const event = this.unlessEnded(slot, stamp, () => {
      const covers = (mark: Mark) => mark.stamp >= stamp
      if (!this.marks[slot].some(covers)) this.mark(slot)
      return this.marks[slot].find(covers)?.event
    })
    if (event === undefined) return false
    const driver = stream.context.activate()
    stream.submit('wait', handle => driver.cuStreamWaitEvent(handle, event))
    stream.clocks.notePeerWait()
    return true
  }

  /** A stream of this device was made to wait for work of another one. */
  notePeerWait(): void {
    this.orderedElsewhere.set(this.marked)
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
    const ended = new Array<number>(slot + 1).fill(0)
    ended[slot] = stamp
    this.learn(ended, true)
    return undefined
  }

  /** Whether no other thread has the device attached; from then on none can. */
  shut(): boolean {
    return this.slots.shut()
  }

  /** Waits for all work, or where other threads go on for what this one watches, and gives the events back to the driver. */
  close(): void {
    const driver = this.context.activate()
    // Whoever still awaits something learns that it is done.
    if (this.slots.isAlone) this.synchronize()
    else for (const marks of this.marks) if (marks.length > 0) this.waitForMark(marks[marks.length - 1])
    for (const marks of this.marks) {
      for (const { event, isLast } of marks.splice(0)) if (!isLast) this.spareEvents.push(event)
    }
    for (let event = this.spareEvents.at(-1); event !== undefined; event = this.spareEvents.at(-1)) {
      driver.cuEventDestroy(event)
      this.spareEvents.length--
    }
    const { lastEvents } = this.state
    for (let slot = 0; slot < MOST_STREAMS && this.slots.isAlone; slot++) {
      if (lastEvents[slot] === 0) continue
      driver.cuEventDestroy(lastEvents[slot])
      lastEvents[slot] = 0
    }
    this.slots.leave()
  }

  /** Places a mark on the stream of a slot; false when that is not open, or not reachable from this thread. */
  private place(slot: number): boolean {
    const driver = this.context.activate()
    const marks = this.marks[slot]
    if (marks.length >= MOST_MARKS && this.marked[slot] >= this.asksFrom[slot]) {
      this.asksFrom[slot] = this.marked[slot] + MARKS_PER_QUESTION
      this.query(slot)
    }
    const newest = marks.length < MOST_MARKS ? null : marks[marks.length - 1]
    const replaced = newest?.isLast === false ? newest : null
    if (!this.slots.pin(slot)) return false
    try {
      const vectorTime = this.tick(slot)
      if (replaced === null && this.spareEvents.length === 0) this.spareEvents.push(this.newEvent())
      const event = replaced === null ? this.spareEvents[this.spareEvents.length - 1] : replaced.event
      driver.cuEventRecord(event, this.handles[slot])
      // Without a call in between, where this one could be cut short.
      if (replaced === null) this.spareEvents.length--
      else marks.length--
      marks[marks.length] = { event, slot, stamp: vectorTime[slot], vectorTime, number: ++this.placed, isLast: false }
    } finally {
      this.slots.unpin()
    }
    return true
  }

  /** Closes a slot to other threads and places its last mark. */
  private stop(slot: number, call: string): void {
    if (!this.slots.stop(slot)) throw this.notOpen(call)
    try {
      this.placeLast(slot)
    } catch (error) {
      this.slots.reopen(slot)
      throw error
    }
  }

  /** Places the mark that covers all of a stream that is about to end, where every thread finds it. */
  private placeLast(slot: number): void {
    const driver = this.context.activate()
    const { lastEvents } = this.state
    this.tick(slot)
    if (lastEvents[slot] === 0) lastEvents[slot] = driver.cuEventCreate(CU_EVENT_DISABLE_TIMING)
    driver.cuEventRecord(lastEvents[slot], this.handles[slot])
  }

  /** Ends a stream that this thread has taken over from a dead one. */
  private bury(slot: number, was: Life, dead: number): void {
    const handle = this.handles[slot]
    const isOwned = this.state.owned[slot] === 1
    try {
      // A captured stream has its last mark, and what was captured never runs. The dead thread's own default stream has no handle here.
      const canMark = handle !== CU_STREAM_PER_THREAD
      if (was !== Life.suspended && !(canMark && this.attempt(() => this.placeLast(slot)))) this.synchronize()
    } catch (error) {
      this.slots.disown(slot, dead)
      throw error
    }
    this.vacate(slot)
    if (isOwned) this.context.discard(driver => driver.cuStreamDestroy(handle))
  }

  /** For streams of the dead, of which nobody knows what became of them: another library's may be destroyed, one may be captured for ever. */
  private attempt(work: () => void): boolean {
    try {
      work()
    } catch (error) {
      if (!(error instanceof CudaError)) throw error
      return false
    }
    return true
  }

  private notOpen(call: string): PoolError {
    return new PoolError(`${call}: the stream was closed, or is being captured, in another thread; use an open one`)
  }

  private newEvent(): number {
    const event = this.context.activate().cuEventCreate(CU_EVENT_DISABLE_TIMING)
    if (this.slots.me !== 0) noteEvent(this.state, this.slots.me, event)
    return event
  }

  /** Ticks that placed no mark of ours (a query, an event of the user's, a refused record, another thread's) are watched by a new one. */
  private cover(slot: number): void {
    this.prune(slot)
    const watched = this.marks[slot].at(-1)?.stamp ?? this.completed[slot]
    if (this.slots.isOpen(slot)) {
      if (watched >= this.marked[slot] || this.place(slot) || !this.slots.isReachable(slot)) return
    } else {
      this.awaitClosing(slot)
      const last = this.lastMark(slot)
      if (last !== null && last.stamp > watched) {
        if (last.event === 0) this.learn(last.vectorTime, false)
        else this.marks[slot].push(last)
      }
      if (last !== null) return
    }
    this.cover(slot) // it was closed or opened at this moment
  }

  /** Returns when no other thread is placing the last mark of a slot's stream. */
  private awaitClosing(slot: number): void {
    while (!this.slots.awaitClosing(slot)) this.buryStreams()
  }

  /** `tick` where the clock may tick; null for a stream that has ended or is about to. */
  private tickOpen(slot: number): VectorTime | null {
    this.slots.acquire()
    const ticks = this.slots.me === 0 || this.slots.isTicking(slot)
    if (ticks) this.marked[slot]++
    const vectorTime = ticks ? this.vectorTimeOf(slot) : null
    this.slots.release()
    return vectorTime
  }

  /**
   * By how much a stamp may be above the last mark of a stream that has ended: a free in another thread may have seen the last tick too
   * early. What the slot runs next begins above it.
   */
  private get lateTicks(): number {
    return Number(this.slots.me !== 0)
  }

  /**
   * The last mark of a stream that has ended; null when the slot is open. Its event is 0, or that of an older stream, where all work was
   * waited for in place of a mark.
   */
  private lastMark(slot: number): Mark | null {
    const { lives, lastEvents } = this.state
    this.slots.acquire()
    const life = lives[slot]
    const vectorTime = this.vectorTimeOf(slot)
    const event = lastEvents[slot]
    vectorTime[slot] += this.lateTicks
    this.slots.release()
    if (life === Life.open || life === Life.closing) return null
    return { event, slot, stamp: vectorTime[slot], vectorTime, number: ++this.placed, isLast: true }
  }

  /** What is complete once all of a stream is that has ended; null when the slot is open, or not all of it is complete. */
  private vectorTimeOfEnded(slot: number): VectorTime | null {
    const { lives } = this.state
    this.slots.acquire()
    const isOver =
      lives[slot] !== Life.open && lives[slot] !== Life.closing && this.completed[slot] >= this.marked[slot]
    const vectorTime = isOver ? this.vectorTimeOf(slot) : null
    if (vectorTime !== null) vectorTime[slot] += this.lateTicks
    this.slots.release()
    return vectorTime
  }

  /** What is complete of a slot's streams, however much that is. */
  private vectorTimeOfFormer(slot: number): VectorTime {
    return Array.from({ length: MOST_STREAMS }, (_, other) => (other === slot ? this.completed[slot] : 0))
  }

  /** Marks that are known complete need not be watched any more. */
  private prune(slot: number): void {
    const marks = this.marks[slot]
    let passed = 0
    while (passed < marks.length && marks[passed].stamp <= this.completed[slot]) passed++
    if (passed === 0) return
    // A call that is cut short here loses an event, and never has one twice.
    for (const { event, isLast } of marks.splice(0, passed)) if (!isLast) this.spareEvents.push(event)
  }

  private query(slot: number): boolean {
    const marks = this.marks[slot]
    if (marks.length === 0) return false
    const driver = this.context.activate()
    // Marks complete in their order: all before `done` have, those from `end` on have not. Mostly the newest one tells all, or
    // the oldest one.
    let done = 0
    let end = marks.length
    relaxed(driver, () => {
      for (let asked = end - 1; done < end; asked = done === 0 ? 0 : (done + end) >> 1) {
        if (driver.cuEventQuery(marks[asked].event)) done = asked + 1
        else end = asked
      }
    })
    if (done === 0) return false
    this.learn(marks[done - 1].vectorTime, false)
    return true
  }

  private claimByWaiting(stream: Stream): number {
    const { lives } = this.state
    for (let tries = 0; tries < MOST_STREAMS; tries++) {
      this.reclaim()
      const slot = this.slots.claim(stream.handle, stream.owned)
      const retired = lives.indexOf(Life.retired)
      if (slot !== -1 || retired === -1) return slot
      this.waitFor(retired, this.marked[retired])
    }
    return -1
  }

  private reclaim(): void {
    const { lives } = this.state
    for (let slot = 0; slot < this.slotLimit; slot++) {
      if (lives[slot] !== Life.retired) continue
      this.poll(slot)
      this.slots.free(slot)
    }
  }
}
