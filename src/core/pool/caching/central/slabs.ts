// Slabs: blocks of the heap for large blocks, in which the heap for small blocks finds its memory. Both heaps have a
// range of the same addresses, and that of small blocks is a hole except for the slabs. A slab that is empty goes back
// when large blocks need room. So memory is never short for one kind of block and idle for the other.
//
// Several threads may use the same heaps under a lock, and a thread may die between any two stores. In the home range
// a slab is a lent record that is a part of no block; repairs compare that with the hole in the other range.

import { blockOfPart, makeSlab } from '../../../heap/lent-parts.js'
import { State } from '../../../heap/records.js'
import type { SegregatedFit } from '../../../heap/segregated-fit.js'
import { classOf, UNIT_BYTES } from '../../../heap/size-classes.js'
import { HOME_RANGE, SMALL_UNITS } from '../../backing/backing.js'
import { policy } from '../../policy.js'
import type { FreeMemory } from './free-memory.js'

/** The size of a slab for a block of `units`. */
export function slabUnits(units: number): number {
  return Math.max(policy.slabBytes / UNIT_BYTES, units)
}

/** The least size of a slab, for a block of `units`. */
export function leastSlabUnits(units: number): number {
  return Math.max(SMALL_UNITS, units)
}

/**
 * Makes a taken block of the large heap a slab, whose memory is usable after `stamp` of `key`. Returns the memory as a
 * taken block of the heap for small blocks.
 */
export function addSlab({ small, records }: FreeMemory, record: number, key: number, stamp: number): number {
  records.setDependency(record, key, stamp)
  makeSlab(records, record)
  return small.fillHole(records.offsetOf(record), records.unitsOf(record))
}

/** Gives slabs that are empty back to the heap for large blocks; returns their number. */
export function giveBackEmptySlabs(memory: FreeMemory): number {
  const { small, large, records, hasSlabs } = memory
  const free = hasSlabs ? freeBlocksFrom(small, SMALL_UNITS) : []
  if (free.length === 0) return 0
  let given = 0
  // From the highest address down: a free block keeps its record where its lower part stays.
  for (const slab of slabsOf(large).reverse()) {
    const start = records.offsetOf(slab)
    const units = records.unitsOf(slab)
    const block = free.find(
      record =>
        records.state(record) === State.free &&
        records.offsetOf(record) <= start &&
        records.offsetOf(record) + records.unitsOf(record) >= start + units,
    )
    if (block === undefined) continue
    const [key, stamp] = [records.keyOf(block), records.stampOf(block)]
    records.setDependency(slab, key, stamp)
    small.decommit(block, start, units)
    memory.giveBack(slab, key, stamp)
    given++
  }
  return given
}

/** The records of all slabs, in the order of their addresses. */
export function slabsOf(large: SegregatedFit): number[] {
  const { records } = large
  const slabs: number[] = []
  for (let record = large.firstRecords.get(HOME_RANGE); record !== 0; record = records.nextOf(record)) {
    if (records.state(record) === State.lent && blockOfPart(records, record) === 0) slabs.push(record)
  }
  return slabs
}

/** The free blocks of at least `units`. */
function freeBlocksFrom(heap: SegregatedFit, units: number): number[] {
  const { records } = heap
  const blocks: number[] = []
  for (let key = 0; key < heap.keyLimit; key++) {
    let sizeClass = heap.nextClass(key, classOf(units))
    for (; sizeClass !== -1; sizeClass = heap.nextClass(key, sizeClass + 1)) {
      for (let record = heap.head(key, sizeClass); record !== 0; record = records.binNextOf(record)) {
        if (records.unitsOf(record) >= units) blocks.push(record)
      }
    }
  }
  return blocks
}
