// Finds the live block of this thread that begins at an address, for frees by address.

import { Phase, phaseOf, workerOf } from '../../heap/owner-word.js'
import { Word } from '../../heap/records.js'
import { MAX_UNITS, UNIT_BYTES } from '../../heap/size-classes.js'
import { FIRST_VIEW_RANGE } from '../backing/backing.js'
import { AddressIndex } from '../caching/address-index.js'
import { MOST_VIEWS } from '../caching/central/free-memory.js'
import type { SharedState } from './shared-state.js'

export class AddressLookup {
  /** null until the first lookup: most programs free buffers only */
  private index: AddressIndex | null = null

  /** by range: the device address of its unit 0 */
  readonly bases: Float64Array

  constructor(private readonly state: SharedState) {
    this.bases = state.bases
  }

  /** Notes a block that this thread has received. */
  note(record: number): void {
    this.index?.note(record)
  }

  /** The record of the live block of this thread that begins at an address; 0 for none. */
  find(ptr: number): number {
    const index = this.index ?? this.indexAll()
    this.index = index
    // The first record of a range changes under the lock. Once all pages of records are taken, a block may come back
    // to a thread that had none at that address before.
    return (
      index.findAt(ptr, this) ||
      this.state.locked(() => {
        this.index = this.indexAll()
        return this.index.findAt(ptr, this)
      })
    )
  }

  private indexAll(): AddressIndex {
    return AddressIndex.of(this.state.records, this)
  }

  /** The ranges that an address may lie in: those of heaps, and views, whose length only the pool server knows. */
  rangesAt(ptr: number): number[] {
    const { bases } = this
    const { memory, records } = this.state
    const ranges: number[] = []
    for (const heap of [memory.small, memory.large]) {
      for (const [range, first] of heap.firstRecords) {
        const start = bases[range] + records.words[(first << 4) | Word.offset] * UNIT_BYTES
        if (ptr >= start && ptr < start + heap.firstRecords.unitsOf(range) * UNIT_BYTES) ranges.push(range)
      }
    }
    if (!memory.hasSlabs) return ranges
    for (let view = 0; view < MOST_VIEWS; view++) {
      const base = bases[FIRST_VIEW_RANGE + view]
      if (base !== 0 && ptr >= base && ptr < base + MAX_UNITS * UNIT_BYTES) ranges.push(FIRST_VIEW_RANGE + view)
    }
    return ranges
  }

  /** Whether a record describes a live block of this thread. */
  isLive(record: number): boolean {
    const { records, thread } = this.state
    const ownerWord = records.ownerWord(record)
    return records.isLive(record) && workerOf(ownerWord) === thread && phaseOf(ownerWord) === Phase.live
  }
}
