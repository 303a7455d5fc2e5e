// The slot cache of a heap that several threads share: for each thread, stream and class four slots of its own, which only
// it takes blocks from and puts blocks into. Others empty them too, but only under the heap's lock; so a slot changes by
// single atomic operations, no link can be followed into the wrong block, and nothing needs to be locked on the way.
//
// A slot holds 0, a record, or the negative of a record: the holder of the lock is just about to give that one back. So a
// thread that dies with the lock leaves a note of what it had in its hands.

import { MOST_WORKERS } from '../base/roster.js'
import { type RecordTable, Word } from './records.js'
import type { Region } from './region.js'
import { CLASSES } from './size-classes.js'

const enum Shift {
  class = 2,
  stream = 11,
}
const PLACES = 1 << Shift.class
const STREAM_WORDS = 1 << Shift.stream

export class SharedSlots {
  private readonly slots: Int32Array

  constructor(
    private readonly records: RecordTable,
    region: Region,
    private readonly streams: number,
  ) {
    this.slots = region.int32((MOST_WORKERS + 1) * streams * STREAM_WORDS)
  }

  /** A block of at least `units` from a thread's own slots; 0 for none. */
  pop(worker: number, stream: number, sizeClass: number, units: number): number {
    const { slots } = this
    const { words } = this.records
    const first = this.first(worker, stream) | (sizeClass << Shift.class)
    for (let slot = first; slot < first + PLACES; slot++) {
      const record = slots[slot]
      if (record <= 0 || words[(record << 4) | Word.units] < units) continue
      if (Atomics.compareExchange(slots, slot, record, 0) === record) return record
    }
    return 0
  }

  /** Puts a block into a thread's own slots; false when those of its class are taken. */
  push(worker: number, stream: number, sizeClass: number, record: number): boolean {
    const { slots } = this
    const base = this.first(worker, stream)
    // No block is of class 0; its first word says whether the slots were ever used.
    if (slots[base] === 0) slots[base] = 1
    const first = base | (sizeClass << Shift.class)
    for (let slot = first; slot < first + PLACES; slot++) {
      if (slots[slot] === 0 && Atomics.compareExchange(slots, slot, 0, record) === 0) return true
    }
    return false
  }

  /** Empties the slots of a thread, under the lock: hands each block to `giveBack` while its slot still tells of it. */
  drain(worker: number, giveBack: (record: number) => void): void {
    for (const slot of this.used(worker)) {
      const record = this.slots[slot]
      if (record <= 0 || Atomics.compareExchange(this.slots, slot, record, -record) !== record) continue
      giveBack(record)
      Atomics.store(this.slots, slot, 0)
    }
  }

  /** Finishes what a thread was about when it died with the lock: the blocks that it noted go to `giveBack`, given back or not. */
  finish(giveBack: (record: number) => void): void {
    for (let worker = 1; worker <= MOST_WORKERS; worker++) {
      for (const slot of this.used(worker)) {
        if (this.slots[slot] >= 0) continue
        giveBack(-this.slots[slot])
        Atomics.store(this.slots, slot, 0)
      }
    }
  }

  /** What lies in the slots of a thread: class and record. */
  *entries(worker: number): Generator<{ stream: number; sizeClass: number; record: number }> {
    for (const slot of this.used(worker)) {
      const record = Atomics.load(this.slots, slot)
      const sizeClass = (slot & (STREAM_WORDS - 1)) >> Shift.class
      if (record !== 0) yield { stream: (slot >> Shift.stream) % this.streams, sizeClass, record }
    }
  }

  /** Indices of the slots of a thread's streams that were ever used. */
  private *used(worker: number): Generator<number> {
    for (let stream = 0; stream < this.streams; stream++) {
      const first = this.first(worker, stream)
      if (this.slots[first] === 0) continue
      for (let slot = first + PLACES; slot < first + CLASSES * PLACES; slot++) yield slot
    }
  }

  private first(worker: number, stream: number): number {
    return (worker * this.streams + stream) << Shift.stream
  }
}
