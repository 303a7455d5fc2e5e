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

  constructor(private readonly state: SharedState) {}

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
      this.liveAt(ptr, index) ||
      this.state.locked(() => {
        this.index = this.indexAll()
        return this.liveAt(ptr, this.index)
      })
    )
  }

  private liveAt(ptr: number, index: AddressIndex): number {
    for (const range of Number.isSafeInteger(ptr) ? this.rangesAt(ptr) : []) {
      const record = index.find(range, (ptr - this.state.bases[range]) / UNIT_BYTES)
      if (record !== 0 && this.holds(record)) return record
    }
    return 0
  }

  /** Indexes live and cached blocks: a cached one may become this thread's later. */
  private indexAll(): AddressIndex {
    const { records } = this.state
    const index = new AddressIndex(records, records)
    for (let record = records.first; record < records.used; record++) if (records.isLive(record)) index.note(record)
    return index
  }

  /** The ranges that an address may lie in: those of heaps, and views, whose length only the pool server knows. */
  private rangesAt(ptr: number): number[] {
    const { bases, memory, records } = this.state
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

  private holds(record: number): boolean {
    const ownerWord = this.state.records.words[(record << 4) | Word.owner]
    return workerOf(ownerWord) === this.state.thread && phaseOf(ownerWord) === Phase.live
  }
}
