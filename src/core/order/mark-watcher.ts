// The marks that this thread has placed and not yet seen complete: it records their events, polls them, and waits for
// them.
//
// Each thread watches its own marks. If the clock of a stream has ticked beyond them, `cover` places a fresh mark.
// The last mark of a stream that has ended is in shared memory, where every thread finds it.

import { CU_EVENT_DISABLE_TIMING } from '../driver/constants.js'
import { relaxed } from './relaxed.js'
import { Life, noteEvent } from './shared-order.js'
import type { StreamClocks } from './stream-clocks.js'
import { MOST_STREAMS, type VectorTime } from './vector-clocks.js'

/** Marks of one stream that are watched at a time; a further mark replaces the newest. */
const MOST_MARKS = 64
/**
 * When the list is full, the driver is polled only after every 32nd new mark: a stream that lags usually keeps
 * lagging.
 */
const MARKS_PER_POLL = MOST_MARKS / 2

/** A mark that this thread watches. */
export interface Mark {
  readonly event: number
  readonly slot: number
  readonly stamp: number
  readonly vectorTime: VectorTime
  /** counts all marks of the thread: of two marks the older has the lower number */
  readonly number: number
  /** of a stream that has ended: the event belongs to the slot, not to this thread */
  readonly isLast: boolean
}

export class MarkWatcher {
  /** by slot: the watched marks, the oldest first */
  private readonly marks: Mark[][] = []
  private placed = 0
  /** by slot, while its list is full: the stamp of the next mark at which the driver is polled */
  private readonly pollsFrom = new Float64Array(MOST_STREAMS)
  private readonly spareEvents: number[] = []

  constructor(private readonly clocks: StreamClocks) {}

  /** The order is shared from now on: another thread destroys these events if this thread dies. */
  noteEvents(): void {
    const { state, slots } = this.clocks
    for (const { event, isLast } of this.marks.flat()) if (!isLast) noteEvent(state, slots.me, event)
    for (const event of this.spareEvents) noteEvent(state, slots.me, event)
  }

  private marksOf(slot: number): Mark[] {
    while (slot >= this.marks.length) this.marks.push([])
    return this.marks[slot]
  }

  /** Places a mark on the open stream of a slot, and returns its stamp. */
  mark(slot: number): number {
    if (this.place(slot)) return this.marksOf(slot).at(-1)!.stamp
    this.cover(slot)
    return this.clocks.marked[slot]
  }

  /**
   * The oldest watched mark of a slot that covers `stamp`, or a new mark with `afresh`; null if that much is known
   * complete.
   */
  find(slot: number, stamp: number, afresh: boolean): Mark | null {
    if (!((stamp > this.clocks.marked[slot] || afresh) && this.place(slot))) this.cover(slot)
    const marks = this.marksOf(slot)
    let index = afresh ? marks.length - 1 : 0
    while (index < marks.length && !afresh && marks[index].stamp < stamp) index++
    return index < 0 || index === marks.length ? null : marks[index]
  }

  /** The event of the oldest watched mark that covers `stamp`; places a mark if none covers it. */
  eventCovering(slot: number, stamp: number): number | undefined {
    const covers = (mark: Mark) => mark.stamp >= stamp
    if (!this.marksOf(slot).some(covers)) this.mark(slot)
    return this.marksOf(slot).find(covers)?.event
  }

  /** The host has seen a mark of this vector time complete, by a wait or by a query. */
  learn(vectorTime: VectorTime, byWaiting: boolean): void {
    const { completed, waited } = this.clocks
    for (let index = 0; index < vectorTime.length; index += 2) {
      const slot = vectorTime[index]
      const stamp = vectorTime[index + 1]
      if (byWaiting && stamp > waited[slot]) waited[slot] = stamp
      if (stamp <= completed[slot]) continue
      completed[slot] = stamp
      this.prune(slot)
    }
  }

  /** Asks the driver how far a stream has come; true if the stream has come further than was known. */
  poll(slot: number): boolean {
    this.cover(slot)
    return this.query(slot)
  }

  /** Waits on the host until `stamp` of a stream, which its clock has reached, is complete. */
  waitFor(slot: number, stamp: number): void {
    if (this.clocks.completed[slot] >= stamp) return
    this.cover(slot)
    const mark = this.marksOf(slot).find(candidate => candidate.stamp >= stamp)
    if (mark !== undefined) this.waitForMark(mark)
  }

  /** Whether `stamp` of a stream is complete; polls the driver if needed. A watched mark covers the stamp. */
  hasCompleted(slot: number, stamp: number): boolean {
    const { completed } = this.clocks
    if (completed[slot] >= stamp) return true
    if (!this.marksOf(slot).some(mark => mark.stamp >= stamp)) this.cover(slot)
    this.query(slot)
    return completed[slot] >= stamp
  }

  /** The watched marks of a slot, the oldest first. */
  watched(slot: number): readonly Mark[] {
    this.cover(slot)
    return this.marksOf(slot)
  }

  /** Waits on the host for a watched mark. */
  waitForMark(mark: Mark): void {
    const driver = this.clocks.context.activate()
    relaxed(driver, () => driver.cuEventSynchronize(mark.event))
    this.learn(mark.vectorTime, true)
  }

