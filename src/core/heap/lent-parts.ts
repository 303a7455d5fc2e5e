// A block in a view is memory of several places, its parts, that a second mapping joins
// (core/pool/backing/pieces/views.ts). The block has a record outside of all chains. Each part has a record in its
// heap, in the state `lent`. A lent record that belongs to no block is a slab: the heap for small blocks hands out its
// memory.
//
// The block's `binNext` is its first part. A part's `binNext` is the next part, and its `binPrevious` the block. Each
// view is a range of its own, so the block's `range` tells its view.

import { type RecordTable, State, Word } from './records.js'
import type { SegregatedFit } from './segregated-fit.js'

/** Makes taken records the parts of a new block in a view, and returns the record of that block, which is live. */
export function joinParts(
  records: RecordTable,
  parts: readonly number[],
  place: { range: number; start: number; units: number },
): number {
  const block = records.acquire()
  const { words } = records
  words[(block << 4) | Word.offset] = place.start
  words[(block << 4) | Word.units] = place.units
  words[(block << 4) | Word.range] = place.range
  words[(block << 4) | Word.previous] = 0
  words[(block << 4) | Word.next] = 0
  words[(block << 4) | Word.binNext] = parts[0]
  records.claim(block) // before its parts say that they are its parts; see `mendLent`
  parts.forEach((part, index) => {
    words[(part << 4) | Word.binNext] = parts[index + 1] ?? 0
    words[(part << 4) | Word.binPrevious] = block
  })
  for (const part of parts) records.setState(part, State.lent)
  return block
}

/** Makes the record of taken memory a slab, a part of no block. */
export function makeSlab(records: RecordTable, record: number): void {
  records.words[(record << 4) | Word.binPrevious] = 0
  records.setState(record, State.lent)
}

/** The block that a lent record is a part of; 0 for a slab. */
export function blockOfPart(records: RecordTable, part: number): number {
  return records.binPreviousOf(part)
}

/** The parts of a block in a view, in the order of its addresses. */
export function partsOf(records: RecordTable, block: number): number[] {
  const parts: number[] = []
  for (let part = records.binNextOf(block); part !== 0; part = records.binNextOf(part)) parts.push(part)
  return parts
}

/**
 * Gives the parts of a block back to their heap, for reuse after `stamp` of `key`, and releases the block's record.
 * A thread may die between any two stores. From the store of the block's state on, its parts count as free.
 */
export function freeParts(heap: SegregatedFit, block: number, key: number, stamp: number): void {
  const { records } = heap
  const parts = partsOf(records, block)
  for (const part of parts) records.setDependency(part, key, stamp)
  records.setState(block, State.unused)
  for (const part of parts) heap.free(part, key, stamp)
  records.release(block)
}

/** Moves a block in a view to a fresh record, because its own has no generation left. */
export function rehouseInView(records: RecordTable, block: number): number {
  const parts = partsOf(records, block)
  const place = {
    range: records.rangeOf(block),
    start: records.offsetOf(block),
    units: records.unitsOf(block),
  }
  const fresh = joinParts(records, parts, place)
  records.copyUse(block, fresh)
  records.release(block)
  return fresh
}

/**
 * Repairs lent records after a thread died between any two stores, before the heaps are rebuilt. A block exists if all
 * of its parts are lent. A block that was moving to another record exists once. A part without a block is free, and so
 * is a slab that the heap for small blocks does not have. Returns the blocks.
 */
export function mendLent(small: SegregatedFit, large: SegregatedFit): number[] {
  const { records } = large
  const lent = lentIn(large)
  const blocks = new Set<number>()
  const parts = new Set<number>()
  for (const block of new Set(lent.map(record => blockOfPart(records, record)))) {
    if (block === 0 || records.state(block) <= State.free) continue
    const own = partsOf(records, block)
    if (own.some(part => records.state(part) !== State.lent || parts.has(part))) continue
    blocks.add(block)
    for (const part of own) {
      parts.add(part)
      records.words[(part << 4) | Word.binPrevious] = block
    }
  }
  for (const record of lent) {
    const isSlab = blockOfPart(records, record) === 0 && hasMemoryAt(small, records.offsetOf(record))
    if (!parts.has(record) && !isSlab) records.setState(record, State.free)
  }
  return [...blocks]
}

function lentIn({ records, firstRecords }: SegregatedFit): number[] {
  const lent: number[] = []
  for (const [, first] of firstRecords) {
    for (let record = first; record !== 0; record = records.nextOf(record)) {
      if (records.state(record) === State.lent) lent.push(record)
    }
  }
  return lent
}

/** Whether a unit of the range lies in no hole. Sizes may be wrong before a repair, offsets are not. */
function hasMemoryAt(heap: SegregatedFit, unit: number): boolean {
  const { records } = heap
  for (const [, first] of heap.firstRecords) {
    for (let record = first; record !== 0; record = records.nextOf(record)) {
      const next = records.nextOf(record)
      if (next === 0 || records.offsetOf(next) > unit) return records.state(record) !== State.absent
    }
  }
  return false
}
