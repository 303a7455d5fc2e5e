// What the host knows of the order of work. A stream's clock ticks at each mark: an event placed on it, or a call that
// waits for it. A free stamps its block with the first mark that will cover it, `marked + 1`; once `completed` has
// reached that stamp, the host has seen the last use of the block complete and any stream may have it. The clock ticks
// before the driver is called and `completed` rises after, so that a mistake in timing costs a reuse and never data.

import { PoolError } from '../base/errors.js'
import { CU_EVENT_DISABLE_TIMING } from '../driver/constants.js'
import type { Context } from '../driver/context.js'
import type { Stream } from './stream.js'

/** Streams that one device can have open at a time. */
export const MOST_STREAMS = 64
/** Marks of one stream that are watched at a time; a further one takes the place of the newest. */
const MOST_MARKS = 64

interface Mark {
  readonly event: number
  stamp: number
}

export class Clocks {
  /** by stream slot: marks placed so far, and the latest one known complete */
  readonly marked = new Float64Array(MOST_STREAMS)
  readonly completed = new Float64Array(MOST_STREAMS)
  /** the open stream that has a slot */
  readonly streams: (Stream | null)[] = Array.from({ length: MOST_STREAMS }, () => null)
  private readonly marks: Mark[][] = Array.from({ length: MOST_STREAMS }, () => [])
  private readonly spareEvents: number[] = []
  private readonly freeSlots = Array.from({ length: MOST_STREAMS }, (_, index) => MOST_STREAMS - 1 - index)
  /** slots of closed streams whose last mark is not known complete yet */
  private readonly retired: number[] = []

  constructor(readonly context: Context) {}

  /** A slot for a new stream; one of a closed stream is used again once that stream's work is known complete. */
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
    this.streams[slot] = stream
    return slot
  }

  /** A stream is about to be closed: a last mark covers all that was submitted to it. */
  retire(slot: number): void {
    this.mark(slot)
    this.streams[slot] = null
    this.retired.push(slot)
  }

  /** Places a mark on the open stream that has `slot`; its completion is noticed by `poll`. */
  mark(slot: number): number {
    const driver = this.context.activate()
    const stream = this.streams[slot]!.handle
    const marks = this.marks[slot]
    if (marks.length >= MOST_MARKS) this.query(slot)
    const stamp = ++this.marked[slot]
    if (marks.length < MOST_MARKS) {
      if (this.spareEvents.length === 0) this.spareEvents.push(driver.cuEventCreate(CU_EVENT_DISABLE_TIMING))
      const event = this.spareEvents[this.spareEvents.length - 1]
      driver.cuEventRecord(event, stream)
      this.spareEvents.pop()
      marks.push({ event, stamp })
    } else {
      const newest = marks[marks.length - 1]
      driver.cuEventRecord(newest.event, stream)
      newest.stamp = stamp
    }
    return stamp
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
    if (mark === undefined) return
    this.context.activate().cuEventSynchronize(mark.event)
    this.complete(slot, mark.stamp)
  }

  /** Work submitted to `stream` from now on starts after all that `stamp` of a slot covers. Nothing waits on the host. */
  order(slot: number, stamp: number, stream: Stream): void {
    if (slot === stream.slot || this.completed[slot] >= stamp) return
    const covers = (mark: Mark) => mark.stamp >= stamp
    if (!this.marks[slot].some(covers)) this.mark(slot)
    const { event } = this.marks[slot].find(covers)!
    this.context.activate().cuStreamWaitEvent(stream.handle, event)
  }

  /** `stamp` of a stream is known complete, by whichever way. */
  complete(slot: number, stamp: number): void {
    if (stamp > this.completed[slot]) this.completed[slot] = stamp
    const marks = this.marks[slot]
    let passed = 0
    while (passed < marks.length && marks[passed].stamp <= stamp) this.spareEvents.push(marks[passed++].event)
    marks.splice(0, passed)
  }

  /** Waits for all work and gives the events back to the driver. */
  close(): void {
    const driver = this.context.activate()
    driver.cuCtxSynchronize()
    this.completed.set(this.marked) // whoever still awaits something learns that it is done
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
    let done = 0
    while (done < marks.length && driver.cuEventQuery(marks[done].event)) done++
    if (done === 0) return false
    this.complete(slot, marks[done - 1].stamp)
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