  /** Waits on the host for all work submitted to a slot's stream. */
  waitForAll(slot: number): void {
    if (!this.place(slot)) this.cover(slot)
    const last = this.marksOf(slot).at(-1)
    if (last !== undefined) {
      this.waitForMark(last)
      return
    }
    // Either the stream has ended and is complete, and so is everything that it knew. Or only its own thread can mark
    // it, and the slot's former streams are complete.
    const vectorTime = this.clocks.vectorTimeOfEnded(slot) ?? this.clocks.vectorTimeOfFormer(slot)
    this.learn(vectorTime, true)
  }

  /** Waits on the host for the newest watched mark of each stream. */
  waitForNewest(): void {
    for (const marks of this.marks) if (marks.length > 0) this.waitForMark(marks[marks.length - 1])
  }

  /** Destroys the thread's events. */
  close(): void {
    const { driver } = this.clocks.context
    for (const marks of this.marks) {
      for (const { event, isLast } of marks.splice(0)) if (!isLast) this.spareEvents.push(event)
    }
    for (let event = this.spareEvents.at(-1); event !== undefined; event = this.spareEvents.at(-1)) {
      driver.cuEventDestroy(event)
      this.spareEvents.length--
    }
  }

  /** Places a mark on the stream of a slot; false if the stream is not open, or this thread cannot mark it. */
  private place(slot: number): boolean {
    const { clocks } = this
    const driver = clocks.context.activate()
    const marks = this.marksOf(slot)
    if (marks.length >= MOST_MARKS && clocks.marked[slot] >= this.pollsFrom[slot]) {
      this.pollsFrom[slot] = clocks.marked[slot] + MARKS_PER_POLL
      this.query(slot)
    }
    const newest = marks.length < MOST_MARKS ? null : marks[marks.length - 1]
    const replaced = newest?.isLast === false ? newest : null
    if (!clocks.slots.pin(slot)) return false
    try {
      const vectorTime = clocks.tick(slot)
      if (replaced === null && this.spareEvents.length === 0) this.spareEvents.push(this.newEvent())
      const event = replaced === null ? this.spareEvents[this.spareEvents.length - 1] : replaced.event
      driver.cuEventRecord(event, clocks.handles[slot])
      // No call comes in between, since this one could be cut short there.
      if (replaced === null) this.spareEvents.length--
      else marks.length--
      marks[marks.length] = { event, slot, stamp: vectorTime[1], vectorTime, number: ++this.placed, isLast: false }
    } finally {
      clocks.slots.unpin()
    }
    return true
  }

  private newEvent(): number {
    const { context, slots, state } = this.clocks
    const event = context.activate().cuEventCreate(CU_EVENT_DISABLE_TIMING)
    if (slots.me !== 0) noteEvent(state, slots.me, event)
    return event
  }

  /**
   * Makes the watched marks cover the clock of a slot. Some ticks placed no watched mark: a query, an event of the
   * user's, a record that the driver refused, another thread's mark.
   */
  private cover(slot: number): void {
    // Again if the stream was closed or opened at this moment.
    while (!(this.clocks.slots.isOpen(slot) ? this.coverOpen(slot) : this.coverEnded(slot)));
  }

  /** Places a mark where one is missing; false if the stream is not open any more. */
  private coverOpen(slot: number): boolean {
    const { marked, slots } = this.clocks
    if (this.coveredStamp(slot) >= marked[slot]) return true
    return this.place(slot) || !slots.isReachable(slot) // a stream that this thread cannot mark
  }

  /** Watches the last mark; false if the stream is open. */
  private coverEnded(slot: number): boolean {
    this.clocks.awaitClosing(slot)
    const last = this.lastMark(slot)
    if (last === null) return false
    if (last.stamp <= this.coveredStamp(slot)) return true
    if (last.event === 0) this.learn(last.vectorTime, false)
    else this.marksOf(slot).push(last)
    return true
  }

  /** The latest stamp of a slot that a watched mark covers, or that is complete. */
  private coveredStamp(slot: number): number {
    this.prune(slot)
    return this.marksOf(slot).at(-1)?.stamp ?? this.clocks.completed[slot]
  }

  /**
   * The last mark of a stream that has ended; null if the slot is open. After a wait for all work instead of a last
   * mark, its event is 0 or the event of an older stream.
   */
  private lastMark(slot: number): Mark | null {
    const { clocks } = this
    const { lives, lastEvents } = clocks.state
    clocks.slots.acquire()
    const life = lives[slot]
    const vectorTime = clocks.vectorTimeOf(slot)
    const event = lastEvents[slot]
    vectorTime[1] += clocks.lateTicks
    clocks.slots.release()
    if (life === Life.open || life === Life.closing) return null
    return { event, slot, stamp: vectorTime[1], vectorTime, number: ++this.placed, isLast: true }
  }

  /** Stops watching marks that are known complete. */
  private prune(slot: number): void {
    const marks = this.marksOf(slot)
    const { completed } = this.clocks
    let passed = 0
    while (passed < marks.length && marks[passed].stamp <= completed[slot]) passed++
    if (passed === 0) return
    // If this call is cut short here an event is lost, and none is in both lists.
    for (const { event, isLast } of marks.splice(0, passed)) if (!isLast) this.spareEvents.push(event)
  }

  private query(slot: number): boolean {
    const marks = this.marksOf(slot)
    if (marks.length === 0) return false
    const driver = this.clocks.context.activate()
    // Marks complete in their order: all before `done` are complete, none from `end` on is. The newest mark, or the
    // oldest, usually decides.
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
}
