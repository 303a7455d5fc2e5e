// The blocks that the program holds at an event. A list every 16,384 events makes any event cheap.

import { Action } from '../trace/trace.js'
import type { Picture } from './picture.js'

const CHECKPOINT_EVENTS = 16_384

export class LiveBlocks {
  /** after each event, as requested */
  readonly inUse: Float64Array
  /** bytes before the first event */
  readonly initialBytes: number
  readonly peakBytes: number
  readonly peakEvent: number
  /** how many blocks there are up to each event, that of the event among them */
  private readonly allocated: Int32Array
  /** the blocks held before that event, in order */
  private readonly held: Int32Array[]

  constructor(readonly picture: Picture) {
    const { events, action, block, blocks } = picture
    this.inUse = new Float64Array(events)
    this.allocated = new Int32Array(events)
    this.held = []
    let bytes = 0
    for (let i = 0; i < blocks.initial; i++) if (blocks.freeRequestedAt[i] >= 0) bytes += blocks.bytes[i]
    this.initialBytes = bytes
    let [peakBytes, peakEvent] = [-1, 0]
    let next = blocks.initial
    let before = new Int32Array(0)
    for (let event = 0, seen = 0; event < events; event++) {
      if (event % CHECKPOINT_EVENTS === 0) {
        before = this.heldAfter(before, seen, next, event - 1)
        this.held.push(before)
        seen = next
      }
      if (action[event] === Action.alloc) bytes += blocks.bytes[next++]
      else if (action[event] === Action.freeRequested) bytes -= blocks.bytes[block[event]]
      this.allocated[event] = next
      this.inUse[event] = bytes
      if (bytes > peakBytes) [peakBytes, peakEvent] = [bytes, event]
    }
    this.peakBytes = Math.max(0, peakBytes)
    this.peakEvent = peakEvent
  }

  /** The blocks held after `event`, the oldest first; -1 is before the first event. */
  at(event: number): Int32Array {
    const { blocks } = this.picture
    if (event < 0) return this.heldAfter(new Int32Array(0), 0, blocks.initial, -1)
    const point = Math.floor(event / CHECKPOINT_EVENTS)
    const before = this.allocatedBy(point * CHECKPOINT_EVENTS - 1)
    return this.heldAfter(this.held[point], before, this.allocatedBy(event), event)
  }

  /** How many blocks there are up to `event`, that of the event among them. */
  allocatedBy(event: number): number {
    return event < 0 ? this.picture.blocks.initial : this.allocated[event]
  }

  /** Those of `before`, and of the blocks from `first` to `end` - 1, that `event` leaves held. */
  private heldAfter(before: Int32Array, first: number, end: number, event: number): Int32Array<ArrayBuffer> {
    const { freeRequestedAt } = this.picture.blocks
    const list = new Int32Array(before.length + end - first)
    let count = 0
    for (const block of before) if (freeRequestedAt[block] > event) list[count++] = block
    for (let block = first; block < end; block++) if (freeRequestedAt[block] > event) list[count++] = block
    return list.slice(0, count)
  }
}
